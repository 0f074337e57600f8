"""Flat rows: the same as lists of Python, whatever the rows."""

import hashlib

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kimi_helpers.token_lists import Flat, first_places, flat_rows, joined, list_column, row_digests, row_sums

ROWS = st.lists(st.lists(st.integers(0, 5), max_size=4), min_size=1, max_size=6)


def flat(rows: list[list[int]]) -> Flat:
    return flat_rows(pa.array(rows, pa.list_(pa.int32())))


def listed(rows: Flat) -> list[list[int]]:
    return [list(row) for row in list_column(*rows).to_pylist()]


@given(ROWS, ROWS)
def test_joined_rows_are_concatenated_and_masked(one: list[list[int]], other: list[list[int]]) -> None:
    rows = min(len(one), len(other))
    both, mask = joined(flat(one[:rows]), flat(other[:rows]))
    pairs = list(zip(one, other, strict=False))
    assert listed(both) == [a + b for a, b in pairs]
    assert list_column(mask, both[1]).to_pylist() == [[0] * len(a) + [1] * len(b) for a, b in pairs]


@given(ROWS)
def test_sums_and_first_places_are_those_of_a_loop(rows: list[list[int]]) -> None:
    values, offsets = flat(rows)
    assert row_sums(values, offsets).tolist() == [sum(row) for row in rows]
    found = first_places(values, offsets, 3) - offsets[:-1]
    assert found.tolist() == [row.index(3) if 3 in row else len(row) for row in rows]


def test_slices_chunks_and_missing_rows_are_read_as_they_are() -> None:
    column = pa.array([[1], [2, 3], [], [4]], pa.list_(pa.int32()))
    assert listed(flat_rows(column.slice(1, 2))) == [[2, 3], []]
    assert listed(flat_rows(pa.chunked_array([column.slice(3), column.slice(0, 1)]))) == [[4], [1]]
    assert listed(flat_rows(pa.array([[1], None, [2]], pa.list_(pa.int32())))) == [[1], [], [2]]
    assert flat_rows(pa.array([], pa.list_(pa.int32())))[1].tolist() == [0]


def test_a_digest_is_of_the_ids_and_of_the_border() -> None:
    rows = flat([[1, 163_586], [1, 163_586], [1, 163_586], [1]])
    digests = row_digests(rows, [1, 1, 2, 1])
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3
    data = bytes([1, 0, 0, 0, 0x02, 0x7F, 0x02, 0])  # 163586 is 0x27f02, low byte first
    salt = bytes([1, 0, 0, 0, 0, 0, 0, 0])
    assert digests[0] == hashlib.blake2b(data, digest_size=16, salt=salt).digest()
    assert np.unique([len(digest) for digest in digests]).tolist() == [16]
