"""Where replies are read from: recorded bodies and journals, each reply with the request that asked for it."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kimi_helpers.journal import Exchange, read_journal
from kimi_helpers.replies import Failure, FailureKind, Reply, parse_reply

BODY_SUFFIXES = (".json", ".sse")
REQUEST_SUFFIX = ".request.json"
_SQLITE = b"SQLite format 3\0"


class SourceError(ValueError):
    """A path that holds no replies; the message says what can be given."""


@dataclass(frozen=True)
class SourcedReply:
    """A reply and where it came from.

    Attributes:
        source: the file, or the journal and the key in it.
        request: the request's body, or None where it was not kept.
        outcome: the parsed reply, or why there is none.
    """

    source: str
    request: Mapping[str, Any] | None
    outcome: Reply | Failure


def find_sources(paths: Sequence[Path]) -> list[Path]:
    """The journals and recorded bodies among `paths`; a folder stands for the bodies in it.

    A body is a `.json` or `.sse` file; `NAME.request.json` is the request of `NAME`, no body.

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
            f"no replies in {', '.join(map(str, paths)) or 'no path'}: give recorded bodies (.json, .sse), folders of"
            " them, or journals."
        )
    return found


def _is_body(path: Path) -> bool:
    return path.suffix in BODY_SUFFIXES and not path.name.endswith(REQUEST_SUFFIX)


def _is_database(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


def read_sources(sources: Iterable[Path]) -> Iterator[SourcedReply]:
    """The replies of journals and recorded bodies, one in memory at a time.

    Raises:
        SourceError: a body cannot be read.
        JournalError: a database that is no journal.
    """
    for source in sources:
        if _is_database(source):
            yield from _from_journal(source)
        else:
            yield _from_file(source)


def _from_file(path: Path) -> SourcedReply:
    beside = path.with_name(path.stem + REQUEST_SUFFIX)
    try:
        request = _request(beside.read_bytes()) if beside.is_file() else None
        return SourcedReply(str(path), request, parse_reply(path.read_bytes(), status=None))
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}.") from None


def _from_journal(path: Path) -> Iterator[SourcedReply]:
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
            source = f"{path}#{exchange.key[:16]}"
            yield SourcedReply(source, _request(exchange.transfer.request), _outcome(exchange))


def _outcome(exchange: Exchange) -> Reply | Failure:
    transfer = exchange.transfer
    outcome = parse_reply(transfer.body, status=transfer.status)
    if transfer.transport_error is None or isinstance(outcome, Failure):
        return outcome
    return Failure(
        kind=FailureKind.STREAM_CUT,
        status=transfer.status,
        code=None,
        message=f"the exchange broke off: {transfer.transport_error}",
        provider=outcome.provider,
        model=outcome.model,
        generation_id=outcome.generation_id,
        usage=outcome.usage,
        partial=outcome,
        transport=outcome.transport,
    )


def _request(data: bytes) -> Mapping[str, Any] | None:
    try:
        request = json.loads(data)
    except ValueError:
        return None
    return request if isinstance(request, dict) else None
