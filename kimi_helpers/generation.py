"""Prompts x endpoints x samples -> a journal of raw exchanges.

A run can be broken off at any moment and begun again: what is finished in the journal is not asked for again. Every
attempt is journaled as it ends, failed ones too. Work that will fail for every prompt (a refused key, no credits, too
many failures) stops the run; what is on its way then still arrives and is kept, because it is billed.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import httpx

from kimi_helpers.group_commit import GroupCommit
from kimi_helpers.journal import Journal, RunRecord
from kimi_helpers.lanes import DEFAULT_RETRIES, Lane, Retries, Run, RunStopped, Summary
from kimi_helpers.openrouter import BASE_URL, OpenRouterError, call_plainly
from kimi_helpers.progress import open_bar
from kimi_helpers.prompts import Prompt
from kimi_helpers.run_plan import Plan, Settings
from kimi_helpers.spending import NO_LIMITS, Budget, Limits
from kimi_helpers.targets import Target, find_targets

__all__ = ["Limits", "Retries", "RunStopped", "Settings", "Summary", "generate", "run_generation"]

# While a worker waits for the disk its place would stand empty: one more worker for so many takes it meanwhile.
WORKERS_A_SPARE = 4


async def generate(
    prompts: Iterable[Prompt],
    providers: Sequence[str],
    settings: Settings,
    journal: Path | str,
    client: httpx.AsyncClient,
    *,
    samples: int = 1,
    concurrency: int = 8,
    retries: Retries = DEFAULT_RETRIES,
    limits: Limits = NO_LIMITS,
) -> Summary:
    """Ask each provider for each prompt as often as `samples` says, but for what the journal holds already.

    The settings and the address's host are fixed for the life of a journal; prompts, providers and samples may be
    added later. First samples come first, so that a run broken off covers all prompts.

    Args:
        prompts: gone through once for each provider and sample, a few in memory at a time.
        providers: slugs of the endpoint listing; none for a server that is its own provider, and for an unpinned run.
        journal: the file; it is begun where it does not exist.
        client: of `open_client`.
        concurrency: how many requests are on their way at once, where no host asks for fewer.

    Raises:
        ValueError: `samples` or `concurrency` is below 1, or a limit cannot be held or leaves nothing to do.
        OpenRouterError: a provider cannot be pinned, or cannot do what the settings ask.
        JournalError: the journal cannot be used, or can no longer be written.
        RunStopped: the API refuses all further work, or too much of it fails.
    """
    if samples < 1 or concurrency < 1:
        raise ValueError(f"samples = {samples} and concurrency = {concurrency}: both must be 1 or more.")
    targets, listing = await find_targets(client, settings.model, providers, unpinned=settings.unpinned)
    for target in targets:
        _check(target, settings, limits)
    with ExitStack() as stack:
        kept = {**asdict(settings), "host": client.base_url.host}
        opened = stack.enter_context(Journal.open(journal, kept))
        # A connection of its own: a look must not wait for the disk, as a write does.
        lookup = stack.enter_context(Journal.open(journal, kept))
        plan = Plan(prompts, settings, samples)
        size = plan.size()
        bar = stack.enter_context(open_bar(settings.dataset, None if size is None else size * len(targets)))
        terms = {"targets": [each.label for each in targets], "samples": samples, "limits": asdict(limits)}
        opened.begin_run(
            RunRecord(datetime.now(UTC).isoformat(timespec="seconds"), terms, listing.body if listing else None)
        )
        async with GroupCommit(opened) as commits:
            run = Run(client, commits, lookup, retries, Budget.after(opened.totals(), limits), concurrency, bar)
            await _work_together([Lane(run, target, plan) for target in targets], concurrency)
    if run.failed_because:
        raise RunStopped(
            f"The run stopped after {run.finished} replies: {run.failed_because}. "
            f"What is finished is kept in {journal}: run again to go on."
        )
    return run.summary()


def run_generation(
    prompts: Iterable[Prompt],
    providers: Sequence[str],
    settings: Settings,
    journal: Path | str,
    *,
    base_url: str = BASE_URL,
    samples: int = 1,
    concurrency: int = 8,
    retries: Retries = DEFAULT_RETRIES,
    limits: Limits = NO_LIMITS,
) -> Summary:
    """`generate` for scripts and notebook cells: it runs in a thread with an event loop of its own.

    An interrupt (Ctrl-C, or Jupyter's stop button) breaks the run off; what is finished is in the journal.

    Raises:
        OpenRouterError: of `open_client`.
        ValueError, JournalError, RunStopped: of `generate`.
    """

    async def main(client: httpx.AsyncClient) -> Summary:
        return await generate(
            prompts,
            providers,
            settings,
            journal,
            client,
            samples=samples,
            concurrency=concurrency,
            retries=retries,
            limits=limits,
        )

    try:
        return call_plainly(main, base_url)
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(f"Interrupted: what is finished is kept in {journal}; run again to go on.")
        raise


def _check(target: Target, settings: Settings, limits: Limits) -> None:
    """Refuse what an endpoint would refuse for each prompt, or would do otherwise than asked."""
    endpoint = target.endpoint
    if limits.dollars is not None and target.dollars(1, 1) is None:
        raise ValueError(f"{target.label} lists no price: a limit in dollars cannot be held there; limit the tokens.")
    if endpoint is None:
        return
    most = endpoint.max_completion_tokens
    if most is not None and settings.max_tokens > most:
        raise OpenRouterError(f"{target.label} gives at most {most:,} tokens: set max_tokens to that or less.")
    if settings.seed is not None and endpoint.supported_parameters and not target.offers("seed"):
        raise OpenRouterError(f"{target.label} takes no seed: leave it out (None), or name another provider.")


async def _work_together(lanes: Sequence[Lane], concurrency: int) -> None:
    started = time.perf_counter()
    try:
        async with asyncio.TaskGroup() as group:
            for lane in lanes:
                for _ in range(concurrency + concurrency // WORKERS_A_SPARE):
                    group.create_task(lane.work())
    except ExceptionGroup as errors:
        # A journal that cannot be written ends all workers: the first error says all there is to say.
        raise errors.exceptions[0] from None
    finally:
        for lane in lanes[:1]:
            lane.run.seconds = time.perf_counter() - started
            lane.run.tell()
