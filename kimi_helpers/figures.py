"""What notebooks show of grades and lengths, as figures with the text that stands for them."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import pandas as pd
from IPython.display import display
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kimi_helpers.reconstruction import Grade

LONGEST_NAME = 40

# Okabe and Ito's colours, apart for every kind of colour vision; hatches tell the grades apart without colour.
_GRADE_STYLE: dict[Grade, tuple[str, str]] = {
    Grade.engine_ids: ("#0072B2", ""),
    Grade.logprob_bytes: ("#56B4E9", ".."),
    Grade.exact_unique: ("#009E73", ""),
    Grade.exact_ambiguous: ("#F0E442", "//"),
    Grade.unverified: ("#CCCCCC", ".."),
    Grade.unresolved: ("#E69F00", "xx"),
    Grade.failed: ("#D55E00", "--"),
}


def show(figure: Figure, alt: str) -> None:
    """Display a figure with the text that stands for it where it cannot be seen."""
    display(figure, metadata={"image/png": {"alt": alt}})  # type: ignore[no-untyped-call]
    plt.close(figure)


def grade_figure(counts: Mapping[str, Mapping[str, int]], counted: str = "replies") -> Figure:
    """A bar a host, split by grade.

    Args:
        counts: provider, or what else bars stand for -> grade -> number of replies.
        counted: what is counted.
    """
    hosts = list(counts)[::-1]
    places = range(len(hosts))
    figure, axes = plt.subplots(figsize=(8, 0.5 * len(hosts) + 1.4), layout="constrained")
    start = [0] * len(hosts)
    for grade in Grade:
        widths = [counts[host].get(grade.value, 0) for host in hosts]
        if any(widths):
            colour, hatch = _GRADE_STYLE[grade]
            bars = axes.barh(
                places, widths, left=start, color=colour, hatch=hatch, edgecolor="#333333", label=grade.value
            )
            for text in axes.bar_label(bars, [str(width) if width else "" for width in widths], label_type="center"):
                text.set_bbox(
                    {"facecolor": "white", "edgecolor": "none", "pad": 1.5, "alpha": 0.85 if text.get_text() else 0}
                )
            start = [before + width for before, width in zip(start, widths, strict=True)]
    _name_rows(axes, places, hosts)
    axes.set_xlabel(counted)
    axes.spines[["top", "right"]].set_visible(False)
    if any(start):
        figure.legend(loc="outside upper left", ncols=4, frameon=False)
    return figure


def _name_rows(axes: Axes, places: Sequence[int], hosts: Sequence[str]) -> None:
    """Hosts on the y axis, as they are: a name is untrusted, and `$` in it would be read as a formula."""
    axes.set_yticks(places, [host[:LONGEST_NAME] for host in hosts], parse_math=False)


def describe_grades(counts: Mapping[str, Mapping[str, int]], counted: str = "replies") -> str:
    """The content of `grade_figure` in words."""
    hosts = (
        f"{host}: " + ", ".join(f"{number} {grade}" for grade, number in grades.items() if number)
        for host, grades in counts.items()
    )
    return f"Bars of {counted} by grade. " + ("; ".join(hosts) or f"No {counted}") + "."


def length_figure(lengths: Mapping[str, Sequence[int]]) -> Figure:
    """Billed completion tokens, a row of boxes and points by host.

    Args:
        lengths: provider -> `completion_tokens` of its replies.
    """
    hosts = list(lengths)[::-1]
    figure, axes = plt.subplots(figsize=(8, 0.5 * len(hosts) + 1.2), layout="constrained")
    places = range(len(hosts))
    for place, host in zip(places, hosts, strict=True):
        axes.boxplot(
            lengths[host], positions=[place], widths=0.5, orientation="horizontal", showfliers=False, manage_ticks=False
        )
        axes.plot(lengths[host], [place] * len(lengths[host]), "o", color="#0072B2", alpha=0.25, markersize=4)
    _name_rows(axes, places, hosts)
    axes.set_xlabel("completion tokens, as billed")
    axes.set_xlim(left=0)
    axes.set_ylim(-0.6, len(hosts) - 0.4)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def describe_lengths(lengths: Mapping[str, Sequence[int]]) -> str:
    """The content of `length_figure` in words."""
    hosts = (
        f"{host}: {min(values)} to {max(values)}, median {pd.Series(values).median():g}"
        for host, values in lengths.items()
        if values
    )
    return "Billed completion tokens by host. " + ("; ".join(hosts) or "None stated") + "."
