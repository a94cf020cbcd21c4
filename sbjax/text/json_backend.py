"""Vocabularies in tokenizer.json, through the `tokenizers` library."""

import hashlib
import json
from pathlib import Path

import tokenizers

from sbjax.text.special_tokens import SpecialTokens

# Decoders whose text only grows at its end when ids are appended. WordPiece and CTC also change what they
# already gave.
_GROWING = {"ByteLevel", "ByteFallback", "Metaspace", "Replace", "Fuse", "Strip"}


class JsonBackend:
    """A tokenizer.json and the tokens that tokenizer_config.json adds to it.

    Attributes:
      special: what the files beside it declare.
      vocabulary: the string of every id, added tokens included.
      special_ids: ids that `decode` leaves out when special tokens are skipped.
      kind: the kind of vocabulary, for comparisons.
      digest: equal for equal files and settings.
    """

    kind = "tokenizer.json"

    def __init__(self, path: Path, special: SpecialTokens):
        """Loads the file.

        Args:
          path: a tokenizer.json.
          special: what the files beside it declare.

        Raises:
          ValueError: the file is damaged, or disagrees with tokenizer_config.json about an id.
        """
        content = path.read_bytes()
        self.digest = hashlib.sha256(content).hexdigest()
        try:
            self._tokenizer = tokenizers.Tokenizer.from_buffer(content)
        except Exception as error:  # the library raises plain Exception for every fault in the file
            raise ValueError(f"{path} is not a readable tokenizer (cut short?): {error}") from error
        # Left in the file by training runs; a prompt is neither cut nor padded here.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.special = special
        self._add(special, path)
        self.vocabulary = {index: token for token, index in self._tokenizer.get_vocab().items()}
        added = self._tokenizer.get_added_tokens_decoder()
        self.vocabulary.update({index: token.content for index, token in added.items()})
        self.special_ids = frozenset(index for index, token in added.items() if token.special)
        decoder = self._tokenizer.decoder
        self._decoders = [] if decoder is None else _flatten(json.loads(decoder.__getstate__()))
        self._has_bytes = any(step["type"] == "ByteFallback" for step in self._decoders)

    def _add(self, special: SpecialTokens, path: Path) -> None:
        """Adds what the file lacks, in transformers' order: tokens with ids, named ones, extra ones."""
        present = self._tokenizer.get_added_tokens_decoder().values()
        unchanged = {repr(token) for token in present}
        tokens = [token for token in special.added.values() if repr(token) not in unchanged]
        known = {token.content for token in (*present, *tokens)}
        self._tokenizer.add_tokens([*tokens, *special.missing_from(known)])
        for index, token in special.added.items():
            if self._tokenizer.token_to_id(token.content) != index:
                raise ValueError(
                    f"tokenizer_config.json gives the token {token.content!r} the id {index}, {path} the id "
                    f"{self._tokenizer.token_to_id(token.content)}; the files are not from one checkpoint"
                )

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        """See `Tokenizer.encode`."""
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        """See `Tokenizer.decode`."""
        return self._tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)

    def token_id(self, token: str) -> int | None:
        """The id of a token string, None if the vocabulary has no such token."""
        return self._tokenizer.token_to_id(token)

    def is_byte(self, index: int) -> bool:
        """Whether an id stands for one byte of a character, so that its text depends on its neighbours."""
        token = self.vocabulary[index]
        return self._has_bytes and len(token) == 6 and token.startswith("<0x") and token.endswith(">")

    def not_growing(self) -> str | None:
        """The name of a decoder that changes text it already gave, None if there is none."""
        fused = False
        for step in self._decoders:
            name = step["type"]
            # On the whole text a replacement or a cut at the end can reach back.
            if name not in _GROWING or (fused and name == "Replace") or (name == "Strip" and step["stop"]):
                return name
            fused |= name == "Fuse"
        return None

    def parts(self) -> dict[str, str]:
        """What decides how text becomes ids, as comparable strings.

        Left out: truncation and padding (switched off), the post-processor (only adds special tokens around
        a prompt, which is encoded once, for both models) and flags of added tokens.
        """
        whole = json.loads(self._tokenizer.to_str())
        model = whole["model"]
        merges = model.pop("merges", None)
        vocab = model.pop("vocab", None)
        parts = {"normalizer": whole["normalizer"], "pre_tokenizer": whole["pre_tokenizer"]}
        parts |= {"decoder": whole["decoder"], "merges": merges, "model options": model}
        if isinstance(vocab, list):  # Unigram; the pieces themselves are compared elsewhere
            parts["scores"] = [score for _, score in vocab]
        return {name: json.dumps(value, sort_keys=True) for name, value in parts.items()}


def _flatten(decoder: dict) -> list[dict]:
    """The steps of a decoder as tokenizer.json writes it, sequences opened."""
    if decoder["type"] == "Sequence":
        return [step for inner in decoder["decoders"] for step in _flatten(inner)]
    return [decoder]
