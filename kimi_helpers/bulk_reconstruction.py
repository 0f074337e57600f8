"""Very many replies -> graded rows in Parquet: streamed, in flat memory, with the bulk encoder.

A batch is planned first: what each reply can be, by its profile, and so which texts have to be encoded. These are
encoded together, and then each reply is settled by the function that settles a single one.
"""

import json
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from kimi_helpers.bulk_encoding import BulkEncoder
from kimi_helpers.formats import ModelFormat, format_of_model
from kimi_helpers.graded_rows import GradedRow, about_rows, graded_row, prompt_of_reply, unknown_model
from kimi_helpers.graded_tables import SCHEMA, graded_table
from kimi_helpers.plain_replies import PlainGroup, grade_group, plain_groups
from kimi_helpers.profile_choice import host_of
from kimi_helpers.profiles import ProviderProfile
from kimi_helpers.reading_search import ID_BYTES
from kimi_helpers.reconstruction import Grade, Possibility, failed, possibilities, settle, texts_to_encode
from kimi_helpers.replies import Failure, Reply
from kimi_helpers.reply_tables import REPLY_SCHEMA, SourcedReply, parsed_table, sourced_rows
from kimi_helpers.request_terms import cut_at_limit, read_request
from kimi_helpers.vocabulary import Vocabulary, load_vocabulary

ROWS_A_BATCH = 256
ROWS_A_GROUP = 1024
CHECK_SHARE = 0.0025  # of a run's texts, which are many, that tiktoken encodes too; at least one a batch

T = TypeVar("T")
R = TypeVar("R")


class OrderedMap(Protocol):
    """A `map`: results come in the items' order."""

    def __call__(self, function: Callable[[T], R], items: Iterable[T], /) -> Iterator[R]: ...


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


_format_of = lru_cache(format_of_model)


def _layout(settings: BulkSettings, model: str | None) -> ModelFormat | None:
    return settings.format or _format_of(model or "")


@cache
def _vocabulary(tokenizer: str | None, layout: ModelFormat) -> Vocabulary:
    return load_vocabulary(tokenizer, layout.name)


@cache
def _encoder(vocabulary: Vocabulary) -> BulkEncoder:
    return BulkEncoder(vocabulary, CHECK_SHARE)


@dataclass(frozen=True)
class _Plan:
    """A reply that can be settled once its texts are encoded."""

    sourced: SourcedReply
    reply: Reply
    layout: ModelFormat
    possible: list[Possibility]


def grade_table(replies: pa.Table, settings: BulkSettings) -> pa.Table:
    """The graded rows of a table of replies, in its order.

    Args:
        replies: the columns of `RAW_COLUMNS` or of `REPLY_COLUMNS`.
        settings: what its replies share.

    Returns:
        A table with the columns of `SCHEMA`: those of `GradedRow`, ids as lists.

    Raises:
        EncoderMismatch: the bulk encoder and tiktoken disagree on a sampled text.
    """
    replies = parsed_table(replies)
    vocabulary_of = partial(_vocabulary, settings.tokenizer)
    groups = plain_groups(replies, partial(_layout, settings), vocabulary_of, settings.profiles)
    done = [grade_group(group, ids, counts) for group, ids, counts in _encode_groups(groups)]
    places = np.concatenate([np.empty(0, np.int64), *(group.places for group, _ in done)])
    others = np.setdiff1d(np.arange(len(replies)), places)
    rows = pa.concat_tables([*(table for _, table in done), _one_by_one(replies.take(others), settings)])
    order = np.argsort(np.concatenate([places, others]))
    return rows.take(order) if done else rows


def _encode_groups(groups: Sequence[PlainGroup]) -> Iterator[tuple[PlainGroup, NDArray[np.int32], NDArray[np.int64]]]:
    """Each group with the ids of its texts; those of a vocabulary are encoded together."""
    for vocabulary in dict.fromkeys(group.vocabulary for group in groups):
        alike = [group for group in groups if group.vocabulary is vocabulary]
        texts = [list(chain.from_iterable(group.texts)) for group in alike]
        ids, offsets = _encoder(vocabulary).encode_utf8(list(chain.from_iterable(texts)))
        start = 0
        for group, of_group in zip(alike, texts, strict=True):
            borders = offsets[start : start + len(of_group) + 1]
            yield group, ids[borders[0] : borders[-1]], np.diff(borders)
            start += len(of_group)


def _one_by_one(replies: pa.Table, settings: BulkSettings) -> pa.Table:
    rows: list[GradedRow | _Plan] = [_plan(each, settings) for each in sourced_rows(replies)]
    encoded = {
        layout: _encode_all((row for row in rows if isinstance(row, _Plan) and row.layout == layout), layout, settings)
        for layout in {row.layout for row in rows if isinstance(row, _Plan)}
    }
    return graded_table([_settled(row, encoded, settings) if isinstance(row, _Plan) else row for row in rows])


def _plan(sourced: SourcedReply, settings: BulkSettings) -> GradedRow | _Plan:
    outcome = sourced.outcome
    layout = _layout(settings, outcome.model)
    if isinstance(outcome, Failure):
        return graded_row(sourced, layout, failed(outcome), None)
    if layout is None:
        return graded_row(sourced, None, unknown_model(outcome), None)
    vocabulary = _vocabulary(settings.tokenizer, layout)
    profile = settings.profiles.get(host_of(outcome))
    asked = read_request(sourced.request)
    reply = cut_at_limit(outcome, asked)
    return _Plan(sourced, reply, layout, possibilities(reply, vocabulary, layout, profile, asked))


def _encode_all(plans: Iterable[_Plan], layout: ModelFormat, settings: BulkSettings) -> dict[str, bytes]:
    texts = list(dict.fromkeys(chain.from_iterable(texts_to_encode(plan.possible) for plan in plans)))
    ids, offsets = _encoder(_vocabulary(settings.tokenizer, layout)).encode(texts)
    data, borders = ids.astype("<i4", copy=False).tobytes(), (offsets * ID_BYTES).tolist()
    return {text: data[borders[place] : borders[place + 1]] for place, text in enumerate(texts)}


def _settled(plan: _Plan, encoded: Mapping[ModelFormat, Mapping[str, bytes]], settings: BulkSettings) -> GradedRow:
    vocabulary = _vocabulary(settings.tokenizer, plan.layout)
    profile = settings.profiles.get(host_of(plan.reply))
    result = settle(plan.reply, plan.possible, vocabulary, plan.layout, profile, encoded[plan.layout].__getitem__)
    return graded_row(
        plan.sourced, plan.layout, result, prompt_of_reply(plan.sourced.request, plan.reply, vocabulary, plan.layout)
    )


def reconstruct_many(
    tables: Iterable[pa.Table], settings: BulkSettings, out: Path, each: OrderedMap = map
) -> dict[str, dict[str, int]]:
    """Grade any number of replies into one Parquet file.

    Args:
        tables: of `read_tables`; rows come out in this order.
        settings: what their replies share.
        out: the file.
        each: applies a function to the tables: `map` in this process, or that of `local_workers`.

    Returns:
        How many rows have each grade, by host.

    Raises:
        EncoderMismatch: the bulk encoder and tiktoken disagree on a sampled text.
    """
    return write_graded(each(partial(grade_table, settings=settings), tables), settings, out)


def write_graded(tables: Iterable[pa.Table], settings: BulkSettings, out: Path) -> dict[str, dict[str, int]]:
    """Write tables of graded rows as one Parquet file, whole or not at all, and count the grades of each host."""
    counts: dict[str, Counter[str]] = {}
    splits: Counter[str | None] = Counter()

    def counted() -> Iterator[pa.Table]:
        for table in tables:
            for host, grade in zip(table.column("host").to_pylist(), table.column("grade").to_pylist(), strict=True):
                counts.setdefault(host, Counter())[grade] += 1
            splits.update(table.column("split").to_pylist())
            yield table

    write_tables(
        counted(),
        SCHEMA,
        out,
        lambda: {"kimi_helpers": json.dumps(about_rows(settings.profiles, splits), ensure_ascii=False)},
    )
    return {host: {grade.value: of_host[grade] for grade in Grade} for host, of_host in counts.items()}


def parse_many(tables: Iterable[pa.Table], out: Path, each: OrderedMap = map) -> None:
    """Parse any number of exchanges into one Parquet file, which can be reconstructed faster and more than once.

    Args:
        tables: of `read_tables`.
        out: the file.
        each: as `reconstruct_many`.
    """
    write_tables(each(parsed_table, tables), REPLY_SCHEMA, out)


def write_tables(
    tables: Iterable[pa.Table], schema: pa.Schema, out: Path, metadata: Callable[[], Mapping[str, str]] = dict
) -> None:
    """Write tables as one Parquet file, which is there whole or not at all.

    Args:
        tables: with the columns of the schema.
        schema: of the file.
        out: the file.
        metadata: what the file says of itself, asked for after the last table.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    lists = [field.name for field in schema if pa.types.is_list(field.type)]
    plain = [field.name for field in schema if field.name not in lists]
    with TemporaryDirectory(dir=out.parent) as beside:
        unfinished = Path(beside, out.name)
        # texts and ids have no repetition that a dictionary could use, and nobody looks for their least and greatest
        with (
            pq.ParquetWriter(
                unfinished, schema, compression="zstd", use_dictionary=False, write_statistics=plain
            ) as writer,
            ThreadPoolExecutor(1) as beside_grading,
        ):
            written: Future[None] | None = None
            for group in _grouped(tables):
                if written:
                    written.result()
                written = beside_grading.submit(writer.write_table, group)
            if written:
                written.result()
            writer.add_key_value_metadata(metadata())
        unfinished.replace(out)


def _grouped(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Tables joined until they make a row group."""
    group: list[pa.Table] = []
    for table in tables:
        group.append(table)
        if sum(len(each) for each in group) >= ROWS_A_GROUP:
            yield pa.concat_tables(group)
            group = []
    if group:
        yield pa.concat_tables(group)


@contextmanager
def local_workers(number: int | None = None) -> Iterator[OrderedMap]:
    """Processes of this machine, by default one a core, that stay until the block is left; with one, this process.

    Yields:
        `map`, in the items' order; few are under way at a time, so memory stays flat.
    """
    number = number or os.cpu_count() or 1
    if number == 1:
        yield map
        return
    # a forked process would share the encoder's threads and locks
    with ProcessPoolExecutor(number, mp_context=get_context("spawn")) as pool:
        yield partial(_in_order, pool, 2 * number)


def _in_order(pool: Executor, most: int, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    waiting: deque[Future[R]] = deque()
    for item in items:
        waiting.append(pool.submit(function, item))
        if len(waiting) > most:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
