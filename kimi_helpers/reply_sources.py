"""Where replies are read from: recorded bodies, journals and Parquet, each reply with the request that asked for it."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kimi_helpers.journal import read_journal
from kimi_helpers.replies import Failure, FailureKind, Reply, parse_reply

BODY_SUFFIXES = (".json", ".sse")
REQUEST_SUFFIX = ".request.json"
PARQUET_SUFFIX = ".parquet"
RAW_COLUMNS = {
    "source": pa.string(),
    "request": pa.binary(),
    "status": pa.int64(),
    "body": pa.binary(),
    "transport_error": pa.string(),
}
ROWS_A_BATCH = 512
_SQLITE = b"SQLite format 3\0"


class SourceError(ValueError):
    """A path that holds no replies; the message says what can be given."""


@dataclass(frozen=True)
class RawReply:
    """An exchange as it was kept, unparsed.

    Attributes:
        source: the file, or the file and the place in it.
        request: the request's body, or None where it was not kept.
        status: of HTTP, None where unknown.
        body: the response's bytes.
        transport_error: why the exchange broke off; None where it came to its end.
    """

    source: str
    request: bytes | None
    status: int | None
    body: bytes
    transport_error: str | None = None


@dataclass(frozen=True)
class SourcedReply:
    """A reply and where it came from.

    Attributes:
        source: as `RawReply`.
        request: the request's body, or None where it was not kept or is no JSON object.
        outcome: the parsed reply, or why there is none.
    """

    source: str
    request: Mapping[str, Any] | None
    outcome: Reply | Failure


def find_sources(paths: Sequence[Path]) -> list[Path]:
    """The journals and files of recorded bodies among `paths`; a folder stands for the bodies in it.

    A body is a `.json` or `.sse` file; `NAME.request.json` is the request of `NAME`, no body. A `.parquet` file holds
    many, in the columns of `RAW_COLUMNS`.

    Raises:
        SourceError: there is none, or a path that cannot be read.
    """
    try:
        files = [file for path in paths for file in (sorted(path.iterdir()) if path.is_dir() else [path])]
        found = [file for file in files if file.is_file() and (_is_body(file) or _is_database(file))]
    except OSError as error:
        raise SourceError(f"{error.filename} cannot be read: {error.strerror}.") from None
    if not found:
        raise SourceError(
            f"no replies in {', '.join(map(str, paths)) or 'no path'}: give bodies (.json, .sse, .parquet), folders of"
            " them, or journals."
        )
    return found


def _is_body(path: Path) -> bool:
    return path.suffix in (*BODY_SUFFIXES, PARQUET_SUFFIX) and not path.name.endswith(REQUEST_SUFFIX)


def _is_database(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


def read_sources(sources: Iterable[Path]) -> Iterator[SourcedReply]:
    """The replies of journals, recorded bodies and Parquet files, one in memory at a time.

    Raises:
        SourceError: a file cannot be read.
        JournalError: a database that is no journal.
    """
    return map(parse_raw, read_raw(sources))


def read_raw(sources: Iterable[Path]) -> Iterator[RawReply]:
    """`read_sources` before parsing."""
    for source in sources:
        if source.suffix == PARQUET_SUFFIX:
            for batch in _opened(source).iter_batches(ROWS_A_BATCH, columns=list(RAW_COLUMNS)):
                yield from raw_rows(batch)
        elif _is_database(source):
            yield from _from_journal(source)
        else:
            yield _from_file(source)


def parse_raw(raw: RawReply) -> SourcedReply:
    """Parse an exchange. Nothing is raised, whatever the bytes; one that broke off is a failure."""
    outcome = parse_reply(raw.body, status=raw.status)
    if raw.transport_error is not None and isinstance(outcome, Reply):
        outcome = Failure(
            kind=FailureKind.STREAM_CUT,
            status=raw.status,
            code=None,
            message=f"the exchange broke off: {raw.transport_error}",
            provider=outcome.provider,
            model=outcome.model,
            generation_id=outcome.generation_id,
            usage=outcome.usage,
            partial=outcome,
            transport=outcome.transport,
        )
    return SourcedReply(raw.source, _json_object(raw.request), outcome)


def raw_rows(rows: pa.RecordBatch | pa.Table) -> Iterator[RawReply]:
    """The rows of a table with the columns of `RAW_COLUMNS`."""
    columns = (rows.column(name).to_pylist() for name in RAW_COLUMNS)
    return (RawReply(*values) for values in zip(*columns, strict=True))


def raw_table(raw: Iterable[RawReply]) -> pa.Table:
    """Exchanges as a table that `raw_rows` reads."""
    return pa.Table.from_pylist([asdict(each) for each in raw], pa.schema(list(RAW_COLUMNS.items())))


def _opened(path: Path) -> pq.ParquetFile:
    try:
        file = pq.ParquetFile(path)
        found = {field.name: field.type for field in file.schema_arrow}
    except (OSError, pa.ArrowInvalid) as error:
        raise SourceError(f"{path} cannot be read as Parquet: {error}.") from None
    wrong = [name for name, kind in RAW_COLUMNS.items() if found.get(name) != kind]
    if wrong:
        raise SourceError(f"{path}: column {wrong[0]} is missing or not of type {RAW_COLUMNS[wrong[0]]}.")
    return file


def _from_file(path: Path) -> RawReply:
    beside = path.with_name(path.stem + REQUEST_SUFFIX)
    try:
        return RawReply(str(path), beside.read_bytes() if beside.is_file() else None, None, path.read_bytes())
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}.") from None


def _from_journal(path: Path) -> Iterator[RawReply]:
    """Each reply once: attempts that failed before a good one are left out, else the last failure stands."""
    chosen: dict[str, int] = {}
    finished: set[str] = set()
    for place, exchange in enumerate(read_journal(path)):
        if exchange.key not in finished:
            chosen[exchange.key] = place
        if exchange.failure is None:
            finished.add(exchange.key)
    for place, exchange in enumerate(read_journal(path)):
        if chosen.get(exchange.key) == place:
            source, sent = f"{path}#{exchange.key[:16]}", exchange.transfer
            yield RawReply(source, sent.request, sent.status, sent.body, sent.transport_error)


def _json_object(data: bytes | None) -> Mapping[str, Any] | None:
    try:
        value = json.loads(data) if data is not None else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
