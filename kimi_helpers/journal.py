"""The journal: every exchange of a generation run on disk, byte for byte, in one SQLite file.

A row is an attempt. Its key says what was asked for: data set, prompt, sample, and the request's exact bytes (which
name model, provider and sampling). Any number of failed attempts may stand under a key, as evidence of what happened
and perhaps was billed, but one finished attempt only: the database itself refuses a second. A row is on disk once
`add` returns. Bodies are stored plain, so that any SQLite tool reads them.
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from kimi_helpers.openrouter import Transfer

# Marks the file as a journal of this layout (`PRAGMA application_id`).
APPLICATION_ID = int.from_bytes(b"KHJ1")
LOCK_SECONDS = 30

_SCHEMA = (
    "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE exchanges (
    attempt INTEGER PRIMARY KEY,
    key TEXT NOT NULL, dataset TEXT NOT NULL, prompt_id TEXT NOT NULL, provider TEXT NOT NULL, model TEXT NOT NULL,
    sample INTEGER NOT NULL, failure TEXT,
    request BLOB NOT NULL, status INTEGER, headers TEXT NOT NULL, body BLOB NOT NULL, chunks TEXT NOT NULL,
    started TEXT NOT NULL, seconds REAL NOT NULL, transport_error TEXT
)""",
    "CREATE UNIQUE INDEX finished_once ON exchanges (key) WHERE failure IS NULL",
    f"PRAGMA application_id = {APPLICATION_ID}",
)

_COLUMNS = (
    "key, dataset, prompt_id, provider, model, sample, failure, "
    "request, status, headers, body, chunks, started, seconds, transport_error"
)


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
    """

    key: str
    dataset: str
    prompt_id: str
    provider: str
    model: str
    sample: int
    failure: str | None
    transfer: Transfer


def exchange_key(dataset: str, prompt_id: str, sample: int, request: bytes) -> str:
    """The sha256 of what is asked for, in hexadecimal digits."""
    name = json.dumps([dataset, prompt_id, sample]).encode()
    return hashlib.sha256(name + b"\n" + request).hexdigest()


class Journal:
    """A journal open for writing. It belongs to the thread that opened it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    def open(cls, path: Path | str, settings: Mapping[str, Any]) -> Self:
        """Open a journal, or begin one where the file does not exist.

        Args:
            settings: what all exchanges of the file share, as JSON values.

        Raises:
            JournalError: the file is no journal, cannot be opened, or was begun with other settings.
        """
        with _opening(path):
            connection = sqlite3.connect(path, timeout=LOCK_SECONDS, isolation_level=None)
        try:
            with _opening(path):
                _begin(connection, settings)
                _check(connection)
                _log_ahead(connection)
            _compare(path, connection, settings)
        except BaseException:
            connection.close()
            raise
        return cls(connection)

    def add(self, exchange: Exchange) -> bool:
        """Write an exchange; when this returns it is on disk. False: its key has a finished exchange already."""
        transfer = exchange.transfer
        values = (
            *(exchange.key, exchange.dataset, exchange.prompt_id, exchange.provider, exchange.model),
            *(exchange.sample, exchange.failure),
            *(transfer.request, transfer.status, json.dumps(dict(transfer.headers)), transfer.body),
            *(json.dumps(transfer.chunks, separators=(",", ":")), transfer.started, transfer.seconds),
            transfer.transport_error,
        )
        places = ", ".join("?" * len(values))
        insert = (
            f"INSERT INTO exchanges ({_COLUMNS}) VALUES ({places}) ON CONFLICT (key) WHERE failure IS NULL DO NOTHING"
        )
        return self._connection.execute(insert, values).rowcount == 1

    def finished_keys(self) -> set[str]:
        """The keys that need not be asked for again."""
        return {key for (key,) in self._connection.execute("SELECT key FROM exchanges WHERE failure IS NULL")}

    def exchanges(self) -> Iterator[Exchange]:
        """All attempts in the order in which they ended, one in memory at a time."""
        return _exchanges(self._connection)

    def close(self) -> None:
        """Leave one plain file behind, which can be copied, and read where nothing can be written."""
        self._connection.execute("PRAGMA busy_timeout = 0")
        with suppress(sqlite3.OperationalError):  # Others still use the file: then the last of them does it.
            self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_journal(path: Path | str) -> Iterator[Exchange]:
    """All attempts of a journal in the order in which they ended, one in memory at a time.

    The file is opened read-only, also while a run writes to it: then the rows are those of the moment.

    Raises:
        JournalError: the file does not exist or is no journal.
    """
    if not Path(path).is_file():
        raise JournalError(f"{path} does not exist: generate replies first, or name another journal.")
    with _opening(path):
        connection = sqlite3.connect(f"{Path(path).resolve().as_uri()}?mode=ro", uri=True, timeout=LOCK_SECONDS)
    with closing(connection):
        with _opening(path):
            _check(connection)
        with _reading(path):
            yield from _exchanges(connection)


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


def find_asked(path: Path | str, key_starts: Iterable[str]) -> Iterator[Asked | None]:
    """What was asked for, by the first digits of each key; None where the journal has no such exchange.

    Raises:
        JournalError: the file does not exist or is no journal.
    """
    if not Path(path).is_file():
        raise JournalError(f"{path} does not exist: name the journal that the rows were read from.")
    with _opening(path):
        connection = sqlite3.connect(f"{Path(path).resolve().as_uri()}?mode=ro", uri=True, timeout=LOCK_SECONDS)
    with closing(connection):
        with _opening(path):
            _check(connection)
        with _reading(path):
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
    return Asked(*row) if row else None


@contextmanager
def _opening(path: Path | str) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise JournalError(
            f"{path} cannot be opened ({error}): check that its folder exists and that no other program holds it."
        ) from None
    except sqlite3.DatabaseError:
        raise JournalError(f"{path} is no journal of replies: name another file.") from None


@contextmanager
def _reading(path: Path | str) -> Iterator[None]:
    try:
        yield
    except (sqlite3.DatabaseError, ValueError, TypeError) as error:
        raise JournalError(
            f"{path} is damaged ({error}): the rows before can be read; take a copy of the file."
        ) from None


def _begin(connection: sqlite3.Connection, settings: Mapping[str, Any]) -> None:
    """Lay out an empty file as a journal, all at once or not at all, also when two runs begin it together."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
            for statement in _SCHEMA:
                connection.execute(statement)
            rows = [(name, json.dumps(value)) for name, value in settings.items()]
            connection.executemany("INSERT INTO settings VALUES (?, ?)", rows)
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _log_ahead(connection: sqlite3.Connection) -> None:
    """Let others read while this connection writes, and let a commit be on disk when it returns."""
    # SQLite does not wait for the lock that the change of mode needs, once in the life of a file.
    for attempt in Retrying(
        retry=retry_if_exception_type(sqlite3.OperationalError),
        wait=wait_fixed(0.02),
        stop=stop_after_delay(LOCK_SECONDS),
        reraise=True,
    ):
        with attempt:
            connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")


def _check(connection: sqlite3.Connection) -> None:
    if connection.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
        raise sqlite3.DatabaseError("another program's database")


def _compare(path: Path | str, connection: sqlite3.Connection, settings: Mapping[str, Any]) -> None:
    begun = {name: json.loads(value) for name, value in connection.execute("SELECT name, value FROM settings")}
    asked = json.loads(json.dumps(dict(settings)))
    for name in sorted(begun.keys() | asked.keys()):
        if begun.get(name) != asked.get(name):
            raise JournalError(
                f"{path} was begun with {name} = {begun.get(name)!r}, now it is {asked.get(name)!r}: "
                "keep the old value, or name a new journal."
            )


def _exchanges(connection: sqlite3.Connection) -> Iterator[Exchange]:
    for row in connection.execute(f"SELECT {_COLUMNS} FROM exchanges ORDER BY attempt"):
        key, dataset, prompt_id, provider, model, sample, failure, *rest = row
        request, status, headers, body, chunks, started, seconds, transport_error = rest
        transfer = Transfer(
            request=request,
            status=status,
            headers=json.loads(headers),
            body=body,
            chunks=tuple((end, microseconds) for end, microseconds in json.loads(chunks)),
            started=started,
            seconds=seconds,
            transport_error=transport_error,
        )
        yield Exchange(key, dataset, prompt_id, provider, model, sample, failure, transfer)
