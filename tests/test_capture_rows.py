"""Rows, units and batches: nothing lost, nothing twice, wrong rows named."""

from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_helpers.capture_rows import PADDING_SHARE, batches, plan_capture, read_rows
from kimi_helpers.captures import CaptureError
from tests.tiny_models import rows_of, write_rows

LENGTHS = [5, 40, 17, 39, 1, 40, 38, 3, 100, 2]


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    rows = rows_of(LENGTHS)
    path = write_rows(tmp_path / "rows.parquet", rows, row_group_size=3)
    for start, stop in [(0, None), (0, 4), (2, 5), (7, 10), (9, None), (10, None)]:
        read = list(read_rows(path, start, stop))
        assert [row.row_id for row in read] == [row.row_id for row in rows[start:stop]]
        for got, wanted in zip(read, rows[start:stop], strict=True):
            assert got.index == wanted.index
            np.testing.assert_array_equal(got.ids, wanted.ids)
            np.testing.assert_array_equal(got.mask, wanted.mask)
            assert (got.ids.dtype, got.mask.dtype) == (np.int32, np.uint8)


def test_the_digest_of_a_row_is_over_name_ids_and_mask() -> None:
    row = rows_of([3])[0]
    ids = b"".join(int(id).to_bytes(4, "little") for id in row.ids)
    assert row.sha256 == sha256(b"row-0\0" + ids + bytes(row.mask.tolist())).hexdigest()


def test_units_are_consecutive_rows_within_the_bound(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.parquet", rows_of(LENGTHS))
    plan = plan_capture(path, unit_tokens=60)
    assert [(unit.start, unit.rows, unit.tokens) for unit in plan.units] == [
        (0, 2, 45),
        (2, 3, 57),
        (5, 1, 40),
        (6, 2, 41),
        (8, 1, 100),
        (9, 1, 2),
    ]
    assert (plan.rows, plan.tokens, plan.longest) == (10, 285, 100)
    assert plan.largest_id == max(int(row.ids.max()) for row in rows_of(LENGTHS))
    first = plan_capture(path, limit=3, unit_tokens=60)
    assert (first.rows, first.tokens) == (3, 62)
    assert first.sha256 != plan.sha256


@given(st.lists(st.integers(1, 300), max_size=60), st.integers(1, 600))
def test_every_row_is_in_one_batch_of_little_padding(lengths: list[int], batch_tokens: int) -> None:
    made = batches(lengths, batch_tokens)
    assert sorted(place for batch in made for place in batch) == list(range(len(lengths)))
    for batch in made:
        longest, real = max(lengths[place] for place in batch), sum(lengths[place] for place in batch)
        assert len(batch) == 1 or longest * len(batch) <= batch_tokens
        assert longest * len(batch) - real <= PADDING_SHARE * longest * len(batch)


def table(**columns: object) -> pa.Table:
    return pa.table({"row_id": ["a", "b"], "input_ids": [[1], [2, 3]], "loss_mask": [[1], [0, 1]]} | columns)


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"row_id": ["a", "a"]}, r"row 1: a row before it is named 'a' too"),
        ({"row_id": ["a", None]}, r"row 1 \(None\): row_id is empty"),
        ({"row_id": ["a", ""]}, r"row 1 \(''\): row_id is empty"),
        ({"input_ids": [[1], []], "loss_mask": [[1], []]}, r"row 1 \('b'\): no token ids in it"),
        ({"input_ids": [[1], None]}, r"row 1 \('b'\): input_ids or loss_mask is null"),
        ({"input_ids": [[1], [2, None]]}, r"row 1 \('b'\): no token ids in it, or ids or mask are not integers"),
        ({"input_ids": ["x", "y"]}, r"row 0 \('a'\): input_ids or loss_mask is null or no list"),
        ({"loss_mask": [[1], [0]]}, r"row 1 \('b'\): 2 ids but 1 values of the mask"),
        ({"loss_mask": [[1], [0, 2]]}, r"row 1 \('b'\): the mask holds other values than 0 and 1"),
        ({"input_ids": [[1], [-1, 3]]}, r"row 1 \('b'\): an id is negative"),
        ({"input_ids": [[1], [1, 2**31]]}, r"row 1 \('b'\): an id is negative or too large"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, columns: dict[str, object], told: str) -> None:
    pq.write_table(table(**columns), tmp_path / "rows.parquet")
    with pytest.raises(CaptureError, match=told):
        plan_capture(tmp_path / "rows.parquet")


def test_a_wrong_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"PAR0 nothing")
    with pytest.raises(CaptureError, match="is not Parquet"):
        plan_capture(tmp_path / "x.parquet")
    pq.write_table(table().drop_columns("loss_mask"), tmp_path / "x.parquet")
    with pytest.raises(CaptureError, match="no column 'loss_mask'"):
        plan_capture(tmp_path / "x.parquet")
    pq.write_table(table().slice(0, 0), tmp_path / "x.parquet")
    with pytest.raises(CaptureError, match="holds no rows"):
        plan_capture(tmp_path / "x.parquet")
