"""Tokens as a notebook shows them: boxes, tables, differences, merge paths. All text is untrusted: all is escaped.

Every view is HTML that needs no script, with a text form. A box's colour follows its id, and nothing is told by colour
alone: each token has a border and can be heard as an item of a list; a table gives id, bytes and text.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from kimi_helpers.reachability import merge_path
from kimi_helpers.token_spans import Span, common_spans
from kimi_helpers.vocabulary import Vocabulary

HUES = 12
_VISIBLE = {" ": "·", "\n": "⏎", "\t": "→"}
# Marks, letters and symbols by their category, that leave no trace: fillers, the blank of Braille, variation selectors.
_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | {
    chr(code) for code in (*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))
}
# The page of a run and JupyterLab both say on the body whether their theme is light.
_DARK = '[data-jp-theme-light="false"] .tokens'
STYLE = (
    "<style>.tokens{font:13px/2.1 ui-monospace,monospace;white-space:normal;overflow-wrap:anywhere}"
    ".tokens span{border:1px solid #767676;border-radius:3px;padding:1px 2px;margin:0 1px 0 0}"
    ".tokens span{color:#111;background:#fff}"
    + "".join(f".tokens .h{hue}{{background:hsl({hue * 360 // HUES} 60% 90%)}}" for hue in range(HUES))
    + ".tokens .special{background:#222;color:#fff;font-weight:bold;border:3px double #bbb}"
    ".tokens .partial{border-style:dashed}.tokens .differs{border-bottom:4px solid #b00020}.tokens .prompt{opacity:.6}"
    ".tokens .gap{border:0;background:none;color:inherit}"
    f"{_DARK} span{{color:#f2f2f2;background:#333}}"
    + "".join(f"{_DARK} .h{hue}{{background:hsl({hue * 360 // HUES} 35% 22%)}}" for hue in range(HUES))
    + f"{_DARK} .special{{background:#f2f2f2;color:#111}}{_DARK} .differs{{border-bottom-color:#ff8a80}}"
    f"{_DARK} .gap{{color:inherit;background:none}}"
    "table.token-table td{font-family:ui-monospace,monospace;text-align:left}</style>"
)


def visible(data: bytes) -> str:
    """One token's bytes as text in which everything can be seen.

    Blanks are `·`, `⏎` and `→`; a byte that is no character is `<0xNN>`; characters that do not print or change the
    direction of text, and those three signs themselves, are written as escapes.
    """
    chars = data.decode("utf-8", errors="surrogateescape")
    return "".join(_shown(char) for char in chars)


def _shown(char: str) -> str:
    if "\udc80" <= char <= "\udcff":
        return f"<0x{ord(char) - 0xDC00:02X}>"
    return _VISIBLE.get(char) or (char if _prints(char) else ascii(char)[1:-1])


def _prints(char: str) -> bool:
    return unicodedata.category(char)[0] not in "CZ" and char not in _UNSEEN and char not in _VISIBLE.values()


def is_partial(data: bytes) -> bool:
    """Whether a token's bytes are not whole characters."""
    return data.decode("utf-8", errors="ignore").encode() != data


def _kind(vocabulary: Vocabulary, id: int, data: bytes) -> str:
    if id in vocabulary.special_ids:
        return "special"
    return "partial" if is_partial(data) else ""


def _box(place: int, id: int, data: bytes, kind: str, more: str = "") -> str:
    hue = "" if kind == "special" else f"h{id * 7 % HUES}"
    classes = " ".join(filter(None, (hue, kind, more)))
    told = ", ".join(filter(None, (f"{place}: id {id}", f"bytes {data.hex(' ')}", _TOLD.get(kind), _TOLD.get(more))))
    return f'<span role="listitem" class="{classes}" title="{told}">{escape(visible(data))}</span>'


_TOLD: Mapping[str, str] = {
    "special": "special token",
    "partial": "part of a character",
    "prompt": "of the prompt",
    "differs": "differs",
}


def _list(label: str, boxes: Sequence[str]) -> str:
    return f'<div class="tokens" role="list" aria-label="{escape(label)}">{"".join(boxes)}</div>'


def _table(caption: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f'<table class="token-table"><caption>{escape(caption)}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
    )


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
        boxes = [self._span(place) if place is not None else self._gap() for place in self._places()]
        ids = ", ".join(map(str, self.ids)) if len(self.ids) <= self.most else f"{len(self.ids)} ids, not all shown"
        return (
            f"{STYLE}{_list(self._label(), boxes)}<details><summary>Table of these tokens, and their ids</summary>"
            f"<code>[{ids}]</code>{self._table()}</details>"
        )

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
        prompt = "prompt" if self.loss_mask is not None and not self.loss_mask[place] else ""
        return _box(place, id, data, _kind(self.vocabulary, id, data), prompt)

    def _table(self) -> str:
        tokens = [(place, self.ids[place]) for place in self._places() if place is not None]
        rows = [(place, id, self.vocabulary.token_bytes(id)) for place, id in tokens]
        cells = [
            (p, id, visible(data), data.hex(" "), _TOLD.get(_kind(self.vocabulary, id, data), ""))
            for p, id, data in rows
        ]
        return _table(self._label(), ("place", "id", "text", "bytes", "kind"), cells)

    def _gap(self) -> str:
        return f'<span role="listitem" class="gap">… {len(self.ids) - 2 * (self.most // 2)} more …</span>'

    def _label(self) -> str:
        special = sum(id in self.vocabulary.special_ids for id in self.ids)
        return f"{len(self.ids)} tokens, {special} of them special"


def view_text(text: str, vocabulary: Vocabulary, specials: bool = True) -> TokenView:
    """A text as tokens: with `specials` the spelling of a special token is one, else it is ordinary text."""
    return TokenView(vocabulary.encode(text, specials), vocabulary)


@dataclass(frozen=True)
class DifferenceView:
    """Two tokenisations of one text, below each other, and the byte spans in which they differ.

    Attributes:
        names: what the two are called.
        first: ids of the first, each with its bytes.
        second: ids of the second.

    Raises:
        ValueError: when shown: the two spell different texts.
    """

    names: tuple[str, str]
    first: Sequence[tuple[int, bytes]]
    second: Sequence[tuple[int, bytes]]

    def spans(self) -> list[Span]:
        """The byte spans in which the two differ."""
        return [span for span in common_spans(self.first, self.second) if not span.is_equal]

    def _repr_html_(self) -> str:
        spans = self.spans()
        both = zip(self.names, (self.first, self.second), strict=True)
        labelled = [(f"{name}: {len(tokens)} tokens", _marked(tokens, spans)) for name, tokens in both]
        rows = [f"<p>{escape(label)}</p>{_list(label, boxes)}" for label, boxes in labelled]
        head = ("bytes", "text", *self.names)
        return f"{STYLE}{''.join(rows)}{_table(self._summary(spans), head, self._cells(spans))}"

    def __repr__(self) -> str:
        spans = self.spans()
        lines = [
            f"bytes {place}: {text}  {self.names[0]} {first}, {self.names[1]} {second}"
            for place, text, first, second in self._cells(spans)
        ]
        return "\n".join([self._summary(spans), *lines])

    def _summary(self, spans: Sequence[Span]) -> str:
        return f"{len(spans)} span(s) differ" if spans else "the ids are equal"

    def _cells(self, spans: Sequence[Span]) -> list[tuple[str, str, str, str]]:
        data = b"".join(token for _, token in self.first)
        return [
            (f"{s.start} to {s.end}", visible(data[s.start : s.end]), str(list(s.first)), str(list(s.second)))
            for s in spans
        ]


def _marked(tokens: Sequence[tuple[int, bytes]], spans: Sequence[Span]) -> list[str]:
    boxes, start = [], 0
    for place, (id, data) in enumerate(tokens):
        differs = any(span.start <= start < span.end for span in spans)
        boxes.append(_box(place, id, data, "partial" if is_partial(data) else "", "differs" if differs else ""))
        start += len(data)
    return boxes


@dataclass(frozen=True)
class MergeView:
    """How the bytes of one token are merged, step by step.

    Attributes:
        data: the bytes of one piece of text, e.g. of one token.
        ranks: bytes -> rank.
    """

    data: bytes
    ranks: Mapping[bytes, int]

    def steps(self) -> list[tuple[str, str]]:
        """For each step the parts, and the merge that made them with its rank."""
        path = merge_path(self.ranks, self.data)
        steps = [(" ".join(map(visible, path[0])), "single bytes")]
        for before, after in pairwise(path):
            place = next(place for place, (a, b) in enumerate(zip(before, after, strict=False)) if a != b)
            merged = after[place]
            steps.append((" ".join(map(visible, after)), f"{visible(merged)} at rank {self.ranks[merged]}"))
        return steps

    def _repr_html_(self) -> str:
        rows = [(number, *step) for number, step in enumerate(self.steps())]
        return STYLE + _table(f"How {visible(self.data)} is merged", ("step", "parts", "merge"), rows)

    def __repr__(self) -> str:
        return "\n".join(f"{number}. {parts}   ({merge})" for number, (parts, merge) in enumerate(self.steps()))
