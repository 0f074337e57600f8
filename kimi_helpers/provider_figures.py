"""Hosts at a glance: exactness against price, and what each host does. Names of hosts are untrusted text."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from kimi_helpers.comparison import HostComparison
from kimi_helpers.figures import LONGEST_NAME
from kimi_helpers.host_findings import Finding
from kimi_helpers.providers import HostReport
from kimi_helpers.workspace import printable

# What a host that changes nothing does. Strips, whose parts are many, are told together.
FAITHFUL: Mapping[str, str] = {
    "blanks": "none",
    "reasoning parser": "cuts at </think>",
    "arguments": "as sampled",
    "trimmed arguments": "kept",
    "ids": "as sampled",
    "end token": "counted",
    "forced call": "counted",
    "think leakage": "none",
    "prompt": "as the template has it",
}
STRIPS = "strips"
_STATES = {
    "as sampled": ("#009E73", "="),
    "changed": ("#E69F00", "x"),
    "open": ("#EEEEEE", "?"),
    "not seen": ("#FFFFFF", ""),
}


def behaviour(report: HostReport) -> dict[str, str]:
    """Part -> `as sampled`, `changed`, `open` or `not seen`, for the columns of `behaviour_figure`."""
    strips = [finding for finding in report.findings if ", " in finding.part]
    states = {part: _state([finding], value) for part, value in FAITHFUL.items() for finding in [report.finding(part)]}
    return states | {STRIPS: _state(strips, "kept")}


def _state(findings: Sequence[Finding | None], faithful: str) -> str:
    known = [finding for finding in findings if finding is not None]
    if any(finding.settled and finding.values != (faithful,) for finding in known):
        return "changed"
    if any(len(finding.values) > 1 for finding in known):
        return "open"
    return "as sampled" if any(finding.settled for finding in known) else "not seen"


def behaviour_figure(reports: Sequence[HostReport]) -> Figure:
    """A row a host, a column a part: `=` as sampled, `x` changed, `?` not told apart yet, empty where not seen."""
    columns = [*FAITHFUL, STRIPS]
    names = list(_STATES)
    table = [[names.index(behaviour(report)[column]) for column in columns] for report in reports] or [
        [3] * len(columns)
    ]
    figure, axes = plt.subplots(figsize=(9, 0.34 * len(table) + 2), layout="constrained")
    colours = ListedColormap([colour for colour, _ in _STATES.values()])
    axes.imshow(table, cmap=colours, vmin=0, vmax=len(names) - 1, aspect="auto")
    for row, states in enumerate(table):
        for column, state in enumerate(states):
            axes.text(column, row, _STATES[names[state]][1], ha="center", va="center", color="#111111")
    axes.set_xticks(range(len(columns)), columns, rotation=35, ha="left")
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(reports)), [_shown(report.host) for report in reports], parse_math=False)
    axes.set_xticks([place - 0.5 for place in range(1, len(columns))], minor=True)
    axes.set_yticks([place - 0.5 for place in range(1, len(table))], minor=True)
    axes.grid(which="minor", color="#888888", linewidth=0.5)
    axes.tick_params(which="both", length=0)
    axes.set_xlabel("=  as sampled     x  changed     ?  not told apart     empty: not seen", labelpad=10)
    return figure


def describe_behaviour(reports: Sequence[HostReport]) -> str:
    """The content of `behaviour_figure` in words."""
    told = []
    for report in reports:
        states = behaviour(report)
        changed = [part for part, state in states.items() if state == "changed"]
        left = [part for part, state in states.items() if state == "open"]
        words = f"changes {', '.join(changed)}" if changed else "changes nothing that was seen"
        told.append(f"{_shown(report.host)} {words}{', open: ' + ', '.join(left) if left else ''}")
    return "What each host changes. " + ("; ".join(told) or "No hosts") + "."


def price_figure(compared: Sequence[HostComparison]) -> Figure:
    """The share of exact replies against dollars per million completion tokens as billed, with 95 % intervals."""
    shown = sorted(_priced(compared), key=lambda each: each.exact.value or 0.0)
    figure, (axes, prices) = plt.subplots(
        1, 2, figsize=(10, 0.36 * max(1, len(shown)) + 1.6), sharey=True, layout="constrained"
    )
    for place, each in enumerate(shown):
        share = each.exact
        axes.plot([share.low or 0, share.high or 0], [place, place], color="#0072B2", linewidth=3, alpha=0.4)
        axes.plot([share.value or 0], [place], "o", color="#0072B2")
        exact, billed = each.dollars_a_million_exact, each.dollars_a_million
        prices.plot([billed.value or 0], [place], "|", color="#777777", markersize=12, markeredgewidth=2)
        if exact.value is not None:
            prices.plot(
                [exact.low or 0, min(exact.high or 0, 1e6)], [place, place], color="#D55E00", linewidth=3, alpha=0.4
            )
            prices.plot([exact.value], [place], "D", color="#D55E00", markersize=6)
    axes.set_yticks(range(len(shown)), [_shown(each.host) for each in shown], parse_math=False)
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel("share of requests with exact ids")
    prices.set_xscale("log")
    prices.set_xlabel("$ per million tokens: | all billed, diamond: exact ones")
    for each_axes in (axes, prices):
        each_axes.spines[["top", "right"]].set_visible(False)
        each_axes.grid(axis="x", color="#999999", alpha=0.3)
    return figure


def describe_prices(compared: Sequence[HostComparison]) -> str:
    """The content of `price_figure` in words."""
    told = (
        f"{_shown(each.host)}: {each.exact.text()} exact, {each.dollars_a_million_exact.text(2)} dollars"
        for each in _priced(compared)
    )
    return (
        "Share of exact replies and dollars per million exact tokens, by host. "
        + ("; ".join(told) or "No prices")
        + "."
    )


def _priced(compared: Sequence[HostComparison]) -> list[HostComparison]:
    return [each for each in compared if each.dollars_a_million.value]


def _shown(host: str) -> str:
    return printable(host)[:LONGEST_NAME]
