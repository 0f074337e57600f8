"""Rows of token ids as flat arrays: what pyarrow's list columns hold, joined and hashed without a loop over tokens."""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

ID_TYPE = np.dtype("<i4")
DIGEST_BYTES = 16

Flat = tuple[NDArray[np.int32], NDArray[np.int64]]
"""The ids of all rows, shape [tokens], and where each row starts and the last one ends, shape [rows + 1]."""


def flat_rows(column: pa.ChunkedArray | pa.Array) -> Flat:
    """A list column as flat ids and offsets, the first offset 0. A missing row is an empty one."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if array.null_count:
        lengths = [len(row) if row is not None else 0 for row in array.to_pylist()]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return array.flatten().to_numpy(zero_copy_only=False).astype(np.int32), offsets
    offsets = array.offsets.to_numpy().astype(np.int64)
    values = array.values.slice(offsets[0], offsets[-1] - offsets[0])
    return values.to_numpy(zero_copy_only=False).astype(np.int32, copy=False), offsets - offsets[0]


def list_column(values: NDArray[np.generic], offsets: NDArray[np.int64]) -> pa.ListArray:
    """Flat values and offsets as a list column of the values' type."""
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(values))


def joined(first: Flat, second: Flat) -> tuple[Flat, NDArray[np.uint8]]:
    """Row for row the first ids and then the second; and a flat mask of as many values, 1 on the second."""
    (one, starts), (other, other_starts) = first, second
    ids = np.empty(len(one) + len(other), np.int32)
    mask = np.zeros(len(ids), np.uint8)
    ids[np.arange(len(one)) + np.repeat(other_starts[:-1], np.diff(starts))] = one
    places = np.arange(len(other)) + np.repeat(starts[1:], np.diff(other_starts))
    ids[places] = other
    mask[places] = 1
    return (ids, starts + other_starts), mask


def row_sums(flat: NDArray[np.generic], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sum of each row of a flat array, 0 for an empty one."""
    totals = np.concatenate([[0], np.cumsum(flat, dtype=np.int64)])
    sums: NDArray[np.int64] = totals[offsets[1:]] - totals[offsets[:-1]]
    return sums


def row_bytes(rows: Flat) -> Iterator[memoryview]:
    """Each row's ids as little-endian 32-bit integers."""
    values, offsets = rows
    data = memoryview(np.ascontiguousarray(values, ID_TYPE).tobytes())
    for start, end in pairwise((offsets * ID_TYPE.itemsize).tolist()):
        yield data[start:end]


def row_digests(rows: Flat, prompt_lengths: Sequence[int]) -> list[bytes]:
    """A digest of `DIGEST_BYTES` of each row: equal for equal ids with the border at the same place, on any machine."""
    return [
        hashlib.blake2b(data, digest_size=DIGEST_BYTES, salt=length.to_bytes(8, "little")).digest()
        for data, length in zip(row_bytes(rows), prompt_lengths, strict=True)
    ]


def first_places(flat: NDArray[np.int32], offsets: NDArray[np.int64], wanted: int) -> NDArray[np.int64]:
    """Where an id first stands in each row, as a place in the flat array; where it does not, the row's end."""
    found = np.flatnonzero(flat == wanted)
    return next_places(found, offsets[:-1], offsets[1:])


def next_places(found: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first of some ascending places at or after each start, or its end where there is none before that."""
    after = np.append(found, np.iinfo(np.int64).max)[np.searchsorted(found, starts)]
    places: NDArray[np.int64] = np.minimum(after, ends)
    return places
