"""Very many replies -> graded rows in Parquet: streamed, in flat memory, with the bulk encoder.

A batch is planned first: what each reply can be, by its profile, and so which texts have to be encoded. These are
encoded together, and then each reply is settled by the function that settles a single one.
"""

import json
import os
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, fields
from functools import cache
from importlib.metadata import version
from itertools import chain, islice
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kimi_helpers.bulk_encoding import BulkEncoder
from kimi_helpers.formats import ModelFormat, format_of_model
from kimi_helpers.graded_rows import GradedRow, graded_row, prompt_of, unknown_model
from kimi_helpers.profile_choice import host_of
from kimi_helpers.profiles import ProviderProfile
from kimi_helpers.reading_search import ID_BYTES, unpacked
from kimi_helpers.readings import read_request
from kimi_helpers.reconstruction import Grade, Possibility, failed, possibilities, settle, texts_to_encode
from kimi_helpers.replies import Failure, Reply
from kimi_helpers.reply_sources import RawReply, SourcedReply, parse_raw, raw_rows, raw_table
from kimi_helpers.vocabulary import load_vocabulary

ROWS_A_BATCH = 256

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


@dataclass(frozen=True)
class BulkSettings:
    """What all replies of a bulk reconstruction share; plain values, so that it travels to other processes.

    Attributes:
        profiles: by host.
        tokenizer: as `load_vocabulary`'s `source`.
        format: the layout of all replies; None where each reply's model tells.
    """

    profiles: Mapping[str, ProviderProfile]
    tokenizer: str | None = None
    format: ModelFormat | None = None


@cache
def _encoder(tokenizer: str | None, format_name: str) -> BulkEncoder:
    return BulkEncoder(load_vocabulary(tokenizer, format_name))


@dataclass(frozen=True)
class _Plan:
    """A reply that can be settled once its texts are encoded."""

    sourced: SourcedReply
    reply: Reply
    layout: ModelFormat
    possible: list[Possibility]


def grade_table(raw: pa.Table, settings: BulkSettings) -> pa.Table:
    """The graded rows of a table of exchanges, in its order.

    Args:
        raw: the columns of `RAW_COLUMNS`.
        settings: what its replies share.

    Returns:
        A table with the columns of `SCHEMA`: those of `GradedRow`, ids as lists.

    Raises:
        EncoderMismatch: the bulk encoder and tiktoken disagree on a sampled text.
    """
    rows: list[GradedRow | _Plan] = [_plan(parse_raw(each), settings) for each in raw_rows(raw)]
    encoded = {
        layout: _encode_all((row for row in rows if isinstance(row, _Plan) and row.layout == layout), layout, settings)
        for layout in {row.layout for row in rows if isinstance(row, _Plan)}
    }
    return _table([_settled(row, encoded, settings) if isinstance(row, _Plan) else row for row in rows])


def _plan(sourced: SourcedReply, settings: BulkSettings) -> GradedRow | _Plan:
    outcome = sourced.outcome
    layout = settings.format or format_of_model(outcome.model or "")
    if isinstance(outcome, Failure):
        return graded_row(sourced, layout, failed(outcome), None)
    if layout is None:
        return graded_row(sourced, None, unknown_model(outcome), None)
    vocabulary = load_vocabulary(settings.tokenizer, layout.name)
    profile = settings.profiles.get(host_of(outcome))
    possible = possibilities(outcome, vocabulary, layout, profile, read_request(sourced.request))
    return _Plan(sourced, outcome, layout, possible)


def _encode_all(plans: Iterable[_Plan], layout: ModelFormat, settings: BulkSettings) -> dict[str, bytes]:
    texts = list(dict.fromkeys(chain.from_iterable(texts_to_encode(plan.possible) for plan in plans)))
    ids, offsets = _encoder(settings.tokenizer, layout.name).encode(texts)
    data, borders = ids.astype("<i4", copy=False).tobytes(), (offsets * ID_BYTES).tolist()
    return {text: data[borders[place] : borders[place + 1]] for place, text in enumerate(texts)}


def _settled(plan: _Plan, encoded: Mapping[ModelFormat, Mapping[str, bytes]], settings: BulkSettings) -> GradedRow:
    vocabulary = load_vocabulary(settings.tokenizer, plan.layout.name)
    profile = settings.profiles.get(host_of(plan.reply))
    result = settle(plan.reply, plan.possible, vocabulary, plan.layout, profile, encoded[plan.layout].__getitem__)
    return graded_row(plan.sourced, plan.layout, result, prompt_of(plan.sourced, plan.reply, vocabulary, plan.layout))


def _table(rows: list[GradedRow]) -> pa.Table:
    ids = _list_array([unpacked(row.data) for row in rows], pa.int32())
    columns: dict[str, Any] = {
        "token_ids": ids,
        "loss_mask": pa.ListArray.from_arrays(ids.offsets, pa.array(np.ones(len(ids.values), np.int8))),
        "prompt_ids": _list_array([np.array(row.prompt_ids, np.int32) for row in rows], pa.int32()),
    }
    plain = [name for name in SCHEMA.names if name not in columns]
    columns |= {name: [getattr(row, name) for row in rows] for name in plain}
    return pa.table({name: columns[name] for name in SCHEMA.names}, schema=SCHEMA)


def _list_array(rows: list[Any], kind: pa.DataType) -> pa.ListArray:
    offsets = np.cumsum([0, *map(len, rows)]).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, pa.array(np.concatenate([*rows, np.empty(0, np.int32)]), kind))


def raw_batches(raw: Iterable[RawReply], rows: int = ROWS_A_BATCH) -> Iterator[pa.Table]:
    """Exchanges as tables of some rows each, one in memory at a time."""
    remaining = iter(raw)
    while batch := list(islice(remaining, rows)):
        yield raw_table(batch)


def reconstruct_many(
    raw: Iterable[RawReply], settings: BulkSettings, out: Path, workers: int | None = None
) -> dict[str, int]:
    """Grade any number of exchanges into one Parquet file, which is there whole or not at all.

    Args:
        raw: of `read_raw`; rows come out in this order, whatever the number of workers.
        settings: what its replies share.
        out: the file.
        workers: processes; by default one a core. With one, everything runs in this process.

    Returns:
        How many rows have each grade.

    Raises:
        EncoderMismatch: the bulk encoder and tiktoken disagree on a sampled text.
    """
    counts: Counter[str] = Counter()
    out.parent.mkdir(parents=True, exist_ok=True)
    schema = SCHEMA.with_metadata(file_metadata(settings))
    with TemporaryDirectory(dir=out.parent) as beside:
        unfinished = Path(beside, out.name)
        # ids have no repetition that a dictionary could use
        with pq.ParquetWriter(unfinished, schema, compression="zstd", use_dictionary=False) as writer:
            for table in _graded_batches(raw_batches(raw), settings, workers or os.cpu_count() or 1):
                counts.update(table.column("grade").to_pylist())
                writer.write_table(table.replace_schema_metadata(schema.metadata))
        unfinished.replace(out)
    return {grade.value: counts[grade.value] for grade in Grade}


def _graded_batches(batches: Iterator[pa.Table], settings: BulkSettings, workers: int) -> Iterator[pa.Table]:
    if workers == 1:
        yield from (grade_table(batch, settings) for batch in batches)
        return
    waiting: deque[Future[pa.Table]] = deque()
    # a forked process would share the encoder's threads and locks
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for batch in batches:
            waiting.append(pool.submit(grade_table, batch, settings))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


RESIDUAL = (
    "exact_unique holds up to another split of the same text into as many tokens, which no count can show; its rate is"
    " measured on loopback hosts whose model splits so at a stated rate, and for a real model has to be measured on an"
    " engine that returns ids"
)


def file_metadata(settings: BulkSettings) -> dict[str, str]:
    """What a reader of the file has to know: the version, the profiles used, and what `exact_unique` cannot exclude."""
    profiles = {host: [stack.name for stack in profile.stacks] for host, profile in settings.profiles.items()}
    return {
        "kimi_helpers": json.dumps(
            {"version": version("kimi-helpers"), "profiles": profiles, "residual": RESIDUAL}, ensure_ascii=False
        )
    }
