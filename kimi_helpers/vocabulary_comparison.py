"""Two vocabularies, or two loadings of one, compared by bytes: which ids mean something else, which texts differ."""

import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from kimi_helpers.rank_files import RANK_FILE, TABLE_FILE
from kimi_helpers.token_spans import Span, common_spans
from kimi_helpers.vocabulary import Vocabulary


@dataclass(frozen=True, eq=False)
class Loading:
    """What a loaded tokenizer makes of ids and texts.

    Attributes:
        name: for people.
        tokens: the bytes of each id, shape [size]; None where it has no token.
        encode: text -> token ids, special tokens recognised.
    """

    name: str
    tokens: Sequence[bytes | None]
    encode: Callable[[str], list[int]]

    @cached_property
    def ids(self) -> dict[bytes, int]:
        """Bytes -> id."""
        return {data: id for id, data in enumerate(self.tokens) if data is not None}

    def spelled(self, ids: Sequence[int]) -> list[tuple[int, bytes]]:
        """Each id with its bytes."""
        return [(id, self.tokens[id] or b"") for id in ids]


def right_loading(vocabulary: Vocabulary, name: str = "") -> Loading:
    """The vocabulary as this workspace reads it."""
    tokens = [vocabulary.token_bytes(id) for id in range(vocabulary.size)]
    return Loading(name or vocabulary.source, tokens, lambda text: vocabulary.encode(text, specials=True))


def packed_loading(vocabulary: Vocabulary) -> Loading:
    """The vocabulary with its named special tokens packed behind the ranks without gaps.

    So transformers 5.4.0 loaded Kimi K2.5 (huggingface/transformers#45356).
    """
    named = sorted(vocabulary.named.values(), key=lambda token: token.id)
    packed = {token.id: vocabulary.ranks + place for place, token in enumerate(named)}
    tokens = [vocabulary.token_bytes(id) for id in (*range(vocabulary.ranks), *packed)]

    def encode(text: str) -> list[int]:
        return [packed.get(id, id) for id in vocabulary.encode(text, specials=True)]

    return Loading("special tokens packed without gaps", tokens, encode)


def transformers_loading(vocabulary: Vocabulary) -> Loading:
    """What transformers itself makes of the rank file and the special table, without the code of the model.

    It takes a split pattern of its own. The folder is written for it and holds no reference to code; nothing is
    executed that came with a model.
    """
    from transformers import AutoTokenizer, __version__  # noqa: PLC0415  (slow import, needed only here)

    with TemporaryDirectory() as folder:
        write_folder(vocabulary, Path(folder))
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    byte_of = {char: byte for byte, char in _byte_characters().items()}
    special = {id: token.text for token in vocabulary.named.values() for id in [token.id]}

    def token_bytes(id: int, text: str | None) -> bytes | None:
        if text is None:
            return None
        return text.encode() if id >= vocabulary.ranks or id in special else bytes(byte_of[char] for char in text)

    texts = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    tokens = [token_bytes(id, text) for id, text in enumerate(texts)]
    return Loading(f"transformers {__version__}", tokens, lambda text: tokenizer.encode(text, add_special_tokens=False))


def write_folder(vocabulary: Vocabulary, folder: Path) -> None:
    """Write the rank file and the special table of a vocabulary, as a model's repository has them."""
    lines = (b64encode(vocabulary.token_bytes(id)) + b" %d\n" % id for id in range(vocabulary.ranks))
    (folder / RANK_FILE).write_bytes(b"".join(lines))
    decoder = {
        str(token.id): {"content": token.text, "special": token.special, "normalized": False}
        | dict.fromkeys(("lstrip", "rstrip", "single_word"), False)
        for token in vocabulary.named.values()
    }
    table = {"added_tokens_decoder": decoder, "tokenizer_class": "TikTokenTokenizer"}
    (folder / TABLE_FILE).write_text(json.dumps(table), "utf-8")


def _byte_characters() -> dict[int, str]:
    """GPT-2's characters for bytes: printable Latin-1 stands for itself, the others follow from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + place) for place, byte in enumerate(others)}


def differing_ids(first: Loading, second: Loading) -> pd.DataFrame:
    """The ids that mean other bytes in the two, with the id that the second gives to the first's bytes.

    Ids past the end of one have None there.
    """
    size = max(len(first.tokens), len(second.tokens))
    both = [[*loading.tokens, *[None] * (size - len(loading.tokens))] for loading in (first, second)]
    rows = [
        (id, a, b, second.ids.get(a) if a is not None else None)
        for id, (a, b) in enumerate(zip(*both, strict=True))
        if a != b
    ]
    columns = ["id", "first", "second", "second_id_of_first"]
    return pd.DataFrame(rows, columns=columns, dtype=object).set_index("id")


@dataclass(frozen=True)
class Difference:
    """A text to which two loadings give other ids.

    Attributes:
        place: which of the texts.
        first: the ids of the first loading.
        second: the ids of the second.
        spans: the byte spans in which they differ, or none where the two do not spell the same bytes.
    """

    place: int
    first: list[int]
    second: list[int]
    spans: tuple[Span, ...]


def differing_texts(first: Loading, second: Loading, texts: Sequence[str]) -> list[Difference]:
    """The texts to which the two give other ids."""
    found = []
    for place, text in enumerate(texts):
        a, b = first.encode(text), second.encode(text)
        if a != b:
            found.append(Difference(place, a, b, _differing_spans(first, a, second, b)))
    return found


def _differing_spans(first: Loading, a: list[int], second: Loading, b: list[int]) -> tuple[Span, ...]:
    try:
        return tuple(span for span in common_spans(first.spelled(a), second.spelled(b)) if not span.is_equal)
    except ValueError:
        return ()
