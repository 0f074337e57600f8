"""What the notebook of training sets shows: where rows went, how long they are, what a draft vocabulary covers."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from kimi_helpers.set_tasks import BINS_A_DOUBLING, SPLITS, Fields, added


def funnel(manifest: Fields) -> list[tuple[str, int]]:
    """Rows read, rows left out by each reason, the most first, and rows in each split."""
    reasons = added(list(manifest["rejected"].values()))
    out = sorted(((f"left out: {name}", number) for name, number in reasons.items() if number), key=lambda row: -row[1])
    kept = [(f"in {split}", sum(group["rows"] for group in manifest["groups"][split])) for split in manifest["groups"]]
    return [("read", manifest["rows_read"]), *out, *kept]


def funnel_figure(rows: Sequence[tuple[str, int]]) -> Figure:
    """A bar a step of `funnel`."""
    names, numbers = zip(*rows[::-1], strict=True)
    figure, axes = plt.subplots(figsize=(8, 0.4 * len(rows) + 1), layout="constrained")
    colours = ["#BBBBBB" if name.startswith("left out") else "#0072B2" for name in names]
    axes.bar_label(axes.barh(range(len(rows)), numbers, color=colours, edgecolor="#333333"), padding=3)
    axes.set_yticks(range(len(rows)), names, parse_math=False)
    axes.set_xlabel("rows")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def grades_by_dataset(manifest: Fields) -> dict[str, dict[str, int]]:
    """Dataset -> grade -> rows of both splits, the datasets in the order of their names."""
    groups = sorted(
        (group for split in SPLITS for group in manifest["groups"][split]), key=lambda group: str(group["dataset"])
    )
    counts: dict[str, dict[str, int]] = {}
    for group in groups:
        of_dataset = counts.setdefault(group["dataset"], {})
        of_dataset[group["grade"]] = of_dataset.get(group["grade"], 0) + group["rows"]
    return counts


def length_figure(lengths: Mapping[str, Sequence[int]]) -> Figure:
    """How many completions of each dataset have which length, from the bins of a manifest."""
    figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
    for name, counts in lengths.items():
        edges = 2.0 ** (np.arange(len(counts) + 1) / BINS_A_DOUBLING)
        axes.stairs(counts, edges, label=name, linewidth=2)
    axes.set_xscale("log", base=2)
    used = np.flatnonzero(np.sum(list(lengths.values()) or [[0]], axis=0))
    if used.size:
        axes.set_xlim(2.0 ** (used[0] / BINS_A_DOUBLING), 2.0 ** ((used[-1] + 1) / BINS_A_DOUBLING))
    axes.set_xlabel("sampled tokens of a row")
    axes.set_ylabel("rows")
    axes.spines[["top", "right"]].set_visible(False)
    if lengths:
        axes.legend(frameon=False)
    return figure


def coverage_figure(covered: NDArray[np.float64], size: int) -> Figure:
    """The share of sampled tokens that the most frequent ids cover, and a size marked on it."""
    figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
    axes.plot(np.arange(1, len(covered) + 1), covered, color="#0072B2", linewidth=2)
    axes.axvline(size, color="#D55E00", linestyle="--", label=f"{size:,} tokens: {covered[size - 1]:.2%}")
    axes.set_xscale("log")
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("size of the draft vocabulary")
    axes.set_ylabel("sampled tokens covered")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure
