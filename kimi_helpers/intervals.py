"""Intervals for what few replies show: shares by Wilson's score, anything else by the bootstrap."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
import numpy.typing as npt

Z_95 = 1.959963984540054
RESAMPLES = 2000

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A figure with its 95 % interval and the number of observations behind it; None where there is none."""

    value: float | None
    low: float | None
    high: float | None
    n: int

    def text(self, digits: int = 2) -> str:
        """For people: `0.95 [0.83, 0.99] (n = 40)`."""
        if self.value is None:
            return f"- (n = {self.n})"
        bounds = "" if self.low is None or self.high is None else f" [{self.low:.{digits}f}, {self.high:.{digits}f}]"
        return f"{self.value:.{digits}f}{bounds} (n = {self.n})"


def wilson(successes: int, n: int) -> Interval:
    """The share of successes with Wilson's score interval (E. B. Wilson, 1927), 95 %.

    Raises:
        ValueError: not 0 <= successes <= n.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n}: there can be none below 0 nor above all")
    if n == 0:
        return Interval(None, None, None, 0)
    share, square = successes / n, Z_95**2
    middle = (share + square / (2 * n)) / (1 + square / n)
    half = Z_95 / (1 + square / n) * sqrt(share * (1 - share) / n + square / (4 * n * n))
    return Interval(share, max(0.0, middle - half), min(1.0, middle + half), n)


def bootstrap(rows: Sequence[Sequence[float]], figure: Callable[[Floats], Floats], seed: int = 0) -> Interval:
    """A figure of rows with its percentile bootstrap interval, 95 %; the same rows give the same interval.

    Args:
        rows: observations, each a row of k numbers.
        figure: samples of shape [s, n, k] -> s figures; what is not finite counts as beyond the interval's high end.
        seed: of the resampling.
    """
    data = np.asarray(rows, dtype=float)
    if not len(data):
        return Interval(None, None, None, 0)
    value = float(figure(data[None])[0])
    picks = np.random.default_rng(seed).integers(0, len(data), (RESAMPLES, len(data)))
    figures = np.nan_to_num(figure(data[picks]), nan=np.inf, posinf=np.inf)
    low, high = (float(np.quantile(figures, share, method="nearest")) for share in (0.025, 0.975))
    return Interval(value if np.isfinite(value) else None, low, high, len(data))
