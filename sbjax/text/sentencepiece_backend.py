"""Vocabularies in tokenizer.model (Llama 1 and 2, Vicuna, Mistral, Gemma), through `sentencepiece`."""

import dataclasses
import hashlib
import re
from pathlib import Path

import sentencepiece
from tokenizers import AddedToken

from sbjax.text.special_tokens import SpecialTokens

SPACE = "\u2581"
_NAMED = {"bos_token": "bos_id", "eos_token": "eos_id", "unk_token": "unk_id", "pad_token": "pad_id"}
# `normalizer_spec { add_dummy_prefix: false }` as protobuf bytes. Messages in a row are merged field by
# field and the last value counts, so appending this changes that one setting.
_NO_PREFIX = b"\x1a\x02\x18\x00"


class SentencePieceBackend:
    """A tokenizer.model and the added tokens beside it.

    Text is split at added and control tokens; `sentencepiece` encodes what lies between. With `legacy`
    (Llama 1, Mistral 0.1) every such piece of text gets the model's leading space, otherwise only the
    start of the whole text does. Decoding is that of the `tokenizers` library for the same checkpoints:
    one leading space is dropped, and a run of byte tokens that is not UTF-8 gives one replacement
    character a byte.

    Attributes:
      special: what the files declare, completed by the model's own bos, eos, unk and pad.
      vocabulary: the string of every id, added tokens included.
      special_ids: ids that `decode` leaves out when special tokens are skipped.
      kind: the kind of vocabulary, for comparisons.
      digest: equal for equal files and settings.
    """

    kind = "tokenizer.model"

    def __init__(self, path: Path, special: SpecialTokens):
        """Loads the file.

        Args:
          path: a tokenizer.model.
          special: what the files beside it declare. Where they are silent: a bos token and no eos token
            are added around a text, and `legacy` is off.

        Raises:
          ValueError: the file is damaged, or an added token asks for something unsupported.
        """
        proto = path.read_bytes()
        try:
            self._model = sentencepiece.SentencePieceProcessor(model_proto=proto)
        except Exception as error:  # the class differs between versions of the library
            raise ValueError(f"{path} is not a readable SentencePiece model: {error}") from error
        self._prefix = "".join(self._model.encode("a", out_type=str)).startswith(SPACE)
        self._legacy = bool(special.config.get("legacy", False))
        self._inner = self._model
        if not self._legacy:
            self._inner = sentencepiece.SentencePieceProcessor(model_proto=proto + _NO_PREFIX)
        self.digest = hashlib.sha256(proto + bytes([self._legacy])).hexdigest()
        size = self._model.get_piece_size()
        self.vocabulary = {index: self._model.id_to_piece(index) for index in range(size)}
        self.special, self._added = self._collect(special)
        self.vocabulary.update({index: token.content for index, token in self._added.items()})
        self._ids = {token: index for index, token in self.vocabulary.items()}
        self.special_ids = frozenset(index for index, token in self._added.items() if token.special)
        longest_first = sorted((token.content for token in self._added.values()), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)))
        self._before = self._around(special.config.get("add_bos_token", True), "bos_token")
        self._after = self._around(special.config.get("add_eos_token", False), "eos_token")

    def _collect(self, special: SpecialTokens) -> tuple[SpecialTokens, dict[int, AddedToken]]:
        """Id to token: control pieces, then tokens with ids, then named and extra ones that have none yet."""
        size = self._model.get_piece_size()
        marked = [i for i in range(size) if self._model.is_control(i) or self._model.is_unknown(i)]
        added = {i: AddedToken(self.vocabulary[i], special=True, normalized=False) for i in marked}
        roles = {role: getattr(self._model, getter)() for role, getter in _NAMED.items()}
        defaults = {role: added[index] for role, index in roles.items() if index >= 0}
        special = dataclasses.replace(special, named=defaults | special.named)
        added.update(special.added)
        ids = {piece: index for index, piece in self.vocabulary.items()}
        for token in special.missing_from({token.content for token in added.values()}):
            added[ids.get(token.content, max([size, *(i + 1 for i in added)]))] = token
        for token in added.values():
            if token.single_word:
                raise ValueError(f"the added token {token.content!r} asks for single_word: not supported")
        return special, added

    def _around(self, wanted: bool, role: str) -> list[int]:
        if not wanted:
            return []
        if role not in self.special.named:
            raise ValueError(f"the {role} is to be added to every text, but tokenizer_config.json names none")
        return [self._ids[self.special.named[role].content]]

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        """See `Tokenizer.encode`."""
        ids, start = [], 0
        for match in self._pattern.finditer(text):
            index = self._ids[match.group()]
            token = self._added[index]
            plain = text[start : match.start()]
            ids += self._plain(plain.rstrip() if token.lstrip else plain, first=start == 0)
            ids.append(index)
            start = match.end()
            if token.rstrip:
                start = len(text) - len(text[start:].lstrip())
        ids += self._plain(text[start:], first=start == 0)
        return [*self._before, *ids, *self._after] if add_special_tokens else ids

    def _plain(self, text: str, first: bool) -> list[int]:
        return (self._model if first else self._inner).encode(text) if text else []

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        """See `Tokenizer.decode`."""
        texts, run = [], bytearray()
        for index in ids:
            if index not in self.vocabulary or (skip_special_tokens and index in self.special_ids):
                continue
            if self.is_byte(index):
                run.append(int(self.vocabulary[index][3:5], 16))
                continue
            texts += [_text_of(run), self.vocabulary[index].replace(SPACE, " ")]
            run.clear()
        text = "".join([*texts, _text_of(run)])
        return text[1:] if self._prefix and text.startswith(" ") else text

    def token_id(self, token: str) -> int | None:
        """The id of a token string, None if the vocabulary has no such token."""
        return self._ids.get(token)

    def is_byte(self, index: int) -> bool:
        """Whether an id stands for one byte of a character, so that its text depends on its neighbours."""
        return index < self._model.get_piece_size() and self._model.is_byte(index)

    def not_growing(self) -> str | None:
        """See `JsonBackend.not_growing`: this decoder only ever appends."""
        return None

    def parts(self) -> dict[str, str]:
        """What decides how text becomes ids, as comparable strings."""
        scores = [self._model.get_score(index) for index in range(self._model.get_piece_size())]
        digest = hashlib.sha256(repr(scores).encode()).hexdigest()
        return {"scores": digest, "leading space": f"{self._prefix}, legacy {self._legacy}"}


def _text_of(run: bytearray) -> str:
    """The text of a run of byte tokens."""
    try:
        return run.decode("utf-8")
    except UnicodeDecodeError:
        return "\ufffd" * len(run)
