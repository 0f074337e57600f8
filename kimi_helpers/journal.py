"""The journal: every exchange of a generation run on disk, byte for byte, in one SQLite file.

A row is an attempt. Its key says what was asked for: data set, prompt, sample, and the request's exact bytes (which
name model, messages, provider and sampling). Any number of failed attempts may stand under a key, as evidence of what
happened and perhaps was billed, but one finished attempt only: the database itself refuses a second. A row is on disk
once `add` returns. Requests, bodies and chunk borders are compressed with zstd.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import zstandard
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from kimi_helpers.journal_rows import (
    APPLICATION_ID,
    COLUMNS,
    LOCK_SECONDS,
    PLAIN_APPLICATION_ID,
    Asked,
    Exchange,
    JournalError,
    RunRecord,
    Totals,
    check_layout,
    exchange_key,
    find_asked,
    layout_of,
    opening,
    read_journal,
    read_runs,
    read_settings,
    read_totals,
    stored_exchanges,
    stored_settings,
)

__all__ = [
    "Asked",
    "Exchange",
    "Journal",
    "JournalError",
    "RunRecord",
    "Totals",
    "exchange_key",
    "find_asked",
    "read_journal",
    "read_runs",
    "read_settings",
    "read_totals",
]

COMPRESSION_LEVEL = 3

_SCHEMA = (
    "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE exchanges (
    attempt INTEGER PRIMARY KEY,
    key TEXT NOT NULL, dataset TEXT NOT NULL, prompt_id TEXT NOT NULL, provider TEXT NOT NULL, model TEXT NOT NULL,
    sample INTEGER NOT NULL, failure TEXT, prompt_tokens INTEGER, completion_tokens INTEGER, cost REAL,
    status INTEGER, started TEXT NOT NULL, seconds REAL NOT NULL, transport_error TEXT, headers TEXT NOT NULL,
    request BLOB NOT NULL, chunks BLOB NOT NULL, body BLOB NOT NULL
)""",
    "CREATE UNIQUE INDEX finished_once ON exchanges (key) WHERE failure IS NULL",
    # Kept beside the rows: counting a million of them takes longer than a run needs to go on.
    "CREATE TABLE totals "
    "(asked INTEGER, finished INTEGER, prompt_tokens INTEGER, completion_tokens INTEGER, cost REAL)",
    "INSERT INTO totals VALUES (0, 0, 0, 0, 0)",
    "CREATE TABLE runs (run INTEGER PRIMARY KEY, started TEXT NOT NULL, terms TEXT NOT NULL, listing BLOB)",
    f"PRAGMA application_id = {APPLICATION_ID}",
)


class Journal:
    """A journal open for writing. One thread at a time may use it."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._compressor = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL)

    @classmethod
    def open(cls, path: Path | str, settings: Mapping[str, Any]) -> Self:
        """Open a journal, or begin one where the file does not exist.

        Args:
            settings: what all exchanges of the file share, as JSON values.

        Raises:
            JournalError: the file is no journal, cannot be opened, or was begun with other settings.
        """
        with opening(path):
            connection = sqlite3.connect(path, timeout=LOCK_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            with opening(path):
                _begin(connection, settings)
                check_layout(connection)
                _refuse_plain(path, connection)
                _log_ahead(connection)
            _compare(path, connection, settings)
        except BaseException:
            connection.close()
            raise
        return cls(Path(path), connection)

    def add(self, exchange: Exchange) -> bool:
        """Write an exchange; when this returns it is on disk. False: its key has a finished exchange already.

        Raises:
            JournalError: of `add_many`.
        """
        return self.add_many([exchange])[0]

    def add_many(self, exchanges: Sequence[Exchange]) -> list[bool]:
        """Write exchanges in one transaction: one wait for the disk for all of them. Of each what `add` returns.

        Raises:
            JournalError: they cannot be written, as on a full disk; none of them is.
        """
        rows = [self._row(exchange) for exchange in exchanges]
        places = ", ".join("?" * (COLUMNS.count(",") + 1))
        insert = (
            f"INSERT INTO exchanges ({COLUMNS}) VALUES ({places}) ON CONFLICT (key) WHERE failure IS NULL DO NOTHING"
        )
        try:
            with _transaction(self._connection):
                added = [self._connection.execute(insert, row).rowcount == 1 for row in rows]
                new = [exchange for exchange, is_new in zip(exchanges, added, strict=True) if is_new]
                self._connection.execute(
                    "UPDATE totals SET asked = asked + ?, finished = finished + ?, prompt_tokens = prompt_tokens + ?, "
                    "completion_tokens = completion_tokens + ?, cost = cost + ?",
                    (
                        len(new),
                        sum(each.failure is None for each in new),
                        sum(each.prompt_tokens or 0 for each in new),
                        sum(each.completion_tokens or 0 for each in new),
                        sum(each.cost or 0.0 for each in new),
                    ),
                )
        except sqlite3.Error as error:
            raise JournalError(
                f"{self.path} cannot be written ({error}): what was written before is safe; see that its disk has "
                "room and that the file may be written, and run again."
            ) from error
        return added

    def _row(self, exchange: Exchange) -> tuple[Any, ...]:
        transfer = exchange.transfer
        chunks = json.dumps(transfer.chunks, separators=(",", ":")).encode()
        compress = self._compressor.compress
        return (
            *(exchange.key, exchange.dataset, exchange.prompt_id, exchange.provider, exchange.model),
            *(exchange.sample, exchange.failure),
            *(compress(transfer.request), transfer.status, json.dumps(dict(transfer.headers))),
            *(compress(transfer.body), compress(chunks), transfer.started, transfer.seconds, transfer.transport_error),
            *(exchange.prompt_tokens, exchange.completion_tokens, exchange.cost),
        )

    def begin_run(self, run: RunRecord) -> None:
        """Note that a run begins, and how."""
        listing = None if run.listing is None else self._compressor.compress(run.listing)
        self._connection.execute(
            "INSERT INTO runs (started, terms, listing) VALUES (?, ?, ?)", (run.started, json.dumps(run.terms), listing)
        )

    def finished_among(self, keys: Iterable[str]) -> set[str]:
        """Those of some keys that need not be asked for again, at one moment."""
        look = "SELECT 1 FROM exchanges WHERE key = ? AND failure IS NULL"
        with _transaction(self._connection, "DEFERRED"):
            return {key for key in keys if self._connection.execute(look, (key,)).fetchone()}

    def finished_keys(self) -> set[str]:
        """The keys that need not be asked for again; all in memory, so for small journals."""
        return {key for (key,) in self._connection.execute("SELECT key FROM exchanges WHERE failure IS NULL")}

    def totals(self) -> Totals:
        """What all attempts so far come to."""
        return Totals(*self._connection.execute("SELECT * FROM totals").fetchone())

    def exchanges(self) -> Iterator[Exchange]:
        """All attempts in the order in which they ended, one in memory at a time."""
        return stored_exchanges(self._connection)

    def close(self) -> None:
        """Leave one plain file behind, which can be copied, and read where nothing can be written."""
        with suppress(sqlite3.OperationalError):  # Others still use the file: then the last of them does it.
            self._connection.execute("PRAGMA busy_timeout = 0")
            self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def _transaction(connection: sqlite3.Connection, kind: str = "IMMEDIATE") -> Iterator[None]:
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # SQLite has rolled back already after some errors, a full disk among them.
            connection.execute("ROLLBACK")
        raise


def _begin(connection: sqlite3.Connection, settings: Mapping[str, Any]) -> None:
    """Lay out an empty file as a journal, all at once or not at all, also when two runs begin it together."""
    with _transaction(connection):
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
            for statement in _SCHEMA:
                connection.execute(statement)
            rows = [(name, json.dumps(value)) for name, value in settings.items()]
            connection.executemany("INSERT INTO settings VALUES (?, ?)", rows)


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


def _refuse_plain(path: Path | str, connection: sqlite3.Connection) -> None:
    if layout_of(connection) == PLAIN_APPLICATION_ID:
        raise JournalError(
            f"{path} has the layout of an earlier version, which is read and no longer written: "
            f"merge it into a new journal (python -m kimi_helpers merge-journals {path} --into NEW)."
        )


def _compare(path: Path | str, connection: sqlite3.Connection, settings: Mapping[str, Any]) -> None:
    begun = stored_settings(connection)
    asked = json.loads(json.dumps(dict(settings)))
    for name in sorted(begun.keys() | asked.keys()):
        if begun.get(name) != asked.get(name):
            raise JournalError(
                f"{path} was begun with {name} = {begun.get(name)!r}, now it is {asked.get(name)!r}: "
                "keep the old value, or name a new journal."
            )
