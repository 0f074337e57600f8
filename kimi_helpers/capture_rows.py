"""Training rows for the capture: read in order, checked, cut into units and batches that never change.

A unit is a run of consecutive rows, and the least that is written, resumed or moved to another worker. The batches of
a unit depend on its rows alone: floating point depends on the shape of a batch, so only then do a run that was broken
off, a run on several machines and a run in one go give the same bytes.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kimi_helpers.captures import CaptureError

COLUMNS = ("row_id", "input_ids", "loss_mask")
UNIT_TOKENS = 16_384
READ_ROWS = 256
PADDING_SHARE = 0.1


@dataclass(frozen=True, eq=False)
class CaptureRow:
    """One training row.

    Attributes:
        index: its place in the training set, from 0.
        row_id: its name there.
        ids: token ids, int32, shape [n].
        mask: uint8, shape [n], 1 on tokens that the model sampled.
    """

    index: int
    row_id: str
    ids: np.ndarray
    mask: np.ndarray

    @property
    def sha256(self) -> str:
        """Hex digest of name, ids and mask."""
        return hashlib.sha256(self.row_id.encode() + b"\0" + self.ids.tobytes() + self.mask.tobytes()).hexdigest()


@dataclass(frozen=True)
class Unit:
    """Consecutive rows that are captured and written together.

    Attributes:
        number: from 0.
        start: index of its first row.
        rows: how many.
        tokens: of all its rows.
    """

    number: int
    start: int
    rows: int
    tokens: int


@dataclass(frozen=True)
class Plan:
    """What a capture of a training set consists of.

    Attributes:
        units: in order.
        tokens: of all rows.
        longest: tokens of the longest row.
        largest_id: the largest token id in any row.
        sha256: hex digest over the digests of all rows.
    """

    units: tuple[Unit, ...]
    tokens: int
    longest: int
    largest_id: int
    sha256: str

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(unit.rows for unit in self.units)


def read_rows(path: Path, start: int = 0, stop: int | None = None) -> Iterator[CaptureRow]:
    """The rows `start` to `stop` of a training set in Parquet, checked one by one.

    Args:
        path: a file with the columns `row_id` (text), `input_ids` and `loss_mask` (lists of integers).

    Raises:
        CaptureError: the file is not such a one, or a row is wrong; the message names the row.
    """
    try:
        with pq.ParquetFile(path) as file:
            missing = [name for name in COLUMNS if name not in file.schema_arrow.names]
            if missing:
                raise CaptureError(f"{path} has no column {missing[0]!r}; give the Parquet of the training stage.")
            index, groups = _first_group(file, start)
            for batch in file.iter_batches(READ_ROWS, groups, columns=list(COLUMNS)):
                if stop is not None and index >= stop:
                    return
                for row in _rows_of(batch, index, path):
                    if start <= row.index and (stop is None or row.index < stop):
                        yield row
                index += batch.num_rows
    except pa.ArrowInvalid as error:
        raise CaptureError(f"{path} is not Parquet: {' '.join(str(error).split())[:200]}") from None


def _first_group(file: pq.ParquetFile, start: int) -> tuple[int, list[int]]:
    """Index of the first row of the row group that holds row `start`, and the groups from there on."""
    index = 0
    for group in range(file.num_row_groups):
        rows = file.metadata.row_group(group).num_rows
        if start < index + rows:
            return index, list(range(group, file.num_row_groups))
        index += rows
    return index, []


def _rows_of(batch: pa.RecordBatch, index: int, path: Path) -> Iterator[CaptureRow]:
    names = batch.column("row_id").to_pylist()
    columns = [batch.column(name) for name in ("input_ids", "loss_mask")]
    for place, name in enumerate(names):
        where = f"{path}, row {index + place} ({name!r})"
        if not isinstance(name, str) or not name:
            raise CaptureError(f"{where}: row_id is empty; every row needs a name.")
        try:
            ids, mask = (np.asarray(column[place].values.to_numpy(zero_copy_only=False)) for column in columns)
        except AttributeError:
            raise CaptureError(f"{where}: input_ids or loss_mask is null or no list; write integers.") from None
        yield CaptureRow(index + place, name, *_checked(ids, mask, where))


def _checked(ids: np.ndarray, mask: np.ndarray, where: str) -> tuple[np.ndarray, np.ndarray]:
    if not (ids.size and np.issubdtype(ids.dtype, np.integer) and np.issubdtype(mask.dtype, np.integer)):
        raise CaptureError(f"{where}: no token ids in it, or ids or mask are not integers; leave the row out.")
    if ids.size != mask.size:
        raise CaptureError(f"{where}: {ids.size} ids but {mask.size} values of the mask; write one for each.")
    if not np.isin(mask, (0, 1)).all():
        raise CaptureError(f"{where}: the mask holds other values than 0 and 1.")
    if ids.min() < 0 or ids.max() > np.iinfo(np.int32).max:
        raise CaptureError(f"{where}: an id is negative or too large; it is of no vocabulary.")
    return ids.astype(np.int32), mask.astype(np.uint8)


def plan_capture(path: Path, limit: int | None = None, unit_tokens: int = UNIT_TOKENS) -> Plan:
    """Read a training set once, check it, and cut it into units.

    Args:
        path: as `read_rows`.
        limit: only so many rows, the first ones.
        unit_tokens: a unit ends before it would hold more; a longer row is a unit of its own.

    Raises:
        CaptureError: as `read_rows`; or there are no rows, or two have one name.
    """
    units: list[Unit] = []
    names: set[str] = set()
    start = rows = tokens = longest = largest = 0
    digest = hashlib.sha256()
    for row in read_rows(path, stop=limit):
        if row.row_id in names:
            raise CaptureError(f"{path}, row {row.index}: a row before it is named {row.row_id!r} too.")
        names.add(row.row_id)
        digest.update(bytes.fromhex(row.sha256))
        if rows and tokens + row.ids.size > unit_tokens:
            units.append(Unit(len(units), start, rows, tokens))
            start, rows, tokens = row.index, 0, 0
        rows, tokens = rows + 1, tokens + row.ids.size
        longest, largest = max(longest, row.ids.size), max(largest, int(row.ids.max()))
    if not rows:
        raise CaptureError(f"{path} holds no rows; nothing would be captured.")
    units.append(Unit(len(units), start, rows, tokens))
    return Plan(tuple(units), sum(unit.tokens for unit in units), longest, largest, digest.hexdigest())


def batches(lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Places of rows that run through the model together: long ones first, with little padding.

    Args:
        lengths: tokens of each row.
        batch_tokens: the most tokens of a batch, padding included; a longer row goes alone.
    """
    made: list[list[int]] = []
    filled = 0  # tokens of the last batch, without padding
    for place in sorted(range(len(lengths)), key=lambda place: (-lengths[place], place)):
        width = lengths[made[-1][0]] if made else 0
        area = width * (len(made[-1]) + 1) if made else 0
        filled += lengths[place]
        if not made or area > batch_tokens or area - filled > PADDING_SHARE * area:
            made.append([])
            filled = lengths[place]
        made[-1].append(place)
    return made
