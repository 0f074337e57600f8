"""What a run would ask and cost at most, from the endpoints' own prices; nothing is sent but for the listing."""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

from kimi_helpers.apis import api_of
from kimi_helpers.journal import Journal
from kimi_helpers.prompts import Prompt
from kimi_helpers.run_plan import Plan, Settings
from kimi_helpers.spending import worst_cost
from kimi_helpers.targets import find_targets


@dataclass(frozen=True)
class Estimate:
    """The most that a run can come to: every reply as long as it may be, a token a byte of the prompt.

    Attributes:
        requests: still to be asked, repeated attempts not counted.
        already_finished: replies that the journal holds.
        tokens: of prompts and replies.
        dollars: None where an endpoint lists no price.
    """

    requests: int
    already_finished: int
    tokens: int
    dollars: float | None


async def estimate(
    client: httpx.AsyncClient,
    prompts: Iterable[Prompt],
    providers: Sequence[str],
    settings: Settings,
    journal: Path | str,
    *,
    samples: int = 1,
) -> Estimate:
    """What `generate` would do with the same arguments.

    Raises:
        OpenRouterError, JournalError: as `generate`.
    """
    targets, _ = await find_targets(client, settings.model, providers, unpinned=settings.unpinned)
    api, plan = api_of(client.base_url), Plan(prompts, settings, samples)
    requests = finished = tokens = 0
    dollars: float | None = 0.0
    with ExitStack() as stack:
        kept = {**asdict(settings), "host": client.base_url.host}
        known = stack.enter_context(Journal.open(journal, kept)) if Path(journal).exists() else None
        for target in targets:
            for jobs in plan.looks(target, api):
                done = known.finished_among(jobs) if known else set()
                finished += len(done)
                for key in jobs.keys() - done:
                    worst = worst_cost(target, jobs[key].request(settings, api), settings.max_tokens)
                    requests, tokens = requests + 1, tokens + worst.tokens
                    dollars = None if dollars is None or worst.dollars is None else dollars + worst.dollars
    return Estimate(requests, finished, tokens, dollars)
