"""Native samples: token ids that an engine wrote, against the ids that our vocabulary gives their text.

Rows are JSON lines or Parquet as vLLM (`token_ids`) and SGLang (`output_ids`, `meta_info`) write them, `text` and
`finish_reason` where given. They are the one place where the true ids are known, so they say two things of a
vocabulary: how often encode(decode(ids)) gives the ids back, and which id ends a turn.
"""

import codecs
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from kimi_helpers.dataset_messages import decoded
from kimi_helpers.dataset_rows import RowError, read_rows
from kimi_helpers.formats import END_TURN
from kimi_helpers.vocabulary import Vocabulary

ID_COLUMNS = ("token_ids", "output_ids", "output_token_ids", "completion_token_ids")
SUFFIXES = (".jsonl", ".parquet")
CUT = "length"


class EndOfTurnConflict(ValueError):
    """A row that was not cut ends in another id than the vocabulary's end of turn; the message says which and where."""


@dataclass(frozen=True)
class Difference:
    """A stretch of a row that does not come back: both sides spell the same bytes, where these are UTF-8.

    Attributes:
        start: index of the first native id of the stretch, from 0.
        native: the engine's ids.
        encoded: the ids of encode(decode(ids)) for the same stretch.
        kind: `not_utf8` (bytes that no text can hold), `special` (a special token on one side only) or `split`.
    """

    start: int
    native: tuple[int, ...]
    encoded: tuple[int, ...]
    kind: str


@dataclass(frozen=True)
class CheckedRow:
    """What is found of one row.

    Attributes:
        place: `line 7` or `row 7`, counted from 1.
        tokens: number of its ids; 0 where it is bad.
        differences: every stretch that does not come back, in order.
        end: `end_of_turn` or `cut`; None where it is bad.
        text: how its text compares with decode(ids): `whole`, `without_end` (of turn), `without_specials` (what
            `skip_special_tokens` leaves), `other`, or `none` where the row has none; None where it is bad.
        fault: what is wrong with a bad row, or None.
    """

    place: str
    tokens: int = 0
    differences: tuple[Difference, ...] = ()
    end: str | None = None
    text: str | None = None
    fault: str | None = None


def check_samples(path: Path, vocabulary: Vocabulary) -> Iterator[CheckedRow]:
    """Each row of a file against the vocabulary, one in memory at a time (of Parquet a few).

    A bad row is told and stops no other.

    Args:
        path: ends in one of `SUFFIXES`.

    Raises:
        EndOfTurnConflict: a row ends in another id than `<|im_end|>`, and no finish_reason says that it was cut.
        DatasetError: the file cannot be read on.
        UnknownSpecialToken: the vocabulary names no `<|im_end|>`.
    """
    end_of_turn = vocabulary.special_id(END_TURN)
    for place, row in read_rows(str(path)):
        try:
            ids = _ids(row, vocabulary.size)
            text = row.get("text")
            if not isinstance(text, str | None):
                raise RowError("text is not a text")
            is_cut = _finish_reason(row) == CUT
        except RowError as error:
            yield CheckedRow(place, fault=str(error))
            continue
        if ids[-1] != end_of_turn and not is_cut:
            raise EndOfTurnConflict(
                f"{path}, {place}: it ends in {ids[-1]} ({vocabulary.decode(ids[-1:])!r}), but a turn"
                f" ends in {end_of_turn} ({END_TURN!r}); repair the source, or give rows that were"
                f" cut finish_reason {CUT!r}."
            )
        end = "end_of_turn" if ids[-1] == end_of_turn else "cut"
        yield CheckedRow(place, len(ids), differences(ids, vocabulary), end, _text_kind(text, ids, vocabulary))


def differences(ids: Sequence[int], vocabulary: Vocabulary) -> tuple[Difference, ...]:
    """Every stretch of `ids` that encode(decode(ids)), specials recognised, gives otherwise.

    Raises:
        ValueError: an id is outside the vocabulary.
    """
    data = vocabulary.decode_bytes(ids)
    encoded = vocabulary.encode(data.decode("utf-8", "replace"), specials=True)
    return () if list(ids) == encoded else tuple(_stretches(ids, encoded, list(_faults(data)), vocabulary))


def _stretches(
    ids: Sequence[int], encoded: Sequence[int], faults: Sequence[tuple[int, int]], vocabulary: Vocabulary
) -> Iterator[Difference]:
    """What lies between the byte offsets of the text at which both have a border, where it differs."""
    places = {offset: place for place, offset in enumerate(_borders(encoded, vocabulary))}
    borders = _borders(ids, vocabulary)
    start, start_encoded, met = 0, 0, 0
    for place, (offset, past) in enumerate(_in_text(borders, faults)):
        if offset not in places:
            continue
        native, again = tuple(ids[start:place]), tuple(encoded[start_encoded : places[offset]])
        if native != again:
            is_special = not vocabulary.special_ids.isdisjoint(set(native) ^ set(again))
            kind = "not_utf8" if past > met else "special" if is_special else "split"
            yield Difference(start, native, again, kind)
        start, start_encoded, met = place, places[offset], past


def _borders(ids: Iterable[int], vocabulary: Vocabulary) -> list[int]:
    return list(accumulate((len(vocabulary.token_bytes(id)) for id in ids), initial=0))


def _faults(data: bytes) -> Iterator[tuple[int, int]]:
    """The byte ranges that are not UTF-8, each of which decodes to one U+FFFD."""
    view, at = memoryview(data), 0
    while at < len(data):
        try:
            codecs.utf_8_decode(view[at:], "strict", True)
            return
        except UnicodeDecodeError as error:
            yield at + error.start, at + error.end
            at += error.end


def _in_text(borders: Iterable[int], faults: Sequence[tuple[int, int]]) -> Iterator[tuple[int | None, int]]:
    """(offset, faults passed) of each border, in the text that has U+FFFD for each fault; None inside a fault."""
    shift, passed = 0, 0
    for border in borders:
        while passed < len(faults) and faults[passed][1] <= border:
            shift += len("\ufffd".encode()) - (faults[passed][1] - faults[passed][0])
            passed += 1
        is_inside = passed < len(faults) and faults[passed][0] < border
        yield None if is_inside else border + shift, passed


def summary(rows: Iterable[CheckedRow]) -> dict[str, Counter[str]]:
    """Counts by kind: `rows` (same, different, bad), `tokens` (all, different), `differences`, `ends`, `texts`."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in ("rows", "tokens", "differences", "ends", "texts")}
    for row in rows:
        if row.fault is not None:
            counts["rows"]["bad"] += 1
            continue
        counts["rows"]["different" if row.differences else "same"] += 1
        counts["tokens"]["all"] += row.tokens
        counts["tokens"]["different"] += sum(len(difference.native) for difference in row.differences)
        counts["differences"].update(difference.kind for difference in row.differences)
        counts["ends"][str(row.end)] += 1
        counts["texts"][str(row.text)] += 1
    return counts


def _ids(row: Any, size: int) -> list[int]:
    if isinstance(row, RowError):
        raise row
    if not isinstance(row, Mapping):
        raise RowError("it is not an object")
    column = next((name for name in ID_COLUMNS if row.get(name) is not None), None)
    if column is None:
        raise RowError(f"it has no token ids; they are looked for in {', '.join(ID_COLUMNS)}")
    ids = decoded(row[column], column)
    if not isinstance(ids, list) or not ids:
        raise RowError(f"{column} is no list, or an empty one")
    wrong = next((at for at, id in enumerate(ids) if type(id) is not int or not 0 <= id < size), None)
    if wrong is not None:
        raise RowError(f"{column} holds {str(ids[wrong])[:40]} at {wrong}; the vocabulary's ids are 0 to {size - 1}")
    return ids


def _finish_reason(row: Mapping[str, Any]) -> Any:
    """vLLM's beside the ids; SGLang's in `meta_info`, as an object with a `type`."""
    meta = row.get("meta_info")
    stated = row.get("finish_reason")
    if stated is None and isinstance(meta, Mapping):
        stated = meta.get("finish_reason")
    return stated.get("type") if isinstance(stated, Mapping) else stated


def _text_kind(text: str | None, ids: Sequence[int], vocabulary: Vocabulary) -> str:
    if text is None:
        return "none"
    if text == vocabulary.decode(ids):
        return "whole"
    if ids[-1] == vocabulary.special_id(END_TURN) and text == vocabulary.decode(ids[:-1]):
        return "without_end"
    hidden = {token.id for token in vocabulary.named.values() if token.special}
    return "without_specials" if text == vocabulary.decode([id for id in ids if id not in hidden]) else "other"
