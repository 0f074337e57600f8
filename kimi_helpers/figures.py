"""What notebooks show of grades, outcomes, lengths and speeds, as figures with the text that stands for them."""

from collections.abc import Mapping, Sequence
from itertools import cycle

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


# Of finish reasons and failures, which are open sets: the usual ones keep their looks, the others take turns.
_OUTCOME_STYLE = {"stop": ("#009E73", ""), "tool_calls": ("#56B4E9", ".."), "length": ("#F0E442", "//")}
_OTHER_STYLES = (("#D55E00", "--"), ("#E69F00", "xx"), ("#CC79A7", "\\\\"), ("#CCCCCC", "++"), ("#0072B2", "oo"))


def grade_figure(counts: Mapping[str, Mapping[str, int]], counted: str = "replies") -> Figure:
    """A bar a host, split by grade.

    Args:
        counts: provider, or what else bars stand for -> grade -> number of replies.
        counted: what is counted.
    """
    return _split_bars(counts, {grade.value: style for grade, style in _GRADE_STYLE.items()}, counted)


def outcome_figure(counts: Mapping[str, Mapping[str, int]]) -> Figure:
    """A bar an endpoint, split by how its requests ended.

    Args:
        counts: endpoint -> finish reason or kind of failure -> number of requests.
    """
    kinds = list(dict.fromkeys(kind for ends in counts.values() for kind in ends))
    others = cycle(_OTHER_STYLES)
    styles = {kind: _OUTCOME_STYLE.get(kind) or next(others) for kind in kinds}
    return _split_bars(counts, styles, "requests")


def describe_outcomes(counts: Mapping[str, Mapping[str, int]]) -> str:
    """The content of `outcome_figure` in words."""
    return f"Bars of requests by how they ended. {_told(counts) or 'No requests'}."


def _split_bars(
    counts: Mapping[str, Mapping[str, int]], styles: Mapping[str, tuple[str, str]], what_is_counted: str
) -> Figure:
    hosts = list(counts)[::-1]
    places = range(len(hosts))
    figure, axes = plt.subplots(figsize=(8, 0.5 * len(hosts) + 1.4), layout="constrained")
    start = [0] * len(hosts)
    for kind, (colour, hatch) in styles.items():
        widths = [counts[host].get(kind, 0) for host in hosts]
        if any(widths):
            label = kind[:LONGEST_NAME].replace("$", r"\$")
            bars = axes.barh(places, widths, left=start, color=colour, hatch=hatch, edgecolor="#333333", label=label)
            for text in axes.bar_label(bars, [str(width) if width else "" for width in widths], label_type="center"):
                text.set_bbox(
                    {"facecolor": "white", "edgecolor": "none", "pad": 1.5, "alpha": 0.85 if text.get_text() else 0}
                )
            start = [before + width for before, width in zip(start, widths, strict=True)]
    _name_rows(axes, places, hosts)
    axes.set_xlabel(what_is_counted)
    axes.spines[["top", "right"]].set_visible(False)
    if any(start):
        figure.legend(loc="outside upper left", ncols=4, frameon=False)
    return figure


def _name_rows(axes: Axes, places: Sequence[int], hosts: Sequence[str]) -> None:
    """Hosts on the y axis, as they are: a name is untrusted, and `$` in it would be read as a formula."""
    axes.set_yticks(places, [host[:LONGEST_NAME] for host in hosts], parse_math=False)


def describe_grades(counts: Mapping[str, Mapping[str, int]], counted: str = "replies") -> str:
    """The content of `grade_figure` in words."""
    return f"Bars of {counted} by grade. {_told(counts) or f'No {counted}'}."


def _told(counts: Mapping[str, Mapping[str, int]]) -> str:
    return "; ".join(
        f"{host}: " + ", ".join(f"{number} {kind}" for kind, number in kinds.items() if number)
        for host, kinds in counts.items()
    )


def length_figure(lengths: Mapping[str, Sequence[int]]) -> Figure:
    """Billed completion tokens, a row of boxes and points by host.

    Args:
        lengths: provider -> `completion_tokens` of its replies.
    """
    return _boxes(lengths, "completion tokens, as billed")


def describe_lengths(lengths: Mapping[str, Sequence[int]]) -> str:
    """The content of `length_figure` in words."""
    return f"Billed completion tokens by host. {_ranges(lengths)}."


def speed_figure(seconds: Mapping[str, Sequence[float]]) -> Figure:
    """Seconds from the request to the end of the reply, a row of boxes and points by endpoint.

    Args:
        seconds: endpoint -> `seconds` of the attempts that gave a reply.
    """
    return _boxes(seconds, "seconds from the request to the end of the reply")


def describe_speeds(seconds: Mapping[str, Sequence[float]]) -> str:
    """The content of `speed_figure` in words."""
    return f"Seconds a reply by endpoint. {_ranges(seconds)}."


def _boxes(values: Mapping[str, Sequence[float]], what_they_are: str) -> Figure:
    hosts = list(values)[::-1]
    figure, axes = plt.subplots(figsize=(8, 0.5 * len(hosts) + 1.2), layout="constrained")
    places = range(len(hosts))
    for place, host in zip(places, hosts, strict=True):
        axes.boxplot(
            values[host], positions=[place], widths=0.5, orientation="horizontal", showfliers=False, manage_ticks=False
        )
        axes.plot(values[host], [place] * len(values[host]), "o", color="#0072B2", alpha=0.25, markersize=4)
    _name_rows(axes, places, hosts)
    axes.set_xlabel(what_they_are)
    axes.set_xlim(left=0)
    axes.set_ylim(-0.6, len(hosts) - 0.4)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _ranges(values: Mapping[str, Sequence[float]]) -> str:
    hosts = (
        f"{host}: {min(of_one):.4g} to {max(of_one):.4g}, median {pd.Series(of_one).median():.4g}"
        for host, of_one in values.items()
        if of_one
    )
    return "; ".join(hosts) or "None stated"
