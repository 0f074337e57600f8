"""Files and sets of the hub -> rows, streamed: one row of JSONL and CSV in memory at a time, of Parquet a few."""

import codecs
import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kimi_helpers.workspace import printable

LONGEST_ROW = 1 << 28
SUFFIXES = (".jsonl", ".parquet", ".csv")
ROWS_A_BATCH = 16
_HUB = "hf:"


class DatasetError(ValueError):
    """A dataset that cannot be opened or read on; the message says which and what to do."""


class RowError(ValueError):
    """A row that gives no prompt; the message says what is wrong with it."""


def read_rows(source: str) -> Iterator[tuple[str, Any]]:
    """(place, row) pairs in order; a row that cannot be parsed is the RowError that says why.

    Places are `line 7` of JSONL (blank lines count), `row 7` of the rest; counted from 1.

    Args:
        source: a path that ends in one of `SUFFIXES`, or `hf:org/name[:config[:split]]`.

    Raises:
        DatasetError: the source cannot be read, or not read on.
    """
    if source.startswith(_HUB):
        return _hub_rows(source)
    readers = {".jsonl": _jsonl_rows, ".parquet": _parquet_rows, ".csv": _csv_rows}
    return readers[Path(source).suffix](Path(source))


def hub_parts(name: str) -> tuple[str, str | None, str]:
    """(`org/name`, config or None, split) of `hf:org/name[:config[:split]]`; an empty part is its default.

    Raises:
        DatasetError: the name is not of that form.
    """
    parts = name.removeprefix(_HUB).split(":")
    hub, config, split = [*parts, "", ""][:3]
    if len(parts) > 3 or hub.count("/") != 1 or not all(hub.split("/")):
        raise DatasetError(f"{name} names no set of the hub; write hf:org/name[:config[:split]].")
    return hub, config or None, split or "train"


def _jsonl_rows(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror}.") from None
    with file:
        for number, line in enumerate(_lines(path, file), 1):
            if isinstance(line, RowError):
                yield f"line {number}", line
            elif text := (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).strip():
                yield f"line {number}", _parsed(text)


def _lines(path: Path, file: Any) -> Iterator[bytes | RowError]:
    """The lines of a file; of one that is too long, no more than `LONGEST_ROW` bytes are ever held."""
    while True:
        try:
            line = file.readline(LONGEST_ROW + 1)
            is_long = len(line) > LONGEST_ROW
            rest = line
            while is_long and rest and not rest.endswith(b"\n"):
                rest = file.readline(LONGEST_ROW)
        except OSError as error:
            raise DatasetError(f"{path} cannot be read: {error.strerror}.") from None
        if not line:
            return
        yield RowError(f"it is longer than {LONGEST_ROW:,} bytes") if is_long else line


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        return RowError(f"it is not UTF-8 at byte {error.start}")
    except RecursionError:
        return RowError("it is nested too deeply")
    except ValueError as error:
        return RowError(f"it is not JSON ({error})")


def _parquet_rows(path: Path) -> Iterator[tuple[str, Any]]:
    number = 0
    try:
        # read ahead, a file's bytes would be kept until its end
        batches = pq.ParquetFile(path, pre_buffer=False).iter_batches(ROWS_A_BATCH)
    except (pa.ArrowException, OSError) as error:
        raise DatasetError(f"{path} cannot be read as Parquet: {_short(error)}.") from None
    while (batch := _next_batch(path, batches, number)) is not None:
        for row in _batch_rows(batch):
            number += 1
            yield f"row {number}", row


def _next_batch(path: Path, batches: Iterator[pa.RecordBatch], number: int) -> pa.RecordBatch | None:
    try:
        return next(batches, None)
    except (pa.ArrowException, OSError) as error:
        raise DatasetError(
            f"{path} cannot be read after row {number}: {_short(error)}; copy the file anew, or what can be read of it."
        ) from None


def _batch_rows(batch: pa.RecordBatch) -> list[Any]:
    """The rows of a batch; one by one where a text among them is not UTF-8, which spoils the batch."""
    try:
        return [without_nulls(row) for row in batch.to_pylist()]
    except UnicodeDecodeError:
        if batch.num_rows == 1:
            return [RowError("it holds bytes that are not UTF-8")]
        return [row for at in range(batch.num_rows) for row in _batch_rows(batch.slice(at, 1))]


def without_nulls(value: Any) -> Any:
    """A value of Arrow without the null fields of its objects.

    All objects of a column have the same fields there: one that the source left out reads as null. The two cannot be
    told apart, and a null sent to a host (an argument that the model never wrote) would be an invention.
    """
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list) and any(isinstance(inner, (dict, list)) for inner in value):
        return [without_nulls(inner) for inner in value]
    return value


def _csv_rows(path: Path) -> Iterator[tuple[str, Any]]:
    """Rows of a CSV file with a header. A broken quote ends the reading: what follows cannot be cut into rows."""
    csv.field_size_limit(LONGEST_ROW)
    number = 0
    try:
        # bytes that are not UTF-8 become lone surrogates, which are then told row by row
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            for row in csv.DictReader(file, strict=True):
                number += 1
                ragged = None in row or None in row.values()
                yield f"row {number}", RowError("it has more or fewer cells than the header") if ragged else row
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror}.") from None
    except csv.Error as error:
        raise DatasetError(f"{path} cannot be read after row {number}: {error}; repair the row that follows.") from None


def _hub_rows(source: str) -> Iterator[tuple[str, Any]]:
    from datasets import load_dataset  # noqa: PLC0415 - it takes seconds to import, and files need none of it

    hub, config, split = hub_parts(source)
    number = 0
    rows: Iterator[Any] | None = None
    while True:
        try:
            rows = rows or iter(load_dataset(hub, config, split=split, streaming=True))
            row = next(rows)
        except StopIteration:
            return
        except Exception as error:  # the library raises a class of its own for each way in which a hub fails
            raise DatasetError(
                f"{hub} could not be streamed from the hub after row {number} ({type(error).__name__}:"
                f" {_short(error)}); check the name and the network, or name a local copy or a `:sample`."
            ) from None
        number += 1
        yield f"row {number}", without_nulls(row)


def _short(error: Exception) -> str:
    return printable(" ".join(str(error).split())[:200].rstrip("."))
