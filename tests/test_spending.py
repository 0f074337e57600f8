"""What a request can cost and what a run may spend, by hand."""

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from kimi_helpers.attempt_verdicts import AttemptVerdict
from kimi_helpers.journal import Totals
from kimi_helpers.listings import Endpoint, PriceOverride, Pricing
from kimi_helpers.openrouter import Transfer
from kimi_helpers.replies import Usage
from kimi_helpers.spending import NO_LIMITS, Budget, Cost, Limits, billed_cost, worst_cost
from kimi_helpers.targets import Target

# 2 dollars a prompt token, 3 a reply's, 10 a request; from 50 prompt tokens on 4 a prompt token
PRICES = Pricing(
    prompt=Decimal(2),
    completion=Decimal(3),
    request=Decimal(10),
    overrides=(PriceOverride(min_prompt_tokens=50, prompt=Decimal(4)),),
)


def target(pricing: Pricing = PRICES) -> Target:
    return Target("p/int4", "p/int4", Endpoint(tag="p/int4", provider_name="P", pricing=pricing))


def transfer(status: int | None, body: bytes) -> Transfer:
    return Transfer(b"{}", status, {}, body, (), "2026-11-29T12:00:00+00:00", 1.0, None)


def verdict(**usage: Any) -> AttemptVerdict:
    stated = {"prompt_tokens": None, "completion_tokens": None, "reasoning_tokens": None, "cached_tokens": None}
    return AttemptVerdict(None, Usage(**(stated | {"cost": None} | usage)) if usage else None)


def test_the_worst_is_a_token_a_byte_and_a_full_reply() -> None:
    assert worst_cost(target(), b"x" * 20, 100) == Cost(120, 10 + 40 + 300)
    assert worst_cost(target(), b"x" * 60, 100) == Cost(160, 10 + 240 + 300)
    assert worst_cost(target(Pricing()), b"x" * 20, 100) == Cost(120, None)


WORST = Cost(120, 350.0)


@pytest.mark.parametrize(
    ("sent", "judged", "billed"),
    [
        (transfer(200, b"data"), verdict(prompt_tokens=5, completion_tokens=7, cost=1.5), Cost(12, 1.5)),
        (transfer(200, b"data"), verdict(prompt_tokens=5, completion_tokens=7), Cost(12, 10 + 10 + 21)),
        (transfer(200, b"data"), verdict(), WORST),  # a reply began, and nobody says what it cost
        (transfer(200, b"data"), verdict(prompt_tokens=5), WORST),
        (transfer(None, b"data"), verdict(), WORST),
        (transfer(200, b""), verdict(), Cost(0, 0.0)),
        (transfer(429, b"no"), verdict(), Cost(0, 0.0)),
    ],
)
def test_what_is_billed(sent: Transfer, judged: AttemptVerdict, billed: Cost) -> None:
    assert billed_cost(target(), sent, judged, WORST) == billed


@pytest.mark.parametrize(
    ("limits", "fitting"),
    [
        # 1 request, 10 tokens and 2 dollars are spent; each further one could take 10 tokens and 2 dollars
        (Limits(requests=3), 2),
        (Limits(tokens=39), 2),
        (Limits(tokens=40), 3),
        (Limits(dollars=7.9), 2),
        (Limits(dollars=8), 3),
        (Limits(requests=1), 0),
        (Limits(seconds=0), 0),
        (NO_LIMITS, 9),
    ],
)
def test_requests_on_their_way_are_held_against_the_limits_at_their_worst(limits: Limits, fitting: int) -> None:
    async def main() -> int:
        budget = Budget.after(Totals(asked=1, finished=1, prompt_tokens=4, completion_tokens=6, cost=2.0), limits)
        for taken in range(9):
            try:
                reason = await asyncio.wait_for(budget.reserve(Cost(10, 2.0)), 0.01)
            except TimeoutError:
                return taken  # it waits for those on their way
            if reason:
                assert budget.in_flight == 0
                return taken
        return 9

    assert asyncio.run(main()) == fitting


def test_a_request_that_came_cheaper_lets_the_next_one_go() -> None:
    async def main() -> None:
        budget = Budget.after(Totals(), Limits(dollars=3))
        assert await budget.reserve(Cost(10, 2.0)) is None
        waiting = asyncio.create_task(budget.reserve(Cost(10, 2.0)))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        budget.settle(Cost(10, 2.0), Cost(4, 0.5))
        assert await waiting is None
        assert (budget.requests, budget.tokens, budget.dollars) == (1, 4, 0.5)
        assert (budget.in_flight, budget.tokens_in_flight, budget.dollars_in_flight) == (1, 10, 2.0)
        budget.settle(Cost(10, 2.0), Cost(10, 2.0))
        reason = await budget.reserve(Cost(10, 2.0))
        assert reason == "2.5000 dollars are spent, and the next request could cost 2.0000: the limit is 3"

    asyncio.run(main())
