"""The Kimi vocabulary: text <-> token ids, checked when it is loaded.

Layout: the ranks of the rank file, then 256 slots for special tokens; a slot without a name holds
`<|reserved_token_N|>`, N being its id. The split pattern and the chunking are those of the official
tokenizer class (MoonshotAI/Kimi-Vendor-Verifier, beam/tokenizer). tiktoken encodes; no code that came
with a model is executed.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tiktoken
from numpy.typing import NDArray

from kimi_helpers.rank_files import (
    RANK_FILE,
    TABLE_FILE,
    VocabularyError,
    digest,
    hub_folder,
    kimi_ranks,
    packaged_rank_file,
    parse_ranks,
)
from kimi_helpers.tokenizer_json import JSON_FILE, JsonEncoding, read_json
from kimi_helpers.workspace import DATA

SLOTS = 256
SLICE_CHARS = 400_000
RUN_CHARS = 25_000
MATCHABLE_BLANKS = 900_000

_NOT_HAN_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_NOT_HAN_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
KIMI_PATTERN = "|".join(
    (
        r"[\p{Han}]+",
        rf"[^\r\n\p{{L}}\p{{N}}]?{_NOT_HAN_UPPER}*{_NOT_HAN_LOWER}+{_CONTRACTION}",
        rf"[^\r\n\p{{L}}\p{{N}}]?{_NOT_HAN_UPPER}+{_NOT_HAN_LOWER}*{_CONTRACTION}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)

_RUN = re.compile(r"\s+|\S+")
_ENDLESS_BLANKS = re.compile(rf"\s{{{MATCHABLE_BLANKS}}}")


class UnknownSpecialToken(VocabularyError):
    """A special token that a vocabulary's table does not name."""


@dataclass(frozen=True)
class SpecialToken:
    """A named special token.

    Attributes:
        text: its spelling, e.g. `<|im_end|>`.
        id: its token id.
        special: what `skip_special_tokens` removes: true for turn tokens, false for think and tool tokens.
    """

    text: str
    id: int
    special: bool


def chunk_borders(text: str) -> list[int]:
    """Character offsets at which the official class cuts a text before it encodes the pieces.

    It cuts every 400,000 characters, and inside such a slice every 25,000 characters of one run of blanks or
    of non-blanks. A cut stops merges and can break the spelling of a special token, so it changes ids.
    """
    borders = []
    for start in range(0, len(text), SLICE_CHARS):
        if start:
            borders.append(start)
        part = text[start : start + SLICE_CHARS]
        if len(part) > RUN_CHARS:
            for run in _RUN.finditer(part):
                borders += range(start + run.start() + RUN_CHARS, start + run.end(), RUN_CHARS)
    return borders


def pieces(text: str, borders: Sequence[int]) -> Iterator[str]:
    """The parts of `text` between the cuts, which stand in ascending order."""
    for start, end in zip((0, *borders), (*borders, len(text)), strict=True):
        yield text[start:end]


def has_endless_blanks(text: str) -> bool:
    """Whether a run of blanks is so long that tiktoken's pattern matcher runs out of stack (at a million)."""
    return len(text) >= MATCHABLE_BLANKS and _ENDLESS_BLANKS.search(text) is not None


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Encode and decode under one rank file and one special table.

    Attributes:
        source: where it came from, for people.
        ranks: number of ordinary tokens; for Kimi their ids are 0 to `ranks - 1`.
        named: the named special tokens by their text.
        sha256: hex digest of the rank file.
        encoding: the tiktoken encoding with all 256 special slots, or what encodes like one.
        special_ids: the ids of all special slots, named and reserved.
    """

    source: str
    ranks: int
    named: Mapping[str, SpecialToken]
    sha256: str
    encoding: tiktoken.Encoding | JsonEncoding
    special_ids: frozenset[int]

    @property
    def is_kimi(self) -> bool:
        """Whether the rank file is the real one of the Kimi K2 family."""
        return self.sha256 == kimi_ranks().sha256

    @property
    def pattern(self) -> str:
        """The split pattern: merges never cross a border that it sets.

        Raises:
            VocabularyError: the vocabulary comes from a tokenizer.json, which has steps instead of one pattern.
        """
        if not isinstance(self.encoding, tiktoken.Encoding):
            raise VocabularyError(f"{self.source} has no split pattern: give a folder with tiktoken.model.")
        return self.encoding._pat_str

    @property
    def size(self) -> int:
        """Number of ids: ranks and special slots."""
        return self.ranks + len(self.special_ids)

    @property
    def ordinary_ids(self) -> list[int]:
        """The ids of the ordinary tokens; for Kimi 0 to `ranks - 1`."""
        return [id for id in range(self.size) if id not in self.special_ids]

    @cached_property
    def spelling(self) -> re.Pattern[str]:
        """Matches the spelling of a named special token."""
        return re.compile("|".join(map(re.escape, sorted(self.named, key=len, reverse=True))))

    def special_id(self, text: str) -> int:
        """The id of a named special token.

        Raises:
            UnknownSpecialToken: this table has no such token; the message names the table.
        """
        try:
            return self.named[text].id
        except KeyError:
            raise UnknownSpecialToken(f"{self.source} names no special token {text!r}") from None

    def encode(self, text: str, specials: bool = False) -> list[int]:
        """Token ids of `text` as the official class gives them, its chunking included.

        Args:
            text: any text; a lone surrogate is encoded as U+FFFD, as tiktoken does.
            specials: whether the spelling of a special token gives that token (else it is ordinary text).
        """
        borders = chunk_borders(text)
        if not borders:
            return self.encode_unchunked(text, specials)
        return [id for piece in pieces(text, borders) for id in self.encode_unchunked(piece, specials)]

    def encode_unchunked(self, text: str, specials: bool = False) -> list[int]:
        """Token ids of `text` encoded as one piece, which the official class does not do for long runs.

        Raises:
            ValueError: a run of blanks is so long that tiktoken's pattern matcher runs out of stack (at a million).
        """
        if has_endless_blanks(text):
            raise ValueError(
                f"a run of {MATCHABLE_BLANKS:,} blanks or more is too long for one piece; use encode, which cuts."
            )
        if specials:
            return self.encoding.encode(text, allowed_special="all")
        return self.encoding.encode_ordinary(text)

    def encode_batch(self, texts: Sequence[str], specials: bool = False) -> list[list[int]]:
        """`encode` for each text."""
        return [self.encode(text, specials) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; bytes that are not UTF-8 become U+FFFD.

        Raises:
            ValueError: an id is outside the vocabulary.
        """
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def decode_bytes(self, ids: Sequence[int]) -> bytes:
        """The bytes of `ids`, exact where `decode` is not.

        Raises:
            ValueError: an id is outside the vocabulary.
        """
        wrong = next((id for id in ids if not 0 <= id < self.size), None)
        if wrong is not None:
            raise ValueError(f"token id {wrong} is outside the vocabulary (0 to {self.size - 1})")
        return self.encoding.decode_bytes(ids)

    def token_bytes(self, id: int) -> bytes:
        """The bytes of one token; a special token's are its spelling."""
        return self.decode_bytes([id])

    @cached_property
    def token_lengths(self) -> NDArray[np.int64]:
        """How many bytes each token has, shape [size]."""
        return np.array([len(self.token_bytes(id)) for id in range(self.size)], np.int64)

    def id_of_bytes(self, data: bytes) -> int | None:
        """The one token with these bytes, or None. Bytes and ids are one to one."""
        try:
            return self.encoding.encode_single_token(data)
        except KeyError:
            return None


def reference_ids(vocabulary: Vocabulary, text: str) -> list[int]:
    """The ids of a text by tiktoken, as one piece where tiktoken can match it so; else with the official cuts."""
    return vocabulary.encode(text) if has_endless_blanks(text) else vocabulary.encode_unchunked(text)


def reserved_text(id: int) -> str:
    """The spelling of a special slot without a name."""
    return f"<|reserved_token_{id}|>"


def build_vocabulary(
    rank_file: bytes, table: Sequence[SpecialToken], source: str, pattern: str = KIMI_PATTERN
) -> Vocabulary:
    """A checked vocabulary from the bytes of a rank file and its named special tokens.

    Raises:
        VocabularyError: the rank file, the table or the pattern is wrong; the message names the fault.
    """
    ranks = parse_ranks(rank_file, source)
    _check_table(table, len(ranks), source)
    by_id = {token.id: token.text for token in table}
    slots = {by_id.get(id, reserved_text(id)): id for id in range(len(ranks), len(ranks) + SLOTS)}
    encoding = tiktoken.Encoding(source, pat_str=pattern, mergeable_ranks=ranks, special_tokens=slots)
    named = {token.text: token for token in table}
    vocabulary = Vocabulary(source, len(ranks), named, digest(rank_file), encoding, frozenset(slots.values()))
    _check_slots(vocabulary, slots, ranks)
    if vocabulary.is_kimi:
        _check_is_kimi(vocabulary)
    return vocabulary


def _check_table(table: Sequence[SpecialToken], ranks: int, source: str) -> None:
    outside = next((token for token in table if not ranks <= token.id < ranks + SLOTS), None)
    if outside:
        raise VocabularyError(
            f"{source}: {outside.text} has id {outside.id}, outside the {SLOTS} special slots"
            f" {ranks} to {ranks + SLOTS - 1}; the table belongs to another rank file."
        )
    if not all(token.text for token in table):
        raise VocabularyError(f"{source}: a special token has no text; repair {TABLE_FILE}.")
    if len({token.text for token in table}) < len(table) or len({token.id for token in table}) < len(table):
        raise VocabularyError(f"{source}: two special tokens share a text or an id; repair {TABLE_FILE}.")


def _check_slots(vocabulary: Vocabulary, slots: Mapping[str, int], ranks: Mapping[bytes, int]) -> None:
    for text, id in slots.items():
        if text.encode() in ranks:
            raise VocabularyError(f"{vocabulary.source}: {text} is an ordinary token too; repair {TABLE_FILE}.")
        if vocabulary.encode(text, specials=True) != [id] or vocabulary.decode([id]) != text:
            raise VocabularyError(
                f"{vocabulary.source}: {text} does not encode to its own id {id} and back; repair {TABLE_FILE}."
            )


def _check_is_kimi(vocabulary: Vocabulary) -> None:
    right = {token.text: token.id for format in special_tables() for token in special_table(format)}
    for token in vocabulary.named.values():
        if token.id != right.get(token.text, token.id):
            raise VocabularyError(
                f"{vocabulary.source}: {token.text} has id {token.id}, but it is {right[token.text]} in Kimi's"
                " vocabulary: the special tokens were packed without their gaps or renumbered"
                f" (huggingface/transformers#45356); take {TABLE_FILE} from the model's own repository."
            )
    for text, ids in kimi_ranks().sentinels.items():
        if (found := vocabulary.encode(text)) != ids:
            raise VocabularyError(
                f"{vocabulary.source}: {text!r} encodes to {found}, not {ids}: the split pattern is not Kimi's."
            )


def special_tables() -> list[str]:
    """The formats whose special table the workspace keeps."""
    return sorted(path.stem for path in (DATA / "special_tokens").glob("*.json"))


@cache
def special_table(format: str) -> tuple[SpecialToken, ...]:
    """The named special tokens of a format, from `data/special_tokens/`.

    Raises:
        VocabularyError: no table of that name.
    """
    path = DATA / "special_tokens" / f"{format}.json"
    if not path.is_file():
        raise VocabularyError(f"no special table {format!r}; the tables are {', '.join(special_tables())}.")
    rows = json.loads(path.read_text("utf-8"))["tokens"]
    return tuple(SpecialToken(row["text"], row["id"], row["special"]) for row in rows)


def read_table(data: bytes, where: str) -> list[SpecialToken]:
    """The named special tokens of a `tokenizer_config.json`.

    Raises:
        VocabularyError: no `added_tokens_decoder` that maps ids to tokens.
    """
    try:
        decoder: Mapping[str, Any] = json.loads(data)["added_tokens_decoder"]
        tokens = [SpecialToken(row["content"], int(id), bool(row["special"])) for id, row in decoder.items()]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise VocabularyError(
            f"{where}: no added_tokens_decoder that maps ids to tokens; take {TABLE_FILE} from the model's repository."
        ) from None
    reserved = re.compile(r"<\|reserved_token_\d+\|>")
    return [token for token in tokens if not reserved.fullmatch(token.text)]


@cache
def _packaged_vocabulary(format: str) -> Vocabulary:
    return build_vocabulary(packaged_rank_file(), special_table(format), f"{format} (packaged ranks)")


def _find_folder(source: str) -> Path:
    """The folder a source names: a path, or a hub id that `vocabulary download` has fetched."""
    if Path(source).is_dir():
        return Path(source)
    if re.fullmatch(r"[\w.-]+/[\w.-]+", source):
        commits = sorted(hub_folder(source, "x").parent.glob("[0-9a-f]*"))
        if len(commits) == 1:
            return commits[0]
        if commits:
            raise VocabularyError(
                f"{source} was downloaded at {len(commits)} commits; name one of the folders in {commits[0].parent}."
            )
        raise VocabularyError(
            f"{source} is neither a folder nor downloaded; run `python -m kimi_helpers vocabulary download {source}`."
        )
    raise VocabularyError(
        f"{source}: no such folder; give one that holds {RANK_FILE} and {TABLE_FILE}, a hub id, or nothing."
    )


def _json_vocabulary(data: bytes, source: str) -> Vocabulary:
    encoding, specials = read_json(data, source)
    named = {text: SpecialToken(text, id, special) for text, (id, special) in specials.items()}
    ids = frozenset(token.id for token in named.values())
    return Vocabulary(source, encoding.count - len(ids), named, digest(data), encoding, ids)


def load_vocabulary(source: str | Path | None = None, format: str = "kimi-k2.5") -> Vocabulary:
    """Load and check a vocabulary.

    Args:
        source: a folder that holds `tiktoken.model` and `tokenizer_config.json`, or the `tokenizer.json` of a
            byte-level model (SmolLM2); a hub id fetched before by `vocabulary download`; or None: Kimi's real ranks
            from the installed package, offline.
        format: whose special table to use; only where `source` is None.

    Raises:
        VocabularyError: nothing there, or it fails a check; the message says what to do.
    """
    if source is None:
        return _packaged_vocabulary(format)
    folder = _find_folder(str(source))
    if not (folder / RANK_FILE).exists() and (folder / JSON_FILE).is_file():
        return _json_vocabulary((folder / JSON_FILE).read_bytes(), folder.name)
    missing = [name for name in (RANK_FILE, TABLE_FILE) if not (folder / name).is_file()]
    if missing:
        raise VocabularyError(f"{folder}: {' and '.join(missing)} is missing; a vocabulary needs both files.")
    table = read_table((folder / TABLE_FILE).read_bytes(), str(folder / TABLE_FILE))
    return build_vocabulary((folder / RANK_FILE).read_bytes(), table, folder.name)
