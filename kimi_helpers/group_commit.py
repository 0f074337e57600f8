"""Exchanges of an event loop on their way into a journal: all that wait are written with one wait for the disk."""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self

from kimi_helpers.journal import Exchange, Journal, JournalError


class GroupCommit:
    """Writes to a journal from a thread, one transaction at a time. Leaving it waits for what was handed in."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._waiting: list[tuple[Exchange, asyncio.Future[bool]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def add(self, exchange: Exchange) -> bool:
        """`Journal.add`: when this returns the exchange is on disk. Handed in, it is written even if nobody waits.

        Raises:
            JournalError: of `Journal.add_many`.
        """
        written: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((exchange, written))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        return await written

    async def _write(self) -> None:
        while self._waiting:
            together, self._waiting = self._waiting, []
            try:
                added = await asyncio.to_thread(self._journal.add_many, [exchange for exchange, _ in together])
            except JournalError as error:
                for _, written in together:
                    if not written.done():
                        written.set_exception(error)
            else:
                for (_, written), is_new in zip(together, added, strict=True):
                    if not written.done():
                        written.set_result(is_new)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._writing and not self._writing.done():
            # An interrupt that comes again must not cut the last transaction's wait short.
            with suppress(asyncio.CancelledError):
                await asyncio.shield(self._writing)
