"""Figures of an audit, each with the text that stands for it."""

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from kimi_helpers.quirks import Audit
from kimi_helpers.token_classes import TokenClass

_BINS = 160
_BLUE, _ORANGE, _GREY = "#0072B2", "#E69F00", "#CCCCCC"


def id_map_figure(audit: Audit) -> Figure:
    """Where the classes lie among all ids, and the special slots one by one: named, and the gap of reserved ones."""
    figure, (above, below) = plt.subplots(2, 1, figsize=(9, 5), layout="constrained", height_ratios=(3, 1))
    classes = [name.value for name in TokenClass if (audit.tokens["class"] == name.value).any()]
    ids = audit.tokens.index.to_numpy()
    counts = np.array([np.histogram(ids[audit.tokens["class"] == name], _BINS, (0, len(ids)))[0] for name in classes])
    above.imshow(np.log10(counts + 1), aspect="auto", cmap="cividis", extent=(0, len(ids), len(classes), 0))
    above.set_yticks(np.arange(len(classes)) + 0.5, classes)
    above.set_xlabel("token id; brighter: more ids of the class (logarithm)")
    slots = audit.tokens.iloc[audit.vocabulary.ranks :]
    named = slots.index[slots["class"] == TokenClass.special_named]
    reserved = slots.index[slots["class"] == TokenClass.special_reserved]
    below.vlines(reserved, 0, 0.5, color=_GREY, label=f"reserved ({len(reserved)})")
    below.vlines(named, 0, 1, color=_BLUE, linewidth=2, label=f"named ({len(named)})")
    below.set_yticks([])
    below.set_xlabel("special slots")
    below.legend(loc="upper center", frameon=False, ncols=2)
    below.ticklabel_format(useOffset=False, style="plain")
    return figure


def describe_id_map(audit: Audit) -> str:
    """The content of `id_map_figure` in words."""
    counts = ", ".join(f"{count:,} {name}" for name, count in audit.tokens["class"].value_counts().items())
    named = audit.tokens.index[audit.tokens["class"] == TokenClass.special_named]
    gaps = [(int(a), int(b)) for a, b in pairwise(named) if b - a > 1]
    widest = max(gaps, key=lambda gap: gap[1] - gap[0], default=None)
    hole = f" The widest gap between named special tokens is from {widest[0]} to {widest[1]}." if widest else ""
    return f"Map of {len(audit.tokens):,} ids by class: {counts}.{hole}"


def distribution_figure(audit: Audit, most: int = 12) -> Figure:
    """How long the ordinary tokens are, and which scripts they are written in."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    lengths = audit.ordinary["length"].clip(upper=24).value_counts().sort_index()
    left.bar(lengths.index, lengths, color=_BLUE)
    left.set_xlabel("bytes of a token (24: or more)")
    left.set_ylabel("ids")
    scripts = _scripts(audit).head(most)[::-1]
    right.barh(scripts.index, scripts, color=_BLUE)
    right.set_xscale("log")
    right.set_xlabel("ids (logarithm)")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def describe_distribution(audit: Audit, most: int = 12) -> str:
    """The content of `distribution_figure` in words."""
    scripts = ", ".join(f"{name} {count:,}" for name, count in _scripts(audit).head(most).items())
    lengths = audit.ordinary["length"]
    return (
        f"Token lengths: median {lengths.median():g} bytes, longest {lengths.max()}."
        f" Scripts of tokens that are whole characters: {scripts}."
    )


def _scripts(audit: Audit) -> pd.Series:
    return audit.ordinary.loc[audit.ordinary["script"] != "", "script"].value_counts()


def boundary_figure(rates: pd.DataFrame, most: int = 14) -> Figure:
    """How often a cut between two classes of characters changes ids, with the 95 % interval.

    Args:
        rates: `boundary_rates`.
    """
    shown = rates.head(most)[::-1]
    figure, axes = plt.subplots(figsize=(8, 0.32 * len(shown) + 1.2), layout="constrained")
    names = [f"{left} | {right}  (n = {n})" for (left, right), n in zip(shown.index, shown["cuts"], strict=True)]
    spread = [shown["rate"] - shown["from"], shown["to"] - shown["rate"]]
    axes.errorbar(shown["rate"], range(len(shown)), xerr=np.clip(spread, 0, 1), fmt="o", color=_BLUE, ecolor=_ORANGE)
    axes.set_yticks(range(len(shown)), names)
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel("share of cuts that change ids")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def describe_boundaries(rates: pd.DataFrame, most: int = 14) -> str:
    """The content of `boundary_figure` in words."""
    rows = (
        f"{left} before {right}: {row.changed} of {row.cuts}"
        for (left, right), row in zip(rates.index[:most], rates.head(most).itertuples(), strict=True)
    )
    return "Cuts that change ids. " + ("; ".join(rows) or "None tried") + "."


def bytes_figure(table: pd.DataFrame) -> Figure:
    """Bytes per token by kind of text, two tokenizers side by side.

    Args:
        table: `bytes_per_token`.
    """
    shown = table[::-1]
    figure, axes = plt.subplots(figsize=(8, 0.4 * len(shown) + 1.2), layout="constrained")
    places = np.arange(len(shown))
    axes.barh(places + 0.2, shown["bytes per token"], 0.4, color=_BLUE, label="this vocabulary")
    axes.barh(places - 0.2, shown.iloc[:, -1], 0.4, color=_ORANGE, hatch="//", label=_second(table))
    axes.set_yticks(places, shown.index)
    axes.set_xlabel("bytes per token")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper left", ncols=2, frameon=False)
    return figure


def describe_bytes(table: pd.DataFrame) -> str:
    """The content of `bytes_figure` in words."""
    pairs = zip(table.index, table["bytes per token"], table.iloc[:, -1], strict=True)
    rows = "; ".join(f"{kind} {ours:.2f} and {theirs:.2f}" for kind, ours, theirs in pairs)
    return f"Bytes per token of this vocabulary and of {_second(table)}: {rows}."


def _second(table: pd.DataFrame) -> str:
    return str(table.columns[-1]).removeprefix("bytes per token, ")
