"""Text to token ids and back, from the files of a checkpoint."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sbjax.text.chat import ChatTemplates
from sbjax.text.comparison import difference
from sbjax.text.json_backend import JsonBackend
from sbjax.text.sentencepiece_backend import SentencePieceBackend
from sbjax.text.special_tokens import SpecialTokens


class Tokenizer:
    """The tokenizer of one checkpoint: a vocabulary, its special tokens and its chat templates.

    Gives the ids and texts that transformers gives for the same folder, except that decoding never
    cleans up spaces (transformers does not either, for BPE vocabularies). Made by `from_folder`.

    Attributes:
      vocab_size: largest id plus 1, added tokens included. Not the width of an embedding, which may be
        padded; columns from here on stand for no text and have to be masked.
      bos_id: id of the token that starts a text, None if there is none.
      eos_ids: ids of the tokens that end a text: the declared eos token, or none.
      special_ids: ids that `decode` leaves out when special tokens are skipped.
    """

    def __init__(self, backend: JsonBackend | SentencePieceBackend, chat: ChatTemplates):
        """Joins a vocabulary with chat templates; `from_folder` finds both.

        Args:
          backend: the vocabulary.
          chat: the chat templates.
        """
        self._backend = backend
        self._chat = chat
        self.vocab_size = max(backend.vocabulary) + 1
        self.special_ids = backend.special_ids
        self.bos_id = self._named_id("bos_token")
        eos = self._named_id("eos_token")
        self.eos_ids = () if eos is None else (eos,)

    @classmethod
    def from_folder(cls, folder: str | Path) -> "Tokenizer":
        """Loads the tokenizer of a checkpoint folder.

        Args:
          folder: holds tokenizer.json or tokenizer.model (the first is taken if both are there), and
            where they exist tokenizer_config.json, special_tokens_map.json, added_tokens.json and
            chat_template.jinja.

        Raises:
          FileNotFoundError: there is no such folder, or no vocabulary in it.
          ValueError: a file is damaged.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} is not a folder")
        special = SpecialTokens.from_folder(folder)
        if (folder / "tokenizer.json").is_file():
            backend = JsonBackend(folder / "tokenizer.json", special)
        elif (folder / "tokenizer.model").is_file():
            backend = SentencePieceBackend(folder / "tokenizer.model", special)
        else:
            raise FileNotFoundError(
                f"no tokenizer in {folder}: it needs a tokenizer.json or a tokenizer.model. Other kinds "
                "(vocab.json with merges.txt, tekken.json) have to be converted: load them with transformers "
                "and save_pretrained them into the folder"
            )
        return cls(backend, ChatTemplates.from_folder(folder, special.config))

    def _named_id(self, role: str) -> int | None:
        token = self._backend.special.named.get(role)
        return None if token is None else self._backend.token_id(token.content)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Turns text into token ids. Special tokens written out in the text become their ids.

        Args:
          text: the text.
          add_special_tokens: whether to add what the checkpoint puts around every text, e.g. a bos token.

        Returns:
          The ids; may be empty.

        Raises:
          TypeError: `text` is not a string.
          ValueError: the text holds half of a surrogate pair, which no UTF-8 text can.
        """
        if not isinstance(text, str):
            raise TypeError(f"text has to be a str, not {type(text).__name__}")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(f"no valid Unicode at character {error.start}: {error.reason}") from error
        return self._backend.encode(text, add_special_tokens)

    def decode(self, ids: Sequence[int] | np.ndarray, skip_special_tokens: bool = True) -> str:
        """Turns token ids into text.

        Args:
          ids: ids in a sequence or a 1-d array, each in [0, vocab_size). Ids without a token give no text.
          skip_special_tokens: whether to leave special tokens out.

        Returns:
          The text, with U+FFFD for bytes that are not UTF-8.

        Raises:
          ValueError: an id is outside the vocabulary.
        """
        return self._backend.decode(self.check_ids(ids), skip_special_tokens)

    def check_ids(self, ids: Sequence[int] | np.ndarray) -> list[int]:
        """Returns ids as a list of ints.

        Args:
          ids: ids in a sequence or a 1-d array.

        Raises:
          TypeError: something in it is not a whole number.
          ValueError: an id is outside [0, vocab_size).
        """
        array = np.asarray(ids)
        if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
            raise TypeError(f"token ids have to be a flat sequence of ints, not {array.dtype} {array.shape}")
        wrong = array[(array < 0) | (array >= self.vocab_size)]
        if wrong.size:
            raise ValueError(
                f"token id {wrong[0]} is outside the vocabulary, it ends at {self.vocab_size - 1}"
            )
        return array.tolist()

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> list[int]:
        """Turns a conversation into token ids by the checkpoint's chat template.

        The template writes the special tokens itself, so none are added around the result.

        Args:
          messages: the conversation, see `ChatTemplates.render`.
          add_generation_prompt: whether to open the assistant's turn.
          tools: JSON schemas of the functions that the model may call.
          **variables: further variables of the template, e.g. `enable_thinking`; `template` picks one of
            several named templates.

        Raises:
          TypeError: a message is not a dict, or holds what JSON cannot.
          ValueError: there is no template, it refuses the messages, or it does not use a given variable.
        """
        named = {role: token.content for role, token in self._backend.special.named.items()}
        text = self._chat.render(
            messages, named, add_generation_prompt=add_generation_prompt, tools=tools, **variables
        )
        return self.encode(text, add_special_tokens=False)

    @property
    def has_chat_template(self) -> bool:
        """Whether `chat` can be used."""
        return bool(self._chat.sources)

    @property
    def vocabulary(self) -> dict[int, str]:
        """The token of every id, added tokens included. Not to be changed."""
        return self._backend.vocabulary

    @property
    def kind(self) -> str:
        """The kind of file that the vocabulary comes from: its name."""
        return self._backend.kind

    @property
    def digest(self) -> str:
        """Equal for equal vocabulary files and settings; added tokens apart."""
        return self._backend.digest

    @functools.cached_property
    def parts(self) -> dict[str, str]:
        """What decides how text is cut into tokens, by name, in a form that can only be compared."""
        return self._backend.parts()

    def is_byte(self, index: int) -> bool:
        """Whether an id stands for a single byte whose text depends on the ids beside it."""
        return index in self.vocabulary and self._backend.is_byte(index)

    def has_text(self, index: int, skip_special_tokens: bool) -> bool:
        """Whether an id can contribute text: it has a token, and that is not skipped."""
        return index in self.vocabulary and not (skip_special_tokens and index in self.special_ids)

    def not_growing(self) -> str | None:
        """The name of a decoder that changes text it already gave, None if text only grows at its end."""
        return self._backend.not_growing()

    def same_as(self, other: "Tokenizer") -> bool:
        """Whether two tokenizers are the same, see `comparison.difference`."""
        return difference(self, other) is None

    def require_same(self, other: "Tokenizer") -> None:
        """Refuses a draft model whose tokenizer differs from this one, the target's.

        Args:
          other: the draft's tokenizer.

        Raises:
          ValueError: they differ; says how.
        """
        if (found := difference(self, other)) is not None:
            raise ValueError(
                f"target and draft need the same tokenizer, but {found}. Take a draft of the same model "
                "family, or one that was trained on the target's tokenizer"
            )
