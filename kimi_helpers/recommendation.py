"""Which host to take, by a rule that is stated, and none where the data does not tell."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kimi_helpers.comparison import Compared, HostComparison
from kimi_helpers.intervals import RESAMPLES
from kimi_helpers.workspace import printable

FEWEST_REQUESTS = 20
LEAST_EXACT = 0.5
SURE = 0.975

RULE = (
    f"The host with the fewest dollars per million exact completion tokens, of those with at least {FEWEST_REQUESTS}"
    f" requests and an exact share surely above {LEAST_EXACT:.0%}; it is recommended only where it is cheaper than"
    f" every other in {SURE:.1%} of resamples of the prompts that both were asked."
)


@dataclass(frozen=True)
class Recommendation:
    """What the rule says.

    Attributes:
        host, slug: the host to take; None where the data does not tell.
        contenders: the hosts that are not told apart, the cheapest first; the recommended one alone, or none.
        reason: one sentence.
    """

    host: str | None
    slug: str | None
    contenders: tuple[str, ...]
    reason: str


def recommend(compared: Sequence[HostComparison], rows: Sequence[Compared]) -> Recommendation:
    """Apply `RULE`.

    Args:
        compared: of `compare_hosts`.
        rows: what it was made of.
    """
    fit = [each for each in compared if each.requests >= FEWEST_REQUESTS and (each.exact.low or 0.0) > LEAST_EXACT]
    fit = [each for each in fit if each.dollars_a_million_exact.value is not None]
    if not fit:
        why = "no host has enough requests, a stated price and an exact share that is surely high enough"
        return Recommendation(None, None, (), f"None: {why}.")
    fit.sort(key=lambda each: each.dollars_a_million_exact.value or 0.0)
    best = fit[0]
    beaten = {each.host for each in fit[1:] if _cheaper(best, each, rows) >= SURE}
    contenders = [best, *(each for each in fit[1:] if each.host not in beaten)]
    names = tuple(each.host for each in contenders)
    price = best.dollars_a_million_exact.text(3)
    if len(contenders) > 1:
        told = ", ".join(map(printable, names))
        return Recommendation(None, None, names, f"None: the data does not tell {told} apart; the first costs {price}.")
    reason = (
        f"{printable(best.host)}: {price} dollars per million exact tokens, cheaper than {len(beaten)} other hosts."
    )
    return Recommendation(best.host, best.slug, names, reason)


def _cheaper(one: HostComparison, other: HostComparison, rows: Sequence[Compared]) -> float:
    """In which share of resamples of their common prompts one host is cheaper than another; 0 without such prompts."""
    first, second = (_by_prompt(each, rows) for each in (one, other))
    common = sorted(first.keys() & second.keys())
    if not common:
        return 0.0
    picks = np.random.default_rng(0).integers(0, len(common), (RESAMPLES, len(common)))
    prices = []
    for of_host in (first, second):
        sums = np.asarray([of_host[prompt] for prompt in common])[picks].sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            prices.append(np.nan_to_num(sums[:, 0] / sums[:, 1], nan=np.inf, posinf=np.inf))
    return float((prices[0] < prices[1]).mean())


def _by_prompt(host: HostComparison, rows: Sequence[Compared]) -> dict[str, tuple[float, float]]:
    """Request -> dollars and exact tokens of a host."""
    sums: dict[str, tuple[float, float]] = {}
    for row in rows:
        if row.host == host.host or (row.slug is not None and row.slug == host.slug):
            dollars, tokens = sums.get(row.asked, (0.0, 0.0))
            sums[row.asked] = (dollars + (row.dollars or 0.0), tokens + row.exact_tokens)
    return sums
