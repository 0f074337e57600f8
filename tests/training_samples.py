"""Training rows made small, without a model: ids of the real vocabulary laid out as K2.5 lays them out."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kimi_helpers.formats import FORMATS, encode_segments
from kimi_helpers.training import SET_SCHEMA, Events, rows_of_native
from kimi_helpers.vocabulary import load_vocabulary

K25 = FORMATS["kimi-k2.5"]


@cache
def prompt_ids(text: str) -> tuple[int, ...]:
    return tuple(K25.prompt_ids(load_vocabulary(), [{"role": "user", "content": text}]))


@cache
def completion_ids(reasoning: str, content: str) -> tuple[int, ...]:
    return tuple(encode_segments(load_vocabulary(), K25.completion_segments([reasoning], [content])))


def row(prompt: str, content: str, reasoning: str = "Well.", **values: Any) -> dict[str, Any]:
    """A row that answers a prompt; `values` are its other columns."""
    return {"prompt": prompt_ids(prompt), "completion": completion_ids(reasoning, content), **values}


def rows_table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """A table of `ROW_SCHEMA` from rows of `row`."""
    flat = np.array([id for each in rows for id in (*each["prompt"], *each["completion"])], np.int32)
    lengths = np.array([len(each["prompt"]) for each in rows], np.int64)
    offsets = np.cumsum([0, *(len(each["prompt"]) + len(each["completion"]) for each in rows)])
    usual = {"model": "moonshotai/kimi-k2.5", "format": "kimi-k2.5", "provider": "P", "finish_reason": "stop"}
    stated = {
        name: pa.array([each.get(name, usual.get(name)) for each in rows], pa.string()) for name in (*usual, "source")
    }
    events = Events(
        dataset=[each.get("dataset", "d") for each in rows],
        prompt_id=[each.get("prompt_id") for each in rows],
        sample=[None] * len(rows),
        name=[str(each.get("name", place)) for place, each in enumerate(rows)],
    )
    table = rows_of_native((flat, offsets), lengths, stated, events, None)
    for column in ("grade", "prompt_grade"):
        values = [each.get(column, "exact_unique" if column == "grade" else "equal") for each in rows]
        table = table.set_column(table.schema.get_field_index(column), column, pa.array(values, pa.string()))
    return table


def write_rows(path: Path, rows: Sequence[dict[str, Any]], group: int = 4) -> Path:
    """A file of training rows, in small row groups."""
    pq.write_table(rows_table(rows).select(SET_SCHEMA.names), path, row_group_size=group)
    return path
