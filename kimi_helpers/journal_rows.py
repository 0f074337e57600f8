"""Exchanges as rows of a journal, and the reading of journals of any layout.

See `journal` for what a row is. The first layout had plain bodies; it is read, and no longer written.
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

from kimi_helpers.openrouter import Transfer

# Marks the file as a journal of this layout (`PRAGMA application_id`).
APPLICATION_ID = int.from_bytes(b"KHJ2")
# The layout before, whose bodies are plain: it is read and merged, and no longer written.
PLAIN_APPLICATION_ID = int.from_bytes(b"KHJ1")
LOCK_SECONDS = 30

_NAMES = "key, dataset, prompt_id, provider, model, sample, failure"
_TRANSFER = "request, status, headers, body, chunks, started, seconds, transport_error"
_BILLED = "prompt_tokens, completion_tokens, cost"
COLUMNS = f"{_NAMES}, {_TRANSFER}, {_BILLED}"
# Of each key the finished attempt, else the last one.
_SETTLED = "SELECT coalesce(max(CASE WHEN failure IS NULL THEN attempt END), max(attempt)) FROM exchanges GROUP BY key"


class JournalError(ValueError):
    """A journal that cannot be used; the message names the file, what is wrong and what to do."""


@dataclass(frozen=True)
class Exchange:
    """One attempt to get one sample of one prompt from one provider.

    Attributes:
        key: of `exchange_key`.
        provider: the slug asked for; who answered is in the body.
        model: the name asked for; the canonical one is in the body.
        sample: from 0.
        failure: why generation did not take the attempt for a reply (a kind), None where it did.
        transfer: what was sent and what came back.
        prompt_tokens, completion_tokens, cost: as billed, in tokens and US dollars; None where it is not stated.
    """

    key: str
    dataset: str
    prompt_id: str
    provider: str
    model: str
    sample: int
    failure: str | None
    transfer: Transfer
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost: float | None = None


@dataclass(frozen=True)
class Totals:
    """What all attempts of a journal come to.

    Attributes:
        asked: attempts, failed ones too.
        finished: replies.
        prompt_tokens, completion_tokens, cost: as billed; what a host does not state counts as nothing.
    """

    asked: int = 0
    finished: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0


@dataclass(frozen=True)
class RunRecord:
    """One run over a journal.

    Attributes:
        started: UTC, ISO 8601.
        terms: how it was begun: providers, samples, limits.
        listing: the endpoint listing of that moment, as received; None where the API has none.
    """

    started: str
    terms: Mapping[str, Any]
    listing: bytes | None


@dataclass(frozen=True)
class Asked:
    """What an exchange asked for.

    Attributes:
        request: the body that was sent.
    """

    key: str
    dataset: str
    prompt_id: str
    sample: int
    request: bytes


def exchange_key(dataset: str, prompt_id: str, sample: int, request: bytes) -> str:
    """The sha256 of what is asked for, in hexadecimal digits."""
    name = json.dumps([dataset, prompt_id, sample]).encode()
    return hashlib.sha256(name + b"\n" + request).hexdigest()


def read_journal(path: Path | str, *, settled: bool = False) -> Iterator[Exchange]:
    """The attempts of a journal in the order in which they ended, one in memory at a time; of any layout.

    The file is opened read-only, also while a run writes to it: then the rows are those of the moment.

    Args:
        settled: of each key one attempt only: the finished one, else the last.

    Raises:
        JournalError: the file does not exist or is no journal.
    """
    with _reading(path) as connection:
        yield from stored_exchanges(connection, f"WHERE attempt IN ({_SETTLED})" if settled else "")


def read_settings(path: Path | str) -> dict[str, Any]:
    """The settings that a journal was begun with.

    Raises:
        JournalError: of `read_journal`.
    """
    with _reading(path) as connection:
        return stored_settings(connection)


def read_runs(path: Path | str) -> list[RunRecord]:
    """The runs over a journal, in their order; none where its layout does not keep them.

    Raises:
        JournalError: of `read_journal`.
    """
    with _reading(path) as connection:
        if layout_of(connection) == PLAIN_APPLICATION_ID:
            return []
        rows = connection.execute("SELECT started, terms, listing FROM runs ORDER BY run").fetchall()
        return [
            RunRecord(started, json.loads(terms), None if listing is None else zstandard.decompress(listing))
            for started, terms, listing in rows
        ]


def read_totals(path: Path | str) -> Totals:
    """What all attempts of a journal come to, also while a run writes to it.

    Raises:
        JournalError: of `read_journal`.
    """
    with _reading(path) as connection:
        if layout_of(connection) == PLAIN_APPLICATION_ID:
            asked, finished = connection.execute("SELECT count(*), sum(failure IS NULL) FROM exchanges").fetchone()
            return Totals(asked, finished or 0)
        return Totals(*connection.execute("SELECT * FROM totals").fetchone())


def find_asked(path: Path | str, key_starts: Iterable[str]) -> Iterator[Asked | None]:
    """What was asked for, by the first digits of each key; None where the journal has no such exchange.

    Raises:
        JournalError: of `read_journal`.
    """
    with _reading(path) as connection:
        yield from (_asked(connection, start) for start in key_starts)


def _asked(connection: sqlite3.Connection, start: str) -> Asked | None:
    select = "SELECT key, dataset, prompt_id, sample, request FROM exchanges WHERE"
    span = (start, start + "g")  # keys are hexadecimal digits, so all that begin so lie before
    row = connection.execute(f"{select} failure IS NULL AND key >= ? AND key < ? LIMIT 1", span).fetchone()
    if row is None:  # the index holds finished exchanges alone, so the failed ones are listed once
        connection.execute(
            "CREATE TEMP TABLE IF NOT EXISTS failed AS SELECT key, attempt FROM exchanges WHERE failure IS NOT NULL"
        )
        connection.execute("CREATE INDEX IF NOT EXISTS temp.failed_keys ON failed (key)")
        found = "(SELECT attempt FROM temp.failed WHERE key >= ? AND key < ? ORDER BY attempt DESC LIMIT 1)"
        row = connection.execute(f"{select} attempt = {found}", span).fetchone()
    if row is None:
        return None
    key, dataset, prompt_id, sample, request = row
    unpack = bytes if layout_of(connection) == PLAIN_APPLICATION_ID else zstandard.decompress
    return Asked(key, dataset, prompt_id, sample, unpack(request))


@contextmanager
def opening(path: Path | str) -> Iterator[None]:
    """Says what is wrong with a file that cannot be opened as a journal."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise JournalError(
            f"{path} cannot be opened ({error}): check that its folder exists and that no other program holds it."
        ) from None
    except sqlite3.DatabaseError:
        raise JournalError(f"{path} is no journal of replies: name another file.") from None


@contextmanager
def _reading(path: Path | str) -> Iterator[sqlite3.Connection]:
    """A connection that reads a journal and writes nothing."""
    if not Path(path).is_file():
        raise JournalError(f"{path} does not exist: generate replies first, or name another journal.")
    with opening(path):
        connection = sqlite3.connect(f"{Path(path).resolve().as_uri()}?mode=ro", uri=True, timeout=LOCK_SECONDS)
    with closing(connection):
        with opening(path):
            check_layout(connection)
        try:
            yield connection
        except (sqlite3.DatabaseError, zstandard.ZstdError, ValueError, TypeError) as error:
            raise JournalError(
                f"{path} is damaged ({error}): the rows before can be read; take a copy of the file."
            ) from None


def layout_of(connection: sqlite3.Connection) -> int:
    """The mark of a database's layout."""
    (layout,) = connection.execute("PRAGMA application_id").fetchone()
    assert isinstance(layout, int)
    return layout


def check_layout(connection: sqlite3.Connection) -> None:
    """Refuse a database that is no journal, with `sqlite3.DatabaseError`."""
    if layout_of(connection) not in (APPLICATION_ID, PLAIN_APPLICATION_ID):
        raise sqlite3.DatabaseError("another program's database")


def stored_settings(connection: sqlite3.Connection) -> dict[str, Any]:
    """The settings that a journal was begun with."""
    return {name: json.loads(value) for name, value in connection.execute("SELECT name, value FROM settings")}


def stored_exchanges(connection: sqlite3.Connection, where: str = "") -> Iterator[Exchange]:
    """The rows of a journal of any layout, in their order, one in memory at a time."""
    is_plain = layout_of(connection) == PLAIN_APPLICATION_ID
    columns = f"{_NAMES}, {_TRANSFER}, NULL, NULL, NULL" if is_plain else COLUMNS
    unpack = bytes if is_plain else zstandard.ZstdDecompressor().decompress
    for row in connection.execute(f"SELECT {columns} FROM exchanges {where} ORDER BY attempt"):
        key, dataset, prompt_id, provider, model, sample, failure, *rest = row
        request, status, headers, body, chunks, started, seconds, transport_error, *billed = rest
        transfer = Transfer(
            request=unpack(request),
            status=status,
            headers=json.loads(headers),
            body=unpack(body),
            chunks=tuple((end, micros) for end, micros in json.loads(chunks if is_plain else unpack(chunks))),
            started=started,
            seconds=seconds,
            transport_error=transport_error,
        )
        yield Exchange(key, dataset, prompt_id, provider, model, sample, failure, transfer, *billed)
