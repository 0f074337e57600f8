"""What a run may spend, checked before each request on the worst that all requests on their way can come to."""

import asyncio
from dataclasses import dataclass, field
from time import monotonic

from kimi_helpers.attempt_verdicts import AttemptVerdict
from kimi_helpers.journal import Totals
from kimi_helpers.openrouter import Transfer
from kimi_helpers.targets import Target


@dataclass(frozen=True)
class Limits:
    """Where a run ends, although requests are left; None is no limit.

    Attributes:
        dollars, requests, tokens: of all attempts of a journal, so that going on does not spend them again. Tokens are
            those of prompts and replies together.
        seconds: of one run; what is on its way then may still end.
        failure_share: of the requests of one run that are settled; where more have failed, something is wrong.
        failures_after: how many must be settled before the share counts.
    """

    dollars: float | None = None
    requests: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    failure_share: float = 0.5
    failures_after: int = 20


NO_LIMITS = Limits()


@dataclass(frozen=True)
class Cost:
    """What a request comes to.

    Attributes:
        tokens: of prompt and reply.
        dollars: None where no price is known.
    """

    tokens: int
    dollars: float | None


def worst_cost(target: Target, request: bytes, max_tokens: int) -> Cost:
    """The most that a request can come to: a token is a byte at least, and the reply is as long as it may be."""
    return Cost(len(request) + max_tokens, target.dollars(len(request), max_tokens))


def billed_cost(target: Target, transfer: Transfer, verdict: AttemptVerdict, worst: Cost) -> Cost:
    """What an attempt was billed: as stated, else by the listed price, else the worst where a reply had begun."""
    usage = verdict.usage
    if usage is None or usage.completion_tokens is None:
        may_be_billed = transfer.status is None or transfer.status == 200
        began = may_be_billed and bool(transfer.body)
        return worst if began else Cost(0, 0.0)
    prompt_tokens = usage.prompt_tokens or 0
    dollars = usage.cost if usage.cost is not None else target.dollars(prompt_tokens, usage.completion_tokens)
    return Cost(prompt_tokens + usage.completion_tokens, dollars)


@dataclass
class Budget:
    """What is spent and what is on its way, held against the limits. It lives in one event loop.

    Attributes:
        spent: by the journal so far; `requests` counts attempts.
    """

    limits: Limits
    requests: int
    tokens: int
    dollars: float
    started: float = field(default_factory=monotonic)
    in_flight: int = 0
    tokens_in_flight: int = 0
    dollars_in_flight: float = 0.0
    _settled: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    def after(cls, totals: Totals, limits: Limits) -> "Budget":
        """The budget of a journal that has spent something already."""
        return cls(limits, totals.asked, totals.prompt_tokens + totals.completion_tokens, totals.cost)

    async def reserve(self, worst: Cost) -> str | None:
        """Wait until a request fits beside those on their way. Then None; else, where it never will, why not."""
        while reason := self._excess(worst):
            if not self.in_flight or self.is_late():
                return reason
            self._settled.clear()
            await self._settled.wait()
        self.in_flight += 1
        self.tokens_in_flight += worst.tokens
        self.dollars_in_flight += worst.dollars or 0.0
        return None

    def settle(self, worst: Cost, billed: Cost | None) -> None:
        """A reserved request has ended; None: it was never sent, or is not known to have been billed."""
        self.in_flight -= 1
        self.tokens_in_flight -= worst.tokens
        self.dollars_in_flight -= worst.dollars or 0.0
        if billed:
            self.requests += 1
            self.tokens += billed.tokens
            self.dollars += billed.dollars or 0.0
        self._settled.set()

    def is_late(self) -> bool:
        """Whether the time is up."""
        return self.limits.seconds is not None and monotonic() - self.started >= self.limits.seconds

    def _excess(self, worst: Cost) -> str | None:
        limits = self.limits
        if self.is_late():
            return f"the limit of {limits.seconds:g} seconds is reached"
        if limits.requests is not None and self.requests + self.in_flight + 1 > limits.requests:
            return f"the limit of {limits.requests:,} requests is reached"
        if limits.tokens is not None and self.tokens + self.tokens_in_flight + worst.tokens > limits.tokens:
            return (
                f"{self.tokens:,} tokens are spent, and the next request could take {worst.tokens:,}: "
                f"the limit is {limits.tokens:,}"
            )
        dollars = worst.dollars or 0.0
        if limits.dollars is not None and self.dollars + self.dollars_in_flight + dollars > limits.dollars:
            return (
                f"{self.dollars:.4f} dollars are spent, and the next request could cost {dollars:.4f}: "
                f"the limit is {limits.dollars:g}"
            )
        return None
