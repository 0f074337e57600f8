"""The run of a calibration: its requests -> a journal of raw exchanges, which every later stage reads.

It can be broken off and begun again: what is finished in the journal is not asked for again. It stops where the dollars
that hosts bill reach the budget.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from anyio.from_thread import start_blocking_portal
from tenacity import AsyncRetrying, RetryCallState, retry_if_result, stop_after_attempt, wait_random_exponential

from kimi_helpers.attempt_verdicts import AttemptVerdict, judge
from kimi_helpers.calibration import DATASET, CalibrationPrompt, calibration_requests
from kimi_helpers.journal import Exchange, Journal, exchange_key
from kimi_helpers.openrouter import BASE_URL, encode_body, open_client, send

ATTEMPTS = 3
FIRST_WAIT, LONGEST_WAIT = 2.0, 60.0


class CalibrationStopped(RuntimeError):
    """The calibration cannot go on; the message says why. What is finished is in the journal."""


@dataclass(frozen=True)
class CalibrationSummary:
    """What one run of a calibration did.

    Attributes:
        asked: requests sent, repeated ones too.
        finished: replies that came.
        already_finished: replies that the journal held before.
        failed: requests that gave no reply, by the kind of the last failure.
        dollars: as billed in this run.
    """

    asked: int
    finished: int
    already_finished: int
    failed: dict[str, int]
    dollars: float


@dataclass(frozen=True)
class _Job:
    key: str
    prompt_id: str
    slug: str
    sample: int
    request: bytes


@dataclass
class _Run:
    """The state of a run; it lives in one event loop."""

    client: httpx.AsyncClient
    journal: Journal
    model: str
    budget: float
    asked: int = 0
    finished: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    dollars: float = 0.0
    stop_reason: str = ""

    async def work(self, jobs: Iterator[_Job]) -> None:
        """Take jobs until there are none or the run is stopped; several workers share the iterator."""
        retrying = AsyncRetrying(
            retry=retry_if_result(lambda verdict: verdict is not None and verdict.retriable),
            stop=stop_after_attempt(ATTEMPTS),
            wait=wait_random_exponential(multiplier=FIRST_WAIT, max=LONGEST_WAIT),
            retry_error_callback=_last_verdict,
        )
        for job in jobs:
            verdict: AttemptVerdict | None = await retrying(self._attempt, job)
            if verdict is None:
                return
            if verdict.failure is None:
                self.finished += 1
            else:
                self.failed[verdict.failure] += 1

    async def _attempt(self, job: _Job) -> AttemptVerdict | None:
        """Ask once and journal what came; None, and nothing is sent, where the run is stopped."""
        if self.stop_reason:
            return None
        self.asked += 1
        transfer = await send(self.client, job.request)
        verdict = judge(transfer)
        names = (DATASET, job.prompt_id, job.slug, self.model, job.sample)
        self.journal.add(Exchange(job.key, *names, verdict.failure, transfer))
        self.dollars += (verdict.usage and verdict.usage.cost) or 0.0
        if verdict.stop:
            self.stop_reason = verdict.stop
        elif self.dollars >= self.budget:
            self.stop_reason = f"the budget of {self.budget:g} dollars is used up"
        return verdict


def _last_verdict(state: RetryCallState) -> AttemptVerdict | None:
    return state.outcome.result() if state.outcome else None


def run_calibration(
    prompts: Sequence[CalibrationPrompt],
    hosts: Mapping[str, frozenset[str]],
    model: str,
    journal: Path | str,
    *,
    budget: float,
    base_url: str = BASE_URL,
    samples: int = 1,
    concurrency: int = 8,
) -> CalibrationSummary:
    """Ask each host each calibration prompt, whole and streamed, but for what the journal holds already.

    Args:
        prompts: of `read_calibration`.
        hosts: full slug -> what its endpoint lists of `logprobs` and `return_token_ids`, which is then asked for.
        model: `author/slug`.
        journal: the file; it is begun where it does not exist.
        budget: US dollars at which the run stops.
        samples: replies to each prompt in each transport.
        concurrency: requests on their way at once.

    Raises:
        ValueError: no host is named, or `samples` or `concurrency` is below 1.
        OpenRouterError: of `open_client`.
        JournalError: the journal cannot be used.
        CalibrationStopped: the API refuses all further work, or the budget is used up.
    """
    if not hosts:
        raise ValueError("No host is named: name at least one endpoint.")
    if samples < 1 or concurrency < 1:
        raise ValueError(f"samples = {samples} and concurrency = {concurrency}: both must be 1 or more.")

    async def main() -> CalibrationSummary:
        async with open_client(base_url) as client:
            settings = {"dataset": DATASET, "model": model, "host": client.base_url.host}
            with Journal.open(journal, settings) as opened:
                return await _ask(_Run(client, opened, model, budget), prompts, hosts, samples, concurrency)

    with start_blocking_portal() as portal:
        return portal.call(main)


async def _ask(
    run: _Run, prompts: Sequence[CalibrationPrompt], hosts: Mapping[str, frozenset[str]], samples: int, concurrency: int
) -> CalibrationSummary:
    jobs = list(_jobs(prompts, hosts, run.model, samples))
    finished = run.journal.finished_keys()
    waiting = [job for job in jobs if job.key not in finished]
    shared = iter(waiting)
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(waiting))):
                group.create_task(run.work(shared))
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None  # a journal that cannot be written ends all workers alike
    done = run.finished + run.failed.total()
    if run.stop_reason and done < len(waiting):
        raise CalibrationStopped(
            f"The calibration stopped after {done} of {len(waiting)} requests: {run.stop_reason}. What is finished is"
            " kept: run again to go on."
        )
    return CalibrationSummary(run.asked, run.finished, len(jobs) - len(waiting), dict(run.failed), run.dollars)


def _jobs(
    prompts: Sequence[CalibrationPrompt], hosts: Mapping[str, frozenset[str]], model: str, samples: int
) -> Iterator[_Job]:
    for slug, evidence in hosts.items():
        for asked, sample, body in calibration_requests(prompts, model, slug, samples, evidence):
            request = encode_body(body)
            yield _Job(exchange_key(DATASET, asked.prompt.id, sample, request), asked.prompt.id, slug, sample, request)
