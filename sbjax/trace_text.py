"""The text of every token of a trace."""

from collections.abc import Iterable, Sequence

from sbjax.text import StreamDecoder, Tokenizer


def texts(tokenizer: Tokenizer | None, prompt: Sequence[int], tokens: Sequence[int]) -> tuple[str, list[str]]:
    """The prompt's text, and that of every new token where it stands.

    Args:
      tokenizer: without one a token's text is its number.
      prompt: token ids.
      tokens: the new ones.

    Returns:
      The text of the prompt, and one text a new token; joined they are the new text, special tokens
      included. A token that only begins a character has an empty one.
    """
    if tokenizer is None:
        return _numbers(prompt), [_numbers([token]) for token in tokens]
    shown = tokenizer.decode(prompt, skip_special_tokens=False)
    if tokenizer.not_growing() is not None:
        return shown, [tokenizer.decode([token], skip_special_tokens=False) for token in tokens]
    decoder = StreamDecoder(tokenizer, skip_special_tokens=False)
    found = [decoder.push([token]) for token in tokens]
    return shown, [*found[:-1], found[-1] + decoder.finish()] if found else []


def pieces(tokenizer: Tokenizer | None, tokens: Iterable[int]) -> dict[int, str]:
    """The text of every token by itself: behind an "a", since some tokenizers drop a first space."""
    if tokenizer is None:
        return {token: _numbers([token]) for token in sorted(tokens)}
    before = tokenizer.encode("a", add_special_tokens=False)[-1:]
    cut = len(tokenizer.decode(before, skip_special_tokens=False))
    return {
        token: tokenizer.decode([*before, token], skip_special_tokens=False)[cut:] for token in sorted(tokens)
    }


def _numbers(tokens: Sequence[int]) -> str:
    return "".join(f"{token} " for token in tokens)
