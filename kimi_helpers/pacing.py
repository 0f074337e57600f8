"""How many requests are on their way to one endpoint: fewer once it says that they are too many, then slowly more.

As TCP does it (additive increase, multiplicative decrease, RFC 5681): each refusal for rate or load halves the number,
once for all requests that were on their way together; each answer raises it a little, by one a round.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from time import monotonic


class Pace:
    """The gate before one endpoint. It lives in one event loop.

    Attributes:
        most: requests on their way at once at the best of times.
        limit: the number now.
        in_flight: requests on their way.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.limit = float(most)
        self.in_flight = 0
        self._resumes = 0.0
        self._halved = 0.0
        self._is_closed = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[float]:
        """Wait for a turn, and hold it: the time at which it began."""
        while not self._is_closed and (self.in_flight >= int(self.limit) or self._resumes > monotonic()):
            await self._wait()
        self.in_flight += 1
        try:
            yield monotonic()
        finally:
            self.in_flight -= 1
            self._wake()

    def answered(self) -> None:
        """The endpoint took a request."""
        self.limit = min(self.most, self.limit + 1 / self.limit)

    def refused(self, began: float, retry_after: float) -> None:
        """The endpoint refused a request for rate or load.

        Args:
            began: when the request's turn began; of requests that were on their way together one refusal counts.
            retry_after: seconds in which nothing is sent, by the endpoint's own word; 0 where it says none.
        """
        now = monotonic()
        if began > self._halved:
            self._halved = now
            self.limit = max(1.0, min(self.limit, self.in_flight) / 2)
        self._resumes = max(self._resumes, now + retry_after)

    def close(self) -> None:
        """Let all pass who wait: they are to see that the run is over."""
        self._is_closed = True
        for turn in self._waiting:
            if not turn.done():
                turn.set_result(None)

    async def _wait(self) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        pause = self._resumes - monotonic()
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(turn, pause if pause > 0 else None)
        finally:
            if turn in self._waiting:
                self._waiting.remove(turn)

    def _wake(self) -> None:
        free = int(self.limit) - self.in_flight
        while free > 0 and self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                free -= 1
