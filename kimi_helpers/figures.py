"""What notebooks show: tokens as HTML, grades and lengths as figures. Text of a model is untrusted: all is escaped."""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import matplotlib.pyplot as plt
import pandas as pd
from IPython.display import display
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kimi_helpers.reconstruction import Grade
from kimi_helpers.vocabulary import Vocabulary

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
_VISIBLE = {" ": "·", "\n": "⏎", "\t": "→"}
# Marks, letters and symbols by their category, that leave no trace: fillers, the blank of Braille, variation selectors.
_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | {
    chr(code) for code in (*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))
}
_STYLE = (
    "<style>.tokens{font:13px/2.1 ui-monospace,monospace;white-space:normal;overflow-wrap:anywhere}"
    ".tokens span{border:1px solid #999;border-radius:3px;padding:1px 2px;margin:0 1px 0 0;color:#111;background:#fff}"
    ".tokens .odd{background:#e8eef7}.tokens .special{background:#222;color:#fff;font-weight:bold}"
    ".tokens .partial{border-style:dashed;background:#fdeec8}.tokens .prompt{opacity:.55}"
    ".tokens .gap{border:0;background:none}</style>"
)


def visible(data: bytes) -> str:
    """One token's bytes as text in which everything can be seen.

    Blanks are `·`, `⏎` and `→`; bytes that are no character alone, characters that do not print or change the
    direction of text, and those three signs themselves, are written as escapes.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return "".join(f"\\x{byte:02x}" for byte in data)
    return "".join(_VISIBLE.get(char) or (char if _prints(char) else ascii(char)[1:-1]) for char in text)


def _prints(char: str) -> bool:
    return unicodedata.category(char)[0] not in "CZ" and char not in _UNSEEN and char not in _VISIBLE.values()


@dataclass(frozen=True)
class TokenView:
    """A row of tokens for a notebook: as HTML where it can be shown, else as text.

    Attributes:
        ids: token ids, shape [n].
        vocabulary: whose ids.
        loss_mask: shape [n], 1 on sampled tokens; tokens with 0 are shown paler. None: all alike.
        most: how many tokens are shown; of a longer row the middle is left out.
    """

    ids: Sequence[int]
    vocabulary: Vocabulary
    loss_mask: Sequence[int] | None = None
    most: int = 240

    def _repr_html_(self) -> str:
        spans = [self._span(place) if place is not None else self._gap() for place in self._places()]
        return f'{_STYLE}<div class="tokens" role="img" aria-label="{self._label()}">{"".join(spans)}</div>'

    def __repr__(self) -> str:
        shown = (
            f"[{self.ids[place]}]{visible(self.vocabulary.token_bytes(self.ids[place]))}"
            if place is not None
            else "..."
            for place in self._places()
        )
        return " ".join(shown)

    def _places(self) -> list[int | None]:
        total = len(self.ids)
        if total <= self.most:
            return list(range(total))
        half = self.most // 2
        return [*range(half), None, *range(total - half, total)]

    def _span(self, place: int) -> str:
        id = self.ids[place]
        data = self.vocabulary.token_bytes(id)
        if id in self.vocabulary.special_ids:
            kind = "special"
        elif "\ufffd" in data.decode("utf-8", errors="replace"):
            kind = "partial"
        else:
            kind = "odd" if place % 2 else "even"
        if self.loss_mask is not None and not self.loss_mask[place]:
            kind += " prompt"
        return f'<span class="{kind}" title="{place}: id {id}, {len(data)} bytes">{escape(visible(data))}</span>'

    def _gap(self) -> str:
        return f'<span class="gap">… {len(self.ids) - 2 * (self.most // 2)} more …</span>'

    def _label(self) -> str:
        special = sum(id in self.vocabulary.special_ids for id in self.ids)
        return f"{len(self.ids)} tokens, {special} of them special"


def show(figure: Figure, alt: str) -> None:
    """Display a figure with the text that stands for it where it cannot be seen."""
    display(figure, metadata={"image/png": {"alt": alt}})  # type: ignore[no-untyped-call]
    plt.close(figure)


def grade_figure(counts: Mapping[str, Mapping[str, int]]) -> Figure:
    """A bar a host, split by grade.

    Args:
        counts: provider -> grade -> number of replies.
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
    axes.set_xlabel("replies")
    axes.spines[["top", "right"]].set_visible(False)
    if any(start):
        figure.legend(loc="outside upper left", ncols=4, frameon=False)
    return figure


def _name_rows(axes: Axes, places: Sequence[int], hosts: Sequence[str]) -> None:
    """Hosts on the y axis, as they are: a name is untrusted, and `$` in it would be read as a formula."""
    axes.set_yticks(places, [host[:LONGEST_NAME] for host in hosts], parse_math=False)


def describe_grades(counts: Mapping[str, Mapping[str, int]]) -> str:
    """The content of `grade_figure` in words."""
    hosts = (
        f"{host}: " + ", ".join(f"{number} {grade}" for grade, number in grades.items() if number)
        for host, grades in counts.items()
    )
    return "Bars of replies by grade. " + ("; ".join(hosts) or "No replies") + "."


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
