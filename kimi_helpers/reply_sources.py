"""Where replies are read from: recorded bodies, journals and Parquet, each reply with the request that asked for it."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kimi_helpers.journal import Exchange, read_journal
from kimi_helpers.replies import FailureKind
from kimi_helpers.reply_tables import (
    RAW_COLUMNS,
    REPLY_COLUMNS,
    WRONG_PROVIDER,
    RawReply,
    SourcedReply,
    parse_raw,
    raw_table,
    sourced_rows,
)

__all__ = [
    "RawReply",
    "SourceError",
    "SourcedReply",
    "find_sources",
    "parquet_columns",
    "parse_raw",
    "raw_of",
    "read_sources",
    "read_tables",
]

BODY_SUFFIXES = (".json", ".sse")
REQUEST_SUFFIX = ".request.json"
ABOUT_SUFFIX = ".about.json"  # of what is written beside graded rows
PARQUET_SUFFIX = ".parquet"
ROWS_A_BATCH = 512
_SQLITE = b"SQLite format 3\0"


class SourceError(ValueError):
    """A path that holds no replies; the message says what can be given."""


def find_sources(paths: Sequence[Path]) -> list[Path]:
    """The journals and files of recorded bodies among `paths`; a folder stands for the bodies in it.

    A body is a `.json` or `.sse` file; `NAME.request.json` is the request of `NAME`, no body. A `.parquet` file holds
    many, in the columns of `RAW_COLUMNS` or `REPLY_COLUMNS`.

    Raises:
        SourceError: there is none, or a path that cannot be read.
    """
    try:
        files = [file for path in paths for file in (sorted(path.iterdir()) if path.is_dir() else [path])]
        found = [file for file in files if _is_body(file) or (file.is_file() and _is_database(file))]
        for file in found:
            file.stat()  # a link may lead nowhere
    except OSError as error:
        raise SourceError(f"{error.filename} cannot be read: {error.strerror}.") from None
    if not found:
        raise SourceError(
            f"no replies in {', '.join(map(str, paths)) or 'no path'}: give bodies (.json, .sse, .parquet), folders of"
            " them, or journals."
        )
    return found


def _is_body(path: Path) -> bool:
    return path.suffix in (*BODY_SUFFIXES, PARQUET_SUFFIX) and not path.name.endswith((REQUEST_SUFFIX, ABOUT_SUFFIX))


def _is_database(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


def read_sources(sources: Iterable[Path]) -> Iterator[SourcedReply]:
    """The replies of journals, recorded bodies and Parquet files, a few in memory at a time.

    Raises:
        SourceError: a file cannot be read.
        JournalError: a database that is no journal.
    """
    for source in sources:
        if source.suffix == PARQUET_SUFFIX:
            for table in _read_parquet(source, ROWS_A_BATCH):
                yield from sourced_rows(table)
        else:
            yield from map(parse_raw, _read_unparsed(source))


def read_tables(sources: Iterable[Path], rows: int) -> Iterator[pa.Table]:
    """`read_sources` as tables of at most some rows each, of either form; one in memory at a time.

    Raises:
        SourceError: a file cannot be read.
        JournalError: a database that is no journal.
    """
    for is_parquet, group in groupby(sources, key=lambda source: source.suffix == PARQUET_SUFFIX):
        if is_parquet:
            for source in group:
                yield from _read_parquet(source, rows)
        else:
            raw = chain.from_iterable(map(_read_unparsed, group))
            while batch := list(islice(raw, rows)):
                yield raw_table(batch)


def _read_parquet(path: Path, rows: int) -> Iterator[pa.Table]:
    columns = parquet_columns(path)
    # read ahead, a file's bytes would be kept until its end
    file = pq.ParquetFile(path, pre_buffer=False)
    return (pa.Table.from_batches([batch]) for batch in file.iter_batches(rows, columns=columns))


def _read_unparsed(source: Path) -> Iterator[RawReply]:
    if source.suffix in BODY_SUFFIXES:
        yield _from_file(source)
    else:
        yield from _from_journal(source)


def parquet_columns(path: Path) -> list[str]:
    """Which columns of a Parquet file hold its replies: those of `REPLY_COLUMNS`, else of `RAW_COLUMNS`.

    Raises:
        SourceError: it is no Parquet file, or it has neither.
    """
    try:
        found = {field.name: field.type for field in pq.read_schema(path)}
    except (OSError, pa.ArrowInvalid) as error:
        raise SourceError(f"{path} cannot be read as Parquet: {error}.") from None
    columns = REPLY_COLUMNS if REPLY_COLUMNS.keys() <= found.keys() else RAW_COLUMNS
    wrong = [name for name, kind in columns.items() if found.get(name) != kind]
    if wrong:
        raise SourceError(f"{path}: column {wrong[0]} is missing or not of type {columns[wrong[0]]}.")
    return list(columns)


def _from_file(path: Path) -> RawReply:
    beside = path.with_name(path.stem + REQUEST_SUFFIX)
    try:
        return RawReply(str(path), beside.read_bytes() if beside.is_file() else None, None, path.read_bytes())
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}.") from None


def _from_journal(path: Path) -> Iterator[RawReply]:
    """Each reply once: attempts that failed before a good one are left out, else the last failure stands."""
    return (raw_of(path, exchange) for exchange in read_journal(path, settled=True))


def raw_of(journal: Path, exchange: Exchange) -> RawReply:
    """An exchange of a journal, unparsed; one that generation has rejected says so."""
    sent = exchange.transfer
    rejected = WRONG_PROVIDER if exchange.failure == FailureKind.WRONG_PROVIDER else None
    source = f"{journal}#{exchange.key[:16]}"
    return RawReply(source, sent.request, sent.status, sent.body, sent.transport_error or rejected)
