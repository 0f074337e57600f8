"""Graded rows as columns: what the Parquet files of a bulk reconstruction hold."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kimi_helpers.graded_rows import GradedRow
from kimi_helpers.reading_search import ID_BYTES, packed, unpacked
from kimi_helpers.reply_tables import storable

_INT_LISTS = {"token_ids": pa.list_(pa.int32()), "loss_mask": pa.list_(pa.int8()), "prompt_ids": pa.list_(pa.int32())}
_NUMBERS = ("completion_tokens", "reconstructed_tokens", "readings", "prompt_tokens")
SCHEMA = pa.schema(
    [
        (field.name, pa.int64() if field.name in _NUMBERS else pa.string())
        for field in fields(GradedRow)
        if field.name not in ("data", "prompt_ids")
    ]
    + list(_INT_LISTS.items())
)


def graded_table(rows: Sequence[GradedRow]) -> pa.Table:
    """A table with the columns of `SCHEMA`: those of `GradedRow`, ids as lists."""
    names = [name for name in SCHEMA.names if name not in _INT_LISTS]
    columns = {name: _column([getattr(row, name) for row in rows], SCHEMA.field(name).type) for name in names}
    return table_of(columns, packed_lists([row.data for row in rows]), [row.prompt_ids for row in rows])


def table_of(columns: dict[str, Any], ids: pa.ListArray, prompts: Sequence[Sequence[int]]) -> pa.Table:
    """A table with the columns of `SCHEMA` from those without ids, the completions, and the prompts."""
    lists = {
        "token_ids": ids,
        "loss_mask": pa.ListArray.from_arrays(ids.offsets, pa.array(np.ones(len(ids.values), np.int8))),
        "prompt_ids": packed_lists([packed(prompt) for prompt in prompts]),
    }
    return pa.table({name: (columns | lists)[name] for name in SCHEMA.names}, schema=SCHEMA)


def packed_lists(rows: Sequence[bytes]) -> pa.ListArray:
    """Packed ids as a column of lists."""
    return id_lists(unpacked(b"".join(rows)), np.array([len(row) // ID_BYTES for row in rows], np.int64))


def id_lists(ids: NDArray[np.int32], counts: NDArray[np.int64]) -> pa.ListArray:
    """Ids of several rows, one behind the other, as a column of lists; shapes [n] and [rows]."""
    offsets = np.concatenate([np.zeros(1, np.int64), counts.cumsum()])
    return pa.ListArray.from_arrays(offsets.astype(np.int32), pa.array(ids))


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:
        return pa.array([storable(value) for value in values], kind)
