"""What a training set is made of, read a chunk at a time: graded replies, training rows, and ids of an engine.

A chunk is a part of one file that can be read alone, so that any worker can take it. Which chunks there are depends
on the files, never on the workers.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from kimi_helpers.formats import FORMATS, format_of_model
from kimi_helpers.graded_tables import SCHEMA as GRADED_SCHEMA
from kimi_helpers.journal import Asked, find_asked
from kimi_helpers.reply_sources import ABOUT_SUFFIX
from kimi_helpers.token_lists import Flat, flat_rows, row_sums
from kimi_helpers.training import ROW_SCHEMA, SET_SCHEMA, Events, portable_source, rows_of_graded, rows_of_native

Kind = Literal["rows", "graded", "native"]

CHUNK_BYTES = 1 << 26  # of a file, uncompressed
_MARKS: dict[Kind, set[str]] = {
    "rows": {"row_id", "input_ids", "loss_mask"},
    "graded": {"token_ids", "prompt_ids", "grade"},
    "native": {"input_ids", "loss_mask"},
}
_IN_JOURNAL = re.compile(r"(.+)#([0-9a-f]{16})")


class TrainingInputError(ValueError):
    """A file that no training rows can be made of; the message names it, what is wrong and what to do."""


@dataclass(frozen=True)
class Source:
    """A file of rows.

    Attributes:
        kind: `rows`, of `ROW_SCHEMA`; `graded`, what reconstruction writes; `native`, ids of an engine.
        dataset: the name of rows whose journal names none; by default the file's.
    """

    path: Path
    kind: Kind
    dataset: str


@dataclass(frozen=True)
class Chunk:
    """A part of a source: row groups of Parquet, or bytes of JSON lines."""

    source: Source
    start: int
    stop: int


@dataclass(frozen=True)
class InputSettings:
    """What the reading of all chunks shares; plain values, so that it travels to other processes.

    Attributes:
        journals: paths by the file's name, for rows whose own path leads nowhere any more.
        tokenizer: as `load_vocabulary`'s `source`.
        format: the layout of native rows that name no model.
    """

    journals: Mapping[str, str] = field(default_factory=dict)
    tokenizer: str | None = None
    format: str = "kimi-k2.5"


def find_source(given: str) -> Source:
    """The file that `PATH` or `DATASET=PATH` names.

    Raises:
        TrainingInputError: it cannot be read, or holds none of the three kinds of rows.
    """
    name, mark, rest = given.partition("=")
    is_named = bool(mark) and not Path(given).exists()
    path = Path(rest if is_named else given)
    try:
        columns = _columns(path)
    except (OSError, ValueError) as error:
        raise TrainingInputError(
            f"{path} cannot be read ({error}): give what `reconstruct` wrote (.jsonl, .parquet), training rows, or ids"
            " of an engine."
        ) from None
    for kind, marks in _MARKS.items():
        if marks <= columns:
            return Source(path, kind, name if is_named else path.name.partition(".")[0])
    raise TrainingInputError(
        f"{path} has none of the columns of graded replies (token_ids, prompt_ids, grade) or of ids of an engine"
        " (input_ids, loss_mask): give what `reconstruct` wrote."
    )


def _columns(path: Path) -> set[str]:
    if path.suffix == ".parquet":
        return set(pq.read_schema(path).names)
    with path.open("rb") as file:
        first = next((line for line in file if line.strip()), b"{}")
    row = json.loads(first)
    return set(row) if isinstance(row, dict) else set()


def plan_chunks(source: Source, size: int = CHUNK_BYTES) -> list[Chunk]:
    """The chunks of a source, in its order, each of about `size` bytes; none of an empty file."""
    borders = _group_borders(source.path, size) if source.path.suffix == ".parquet" else _line_borders(source, size)
    return [Chunk(source, start, stop) for start, stop in pairwise(borders)]


def _group_borders(path: Path, size: int) -> list[int]:
    metadata = pq.read_metadata(path)
    borders, held = [0], 0
    for group in range(metadata.num_row_groups):
        held += metadata.row_group(group).total_byte_size
        if held >= size or group == metadata.num_row_groups - 1:
            borders.append(group + 1)
            held = 0
    return borders


def _line_borders(source: Source, size: int) -> list[int]:
    borders, end = [0], source.path.stat().st_size
    with source.path.open("rb") as file:
        while borders[-1] < end:
            file.seek(min(borders[-1] + size, end))
            file.readline()  # to the end of the line that the border would cut
            borders.append(file.tell())
    return borders


def chunk_bytes(chunk: Chunk) -> int:
    """How large a chunk is, uncompressed."""
    if chunk.source.path.suffix != ".parquet":
        return chunk.stop - chunk.start
    metadata = pq.read_metadata(chunk.source.path)
    return sum(metadata.row_group(group).total_byte_size for group in range(chunk.start, chunk.stop))


def file_digest(path: Path) -> str:
    """The sha256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def residual_of(path: Path) -> str:
    """What a file of graded replies says that counts cannot see (`graded_rows.describe_splits`); empty: nothing."""
    try:
        if path.suffix == ".parquet":
            about = (pq.read_schema(path).metadata or {}).get(b"kimi_helpers", b"{}")
        else:
            about = path.with_suffix(ABOUT_SUFFIX).read_bytes()
        told = json.loads(about)["residual"]
    except (OSError, ValueError, KeyError, TypeError):  # written by others, or by an earlier version
        return ""
    return str(told)


def read_chunk(chunk: Chunk, settings: InputSettings) -> pa.Table:
    """The training rows of a chunk, in its order: a table of `ROW_SCHEMA`.

    Raises:
        TrainingInputError: a row is damaged, or its journal is not where the row or the settings say.
        JournalError: a journal cannot be read.
    """
    source = chunk.source
    if source.kind == "rows":
        rows = _read(chunk, SET_SCHEMA)
        ids, mask = flat_rows(rows["input_ids"]), flat_rows(rows["loss_mask"])
        _check_masks(ids[1], mask, rows["prompt_length"].to_numpy(), source)
        return rows.append_column("fault", pa.nulls(len(rows), pa.string())).select(ROW_SCHEMA.names)
    if source.kind == "graded":
        graded = _read(chunk, GRADED_SCHEMA)
        return rows_of_graded(graded, _events(graded["source"].to_pylist(), source, settings), settings.tokenizer)
    return _native(chunk, settings)


def _read(chunk: Chunk, schema: pa.Schema) -> pa.Table:
    path = chunk.source.path
    try:
        if path.suffix == ".parquet":
            groups = list(range(chunk.start, chunk.stop))
            table = pq.ParquetFile(path, pre_buffer=False).read_row_groups(groups, columns=schema.names)
            return table.select(schema.names).cast(schema)
        return pa.Table.from_pylist(list(_lines(chunk)), schema)
    except (KeyError, TypeError, pa.ArrowException) as error:
        raise TrainingInputError(f"{path} has a row of another form ({error}): write it again.") from None


def _lines(chunk: Chunk) -> Iterator[dict[str, Any]]:
    path = chunk.source.path
    with path.open("rb") as file:
        file.seek(chunk.start)
        while file.tell() < chunk.stop:
            place, line = file.tell(), file.readline()
            if line.strip():
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise TrainingInputError(f"{path}, byte {place}: not JSON ({error}): repair the line.") from None
                if not isinstance(row, dict):
                    raise TrainingInputError(f"{path}, byte {place}: not an object: write a JSON object a line.")
                yield row


def _events(sources: Sequence[str], source: Source, settings: InputSettings) -> Events:
    """What the journals say of rows; of those that came from recorded bodies, what there is to say without one."""
    asked: list[Asked | None] = [None] * len(sources)
    for journal, places in _by_journal(sources).items():
        path = _find_journal(journal, source, settings)
        keys = [sources[place].rpartition("#")[2] for place in places]
        for place, key, found in zip(places, keys, find_asked(path, keys), strict=True):
            if found is None:
                raise TrainingInputError(f"{path} has no exchange {key}, which {source.path} names: give its journal.")
            asked[place] = found
    pairs = list(zip(asked, sources, strict=True))
    return Events(
        dataset=[each.dataset if each else source.dataset for each in asked],
        prompt_id=[each.prompt_id if each else None for each in asked],
        sample=[each.sample if each else None for each in asked],
        name=[each.key if each else portable_source(name) for each, name in pairs],
    )


def _by_journal(sources: Sequence[str]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for place, name in enumerate(sources):
        if match := _IN_JOURNAL.fullmatch(name):
            places.setdefault(match[1], []).append(place)
    return places


def _find_journal(stated: str, source: Source, settings: InputSettings) -> Path:
    name = Path(stated).name
    given = settings.journals.get(name)
    for path in (Path(given) if given else None, Path(stated), source.path.with_name(name)):
        if path and path.is_file():
            return path
    raise TrainingInputError(f"{source.path} was read from {stated}, which is not there: say where with --journal.")


def _native(chunk: Chunk, settings: InputSettings) -> pa.Table:
    """Rows of `input_ids` and `loss_mask`, with `id` and `metadata` as speculators' regeneration writes them."""
    source = chunk.source
    if source.path.suffix == ".parquet":
        groups = list(range(chunk.start, chunk.stop))
        table = pq.ParquetFile(source.path, pre_buffer=False).read_row_groups(groups)
        rows = table.to_pylist()
    else:
        rows = list(_lines(chunk))
    try:
        ids = flat_rows(pa.array([row["input_ids"] for row in rows], pa.list_(pa.int32())))
        mask = flat_rows(pa.array([row["loss_mask"] for row in rows], pa.list_(pa.int32())))
    except (KeyError, TypeError, pa.ArrowException) as error:
        raise TrainingInputError(f"{source.path} has a row without ids and mask ({error}): leave it out.") from None
    lengths = np.diff(ids[1]) - row_sums(mask[0], mask[1])
    _check_masks(ids[1], mask, lengths, source)
    told = [row["metadata"] if isinstance(row.get("metadata"), dict) else {} for row in rows]
    models = [row.get("model") or each.get("model") for row, each in zip(rows, told, strict=True)]
    finishes = [row.get("finish_reason") or each.get("finish_reason") for row, each in zip(rows, told, strict=True)]
    stated = {
        "model": pa.array(models, pa.string()),
        "format": pa.array([_format(model, settings) for model in models]),
        "provider": pa.array([row.get("provider") for row in rows], pa.string()),
        "finish_reason": pa.array(finishes, pa.string()),
        "source": pa.array([source.path.name] * len(rows), pa.string()),
    }
    events = Events(
        dataset=[source.dataset] * len(rows),
        prompt_id=[_text(row.get("primary_id") or row.get("prompt_id")) for row in rows],
        sample=[None] * len(rows),
        name=[_text(row.get("id")) or "" for row in rows],
    )
    return rows_of_native(ids, lengths, stated, events, settings.tokenizer)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _format(model: str | None, settings: InputSettings) -> str | None:
    layout = format_of_model(model) if model else FORMATS[settings.format]
    return layout.name if layout else None


def _check_masks(offsets: NDArray[np.int64], mask: Flat, prompt_lengths: NDArray[np.int64], source: Source) -> None:
    """A row's mask must be as long as its ids, and 0 up to one place and 1 from there on: one generation event."""
    bits, mask_offsets = mask
    if (wrong := np.flatnonzero(offsets != mask_offsets)).size:
        raise TrainingInputError(
            f"{source.path}: row {wrong[0]} of a chunk has a loss_mask of another length than its input_ids; write it"
            " again."
        )
    places = np.arange(len(bits)) - np.repeat(offsets[:-1], np.diff(offsets))
    expected = places >= np.repeat(prompt_lengths, np.diff(offsets))
    if (wrong := np.flatnonzero(bits != expected)).size:
        row = int(np.searchsorted(offsets, wrong[0], "right"))
        raise TrainingInputError(
            f"{source.path}: row {row} of a chunk has a loss_mask that is not 0 up to one place and 1 from there on;"
            " give one row a generation event."
        )
