"""Prompts x providers x samples -> a journal of raw exchanges.

A run can be broken off at any moment and begun again: what is finished in the journal is not asked for again. Every
attempt is journaled as it ends, failed ones too. Work that will fail for every prompt (a refused key, no credits)
stops the run; what is on its way then still arrives and is kept, because it is billed.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import NoReturn

import httpx
from anyio.from_thread import start_blocking_portal
from tenacity import AsyncRetrying, RetryCallState, retry_if_result, stop_after_attempt, wait_random_exponential
from tqdm import tqdm

from kimi_helpers.attempt_verdicts import AttemptVerdict, judge
from kimi_helpers.journal import Exchange, Journal, exchange_key
from kimi_helpers.openrouter import BASE_URL, encode_body, open_client, request_body, send
from kimi_helpers.prompts import Prompt


class RunStopped(RuntimeError):
    """The run cannot go on; the message says why and what to do. What is finished is in the journal."""


@dataclass(frozen=True)
class Settings:
    """What all replies of a journal share.

    Attributes:
        dataset: the name of the prompt set.
        model: `author/slug`.
        seed: of the first sample; each further sample counts one up. None: no seed is sent.
        stream: ask for server-sent events, which show where a reply broke off.
        return_token_ids, logprobs: ask for better evidence of the tokens, as `request_body`.
    """

    dataset: str
    model: str
    max_tokens: int
    temperature: float
    top_p: float
    seed: int | None = None
    stream: bool = True
    return_token_ids: bool = False
    logprobs: bool = False


@dataclass(frozen=True)
class Retries:
    """How a transient failure is tried again, in seconds; a host's `Retry-After` is heeded up to the longest wait."""

    attempts: int = 4
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
    """

    asked: int
    finished: int
    already_finished: int
    failed: dict[str, int]
    seconds: float
    prompt_tokens: int
    completion_tokens: int
    cost: float


@dataclass(frozen=True)
class _Job:
    prompt: Prompt
    provider: str
    sample: int

    def request(self, settings: Settings) -> bytes:
        """The request's bytes. They are made anew for each use: a large run would not fit into memory otherwise."""
        body = request_body(
            self.prompt,
            settings.model,
            self.provider,
            max_tokens=settings.max_tokens,
            temperature=settings.temperature,
            top_p=settings.top_p,
            seed=None if settings.seed is None else settings.seed + self.sample,
            stream=settings.stream,
            return_token_ids=settings.return_token_ids,
            logprobs=settings.logprobs,
        )
        return encode_body(body)


@dataclass
class _Run:
    """The state of a run. It lives in one event loop and one thread."""

    settings: Settings
    client: httpx.AsyncClient
    journal: Journal
    retries: Retries
    bar: "tqdm[NoReturn]"
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    stop_reason: str = ""
    asked: int = 0
    finished: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0

    async def work(self, jobs: Iterator[tuple[str, _Job]]) -> None:
        """Take (key, job) pairs until there are none or the run is stopped. Several workers share the iterator."""
        jitter = wait_random_exponential(multiplier=self.retries.first_wait, max=self.retries.longest_wait)

        def wait(state: RetryCallState) -> float:
            verdict = _last_verdict(state)
            asked_for = verdict.retry_after if verdict else 0.0
            return jitter(state) + min(asked_for, self.retries.longest_wait)

        retrying = AsyncRetrying(
            retry=retry_if_result(lambda verdict: verdict is not None and verdict.retriable),
            stop=stop_after_attempt(self.retries.attempts),
            wait=wait,
            sleep=self._pause,
            retry_error_callback=_last_verdict,
        )
        for key, job in jobs:
            verdict: AttemptVerdict | None = await retrying(self._attempt, key, job)
            if verdict is None:
                return
            if verdict.failure is None:
                self.finished += 1
            else:
                self.failed[verdict.failure] += 1
                self.bar.set_postfix(failed=self.failed.total(), refresh=False)
            self.bar.update()

    async def _attempt(self, key: str, job: _Job) -> AttemptVerdict | None:
        """Ask once and journal what came. None, and nothing is sent, where the run was stopped meanwhile."""
        if self.stopped.is_set():
            return None
        self.asked += 1
        transfer = await send(self.client, job.request(self.settings))
        verdict = judge(transfer)
        names = (self.settings.dataset, job.prompt.id, job.provider, self.settings.model, job.sample)
        self.journal.add(Exchange(key, *names, verdict.failure, transfer))
        if usage := verdict.usage:
            self.prompt_tokens += usage.prompt_tokens or 0
            self.completion_tokens += usage.completion_tokens or 0
            self.cost += usage.cost or 0.0
        if verdict.stop and not self.stopped.is_set():
            self.stop_reason = verdict.stop
            self.stopped.set()
        return verdict

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.stopped.wait(), seconds)


def _last_verdict(state: RetryCallState) -> AttemptVerdict | None:
    return state.outcome.result() if state.outcome else None


async def generate(
    prompts: Sequence[Prompt],
    providers: Sequence[str],
    settings: Settings,
    journal: Path | str,
    client: httpx.AsyncClient,
    *,
    samples: int = 1,
    concurrency: int = 8,
    retries: Retries = DEFAULT_RETRIES,
) -> Summary:
    """Ask each provider for each prompt as often as `samples` says, but for what the journal holds already.

    The settings and the address's host are fixed for the life of a journal; prompts, providers and samples may be
    added later. First samples come first, so that a run broken off covers all prompts.

    Args:
        journal: the file; it is begun where it does not exist.
        client: of `open_client`.
        concurrency: how many requests are on their way at once.

    Raises:
        ValueError: there is no provider, or `samples` or `concurrency` is below 1.
        JournalError: the journal cannot be used.
        RunStopped: the API refuses all further work.
    """
    if not providers:
        raise ValueError("No provider is named: replies of mixed hosts cannot be reconstructed, so name at least one.")
    if samples < 1 or concurrency < 1:
        raise ValueError(f"samples = {samples} and concurrency = {concurrency}: both must be 1 or more.")
    start = time.perf_counter()
    with Journal.open(journal, {**asdict(settings), "host": client.base_url.host}) as opened:
        jobs = _plan(prompts, providers, samples, settings)
        finished = opened.finished_keys()
        waiting = {key: job for key, job in jobs.items() if key not in finished}
        done = len(jobs) - len(waiting)
        with tqdm(desc=settings.dataset, total=len(jobs), initial=done, unit="reply") as bar:
            run = _Run(settings, client, opened, retries, bar)
            await _work_together(run, waiting, concurrency)
    if run.stop_reason:
        raise RunStopped(
            f"The run stopped after {run.finished} of {len(waiting)} replies: {run.stop_reason}. "
            f"What is finished is kept in {journal}: run again to go on."
        )
    return Summary(
        asked=run.asked,
        finished=run.finished,
        already_finished=done,
        failed=dict(run.failed),
        seconds=time.perf_counter() - start,
        prompt_tokens=run.prompt_tokens,
        completion_tokens=run.completion_tokens,
        cost=run.cost,
    )


def run_generation(
    prompts: Sequence[Prompt],
    providers: Sequence[str],
    settings: Settings,
    journal: Path | str,
    *,
    base_url: str = BASE_URL,
    samples: int = 1,
    concurrency: int = 8,
    retries: Retries = DEFAULT_RETRIES,
) -> Summary:
    """`generate` for scripts and notebook cells: it runs in a thread with an event loop of its own.

    An interrupt (Ctrl-C, or Jupyter's stop button) breaks the run off; what is finished is in the journal.

    Raises:
        OpenRouterError: of `open_client`.
        ValueError, JournalError, RunStopped: of `generate`.
    """

    async def main() -> Summary:
        async with open_client(base_url) as client:
            return await generate(
                prompts,
                providers,
                settings,
                journal,
                client,
                samples=samples,
                concurrency=concurrency,
                retries=retries,
            )

    with start_blocking_portal() as portal:
        return portal.call(main)


def _plan(prompts: Sequence[Prompt], providers: Sequence[str], samples: int, settings: Settings) -> dict[str, _Job]:
    """All that is asked for, by key. First samples come first, so that a run broken off covers all prompts."""
    jobs = (_Job(prompt, provider, sample) for sample, prompt, provider in product(range(samples), prompts, providers))
    return {exchange_key(settings.dataset, job.prompt.id, job.sample, job.request(settings)): job for job in jobs}


async def _work_together(run: _Run, jobs: Mapping[str, _Job], concurrency: int) -> None:
    shared = iter(jobs.items())
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(jobs))):
                group.create_task(run.work(shared))
    except ExceptionGroup as errors:
        # A journal that cannot be written ends all workers: the first error says all there is to say.
        raise errors.exceptions[0] from None
