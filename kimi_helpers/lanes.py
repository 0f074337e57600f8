"""The requests of a run on their way: a lane an endpoint, each with a pace of its own, within one budget."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from time import monotonic
from typing import Any

import httpx
from tenacity import AsyncRetrying, RetryCallState, retry_if_result, wait_random_exponential
from tqdm import tqdm

from kimi_helpers.apis import Api, api_of
from kimi_helpers.attempt_verdicts import AttemptVerdict, judge
from kimi_helpers.group_commit import GroupCommit
from kimi_helpers.journal import Exchange, Journal
from kimi_helpers.openrouter import Transfer, send
from kimi_helpers.pacing import Pace
from kimi_helpers.run_plan import Job, Plan
from kimi_helpers.spending import Budget, billed_cost, worst_cost
from kimi_helpers.targets import Target


class RunStopped(RuntimeError):
    """The run cannot go on; the message says why and what to do. What is finished is in the journal."""


@dataclass(frozen=True)
class Retries:
    """How a transient failure is tried again, in seconds; a host's `Retry-After` is heeded up to the longest wait.

    Attributes:
        attempts: that may fail before a request is given up.
        refusals: for rate or load (429, 503, 529), which cost nothing and say that there is to be waited.
    """

    attempts: int = 4
    refusals: int = 20
    first_wait: float = 2.0
    longest_wait: float = 120.0


DEFAULT_RETRIES = Retries()


@dataclass(frozen=True)
class Summary:
    """What one run did.

    Attributes:
        asked: requests sent, repeated ones too.
        finished: replies that came.
        already_finished: replies that the journal held before.
        failed: how many gave no reply after all attempts, by the kind of the last failure.
        prompt_tokens, completion_tokens, cost: as billed for the attempts of this run, in tokens and US dollars;
            what a host does not state counts as nothing.
        stopped: which limit ended the run early, or None.
    """

    asked: int
    finished: int
    already_finished: int
    failed: dict[str, int]
    seconds: float
    prompt_tokens: int
    completion_tokens: int
    cost: float
    stopped: str | None = None


@dataclass
class Run:
    """The state that all lanes share. It lives in one event loop."""

    client: httpx.AsyncClient
    commits: GroupCommit
    lookup: Journal
    retries: Retries
    budget: Budget
    concurrency: int
    bar: "tqdm[Any]"
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    lanes: list["Lane"] = field(default_factory=list)
    in_flight: set[str] = field(default_factory=set)
    failed_because: str | None = None
    limited_by: str | None = None
    asked: int = 0
    finished: int = 0
    already_finished: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0
    tells_at: float = 0.0

    @cached_property
    def slots(self) -> asyncio.Semaphore:
        """Requests on their way to all endpoints together."""
        return asyncio.Semaphore(self.concurrency)

    def stop(self) -> None:
        """Send nothing more."""
        self.stopping.set()
        for lane in self.lanes:
            lane.pace.close()

    def count(self, verdict: AttemptVerdict) -> None:
        """A request is settled."""
        if verdict.failure is None:
            self.finished += 1
        else:
            self.failed[verdict.failure] += 1
            self._watch_failures()
        if monotonic() >= self.tells_at:
            self.tell()
        self.bar.update()

    def tell(self) -> None:
        """Bring the bar's text up to date: as often as it is drawn, for its making costs more than counting does."""
        self.tells_at = monotonic() + self.bar.mininterval
        rate = self.completion_tokens / max(monotonic() - self.budget.started, 1e-3)
        self.bar.set_postfix_str(f"{self.failed.total()} failed, {rate:.0f} tokens/s, {self.cost:.2f} $", refresh=False)

    def _watch_failures(self) -> None:
        limits, failed = self.budget.limits, self.failed.total()
        settled = self.finished + failed
        if settled >= limits.failures_after and failed > limits.failure_share * settled and not self.failed_because:
            kind, count = self.failed.most_common(1)[0]
            self.failed_because = (
                f"{failed} of {settled} requests failed, {count} of them with {kind}; look at what the journal says of "
                "them before you go on"
            )
            self.stop()

    def summary(self) -> Summary:
        """What was done."""
        return Summary(
            asked=self.asked,
            finished=self.finished,
            already_finished=self.already_finished,
            failed=dict(self.failed),
            seconds=self.seconds,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            cost=self.cost,
            stopped=self.limited_by,
        )


class Lane:
    """The requests to one endpoint. Several workers share it."""

    def __init__(self, run: Run, target: Target, plan: Plan) -> None:
        self.run = run
        self.pace = Pace(run.concurrency)
        self._target = target
        self._settings = plan.settings
        self._api: Api = api_of(run.client.base_url)
        self._jobs = self._waiting_jobs(plan)
        self._jitter = wait_random_exponential(multiplier=run.retries.first_wait, max=run.retries.longest_wait)
        run.lanes.append(self)

    async def work(self) -> None:
        """Take jobs until there are none or the run is stopped."""
        for entry in self._jobs:
            if entry is None:
                await asyncio.sleep(0)
            else:
                key, job = entry
                verdict = await self._settle(key, job)
                self.run.in_flight.discard(key)
                if verdict is not None:
                    self.run.count(verdict)
            if self.run.stopping.is_set():
                return

    def _waiting_jobs(self, plan: Plan) -> Iterator[tuple[str, Job] | None]:
        """What the journal does not hold yet; None after each look, so that a worker lets others run."""
        run = self.run
        for jobs in plan.looks(self._target, self._api):
            finished = run.lookup.finished_among(jobs)
            # A prompt that stands twice in a data set is asked once, also while its first request is on its way.
            passed = finished | (run.in_flight & jobs.keys())
            run.already_finished += len(finished)
            run.bar.update(len(finished))
            for key in jobs.keys() - passed:
                run.in_flight.add(key)
            for key, job in jobs.items():
                if key not in passed:
                    yield key, job
            yield None

    async def _settle(self, key: str, job: Job) -> AttemptVerdict | None:
        """Ask until there is a reply, or no sense in asking again; None where the run was stopped meanwhile."""
        tally: Counter[bool] = Counter()
        limits = {True: self.run.retries.refusals, False: self.run.retries.attempts}

        def is_over(state: RetryCallState) -> bool:
            verdict = _last_verdict(state)
            is_refusal = verdict is not None and verdict.is_refusal
            tally[is_refusal] += 1
            return tally[is_refusal] >= limits[is_refusal]

        retrying = AsyncRetrying(
            retry=retry_if_result(lambda verdict: verdict is not None and verdict.retriable),
            stop=is_over,
            wait=self._wait,
            sleep=self._pause,
            retry_error_callback=_last_verdict,
        )
        settled: AttemptVerdict | None = await retrying(self._attempt, key, job)
        return settled

    async def _attempt(self, key: str, job: Job) -> AttemptVerdict | None:
        """Ask once and journal what came. None, and nothing is sent, where the run was stopped meanwhile."""
        run, target = self.run, self._target
        request = job.request(self._settings, self._api)
        worst = worst_cost(target, request, self._settings.max_tokens)
        async with self.pace.turn() as began, run.slots:
            if run.stopping.is_set():
                return None
            if reason := await run.budget.reserve(worst):
                run.limited_by = run.limited_by or reason
                run.stop()
                return None
            billed = None
            try:
                run.asked += 1
                transfer = await send(run.client, request)
                verdict = judge(transfer, target.provider_name)
                billed = billed_cost(target, transfer, verdict, worst)
            finally:
                run.budget.settle(worst, billed)
            if verdict.stop and not run.failed_because:
                run.failed_because = verdict.stop
                run.stop()
            if verdict.is_refusal:
                self.pace.refused(began, min(verdict.retry_after, run.retries.longest_wait))
            else:
                self.pace.answered()
        await run.commits.add(self._exchange(key, job, transfer, verdict))
        return verdict

    def _exchange(self, key: str, job: Job, transfer: Transfer, verdict: AttemptVerdict) -> Exchange:
        usage = verdict.usage
        run = self.run
        if usage:
            run.prompt_tokens += usage.prompt_tokens or 0
            run.completion_tokens += usage.completion_tokens or 0
            run.cost += usage.cost or 0.0
        return Exchange(
            key=key,
            dataset=self._settings.dataset,
            prompt_id=job.prompt.id,
            provider=self._target.label,
            model=self._settings.model,
            sample=job.sample,
            failure=verdict.failure,
            transfer=transfer,
            prompt_tokens=usage.prompt_tokens if usage else None,
            completion_tokens=usage.completion_tokens if usage else None,
            cost=usage.cost if usage else None,
        )

    def _wait(self, state: RetryCallState) -> float:
        verdict = _last_verdict(state)
        asked_for = verdict.retry_after if verdict else 0.0
        return self._jitter(state) + min(asked_for, self.run.retries.longest_wait)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.run.stopping.wait(), seconds)


def _last_verdict(state: RetryCallState) -> AttemptVerdict | None:
    return state.outcome.result() if state.outcome else None
