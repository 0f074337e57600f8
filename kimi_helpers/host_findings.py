"""What is found of a host, part by part: the value or the values left open, n, a confidence, and what would tell.

The rule of confidence, the same everywhere: of the n replies that bear on a part, k agree with the value; confidence is
the lower end of Wilson's 95 % interval for k of n. Three replies that all agree give 0.44, thirty give 0.89. Where
several values are left open it is 0.

A reply bears on a part of the stack where the best stack and that stack with the part changed are not judged alike: it
agrees where it contradicts the changed one.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kimi_helpers.intervals import wilson
from kimi_helpers.serving_stacks import ServingStack
from kimi_helpers.stack_inference import TRANSPORTS, WEIGHTS, Inference, Judge, Witness, ids_of
from kimi_helpers.stack_space import ARGUMENT_RULES, FIELD_SIDES, ID_RULES, WHOLE_TEXT, plain_form

TRANSPORT_WORDS = {"json": "whole replies", "sse": "streams"}

# How many stacks are listed at most to find the values left open.
MOST_LISTED = 100_000


@dataclass(frozen=True)
class Finding:
    """What replies say of one part of a host.

    Attributes:
        part: its name.
        values: what stays open, in words; one where it is settled; none where nothing explains the host.
        n: replies that bear on it.
        agreeing: of those, how many agree with the value.
        tells: name of the part in the calibration prompts' `tells`.
    """

    part: str
    values: tuple[str, ...]
    n: int
    agreeing: int
    tells: str = ""

    @property
    def settled(self) -> bool:
        """Whether one value is left, and some reply bears on it."""
        return len(self.values) == 1 and self.n > 0

    @property
    def confidence(self) -> float:
        """By the rule of this module."""
        return (wilson(self.agreeing, self.n).low or 0.0) if self.settled else 0.0


Change = Callable[[ServingStack, Any], ServingStack]


@dataclass(frozen=True)
class _Part:
    """A part of a stack: how its value is read and changed, and the words for each value."""

    name: str
    words: Mapping[Any, str]
    read: Callable[[ServingStack], Any]
    change: Change
    tells: str


def _field(name: str, field: str, words: Mapping[Any, str]) -> _Part:
    return _Part(
        name, words, lambda stack: getattr(stack, field), lambda stack, value: replace(stack, **{field: value}), name
    )


_CORE_PARTS = (
    _field("reasoning parser", "parses_reasoning", {True: "cuts at </think>", False: "none: think in content"}),
    _field("blanks", "blanks", {False: "none", True: "beside added tokens"}),
    _field("cut at the call", "cuts_at_call", {False: "at the section", True: "at the first call"}),
    _field("arguments", "arguments", {**dict.fromkeys(ARGUMENT_RULES, ""), "sampled": "as sampled"}),
    _field("trimmed arguments", "trims_arguments", {False: "kept", True: "trimmed"}),
    _field("ids", "ids", {**dict.fromkeys(ID_RULES, ""), "sampled": "as sampled"}),
    _field("end token", "counts_end", {True: "counted", False: "not counted"}),
    _field("forced call", "counts_forced", {True: "counted", False: "start not counted"}),
)
_THINKING_ONLY = _field("strips without thinking", "strips_thinking_only", {False: "the same", True: "none"})
_STRIP_WORDS = {False: "kept", True: "stripped"}


def _strip_part(side: str, transport: str) -> _Part:
    field = "strips_json" if transport == "json" else "strips_stream"
    sides = WHOLE_TEXT if side == "whole text" else frozenset({side})

    def change(stack: ServingStack, stripped: bool) -> ServingStack:
        now = getattr(stack, field)
        return replace(stack, **{field: now | sides if stripped else now - sides})

    name = f"{side}, {TRANSPORT_WORDS[transport]}"
    return _Part(name, _STRIP_WORDS, lambda stack: sides <= getattr(stack, field), change, side)


def stack_findings(inference: Inference, judge: Judge) -> list[Finding]:
    """A finding a part of the stack; parts that the host's model or transports cannot show are left out."""
    best = inference.best
    if best is None:
        return [Finding("serving stack", (), len(inference.witnesses), 0)]
    strips = _strip_parts(inference.witnesses)
    parts = [*_CORE_PARTS, *strips, _THINKING_ONLY]
    left: dict[str, dict[Any, None]] = {part.name: {part.read(best): None} for part in parts}
    for _, stack in zip(range(MOST_LISTED), inference.stacks(), strict=False):
        for part in parts:
            left[part.name][part.read(stack)] = None
    found = []
    for part in parts:
        if part.name == "cut at the call" and left["blanks"].keys() == {False}:
            continue  # without the blanks there is nothing to see
        if part is _THINKING_ONLY and not any(left[each.name].keys() == {True} for each in strips):
            continue  # nothing is known to be stripped
        values = list(left[part.name])
        n, agreeing = (0, 0) if len(values) > 1 else _bearing(part, best, inference, judge)
        found.append(Finding(part.name, tuple(part.words[v] or str(v) for v in values), n, agreeing, part.tells))
    return found


def _strip_parts(witnesses: Sequence[Witness]) -> list[_Part]:
    thought = any(witness.reply.reasoning for witness in witnesses)
    sides = [side for side in (*FIELD_SIDES, "whole text") if thought or not side.startswith("reasoning")]
    seen = [transport for transport in TRANSPORTS if any(each.reply.transport == transport for each in witnesses)]
    return [_strip_part(side, transport) for transport in seen for side in sides]


def _bearing(part: _Part, best: ServingStack, inference: Inference, judge: Judge) -> tuple[int, int]:
    """How many replies bear on the value of a part, against the closest other value, and how many agree."""
    if part.name == "ids":
        return ids_of(inference)
    others = [part.change(best, value) for value in part.words if value != part.read(best)]
    others = [other for other in others if plain_form(other) != plain_form(best)]
    told = []
    for other in others:
        pairs = [(WEIGHTS[judge(each, best)], WEIGHTS[judge(each, other)]) for each in inference.witnesses]
        told.append((sum(ours != theirs for ours, theirs in pairs), sum(ours < theirs for ours, theirs in pairs)))
    return min(told, default=(0, 0))


def share_finding(part: str, values: Iterable[str], tells: str = "") -> Finding:
    """A finding of what each reply shows by itself: the commonest value, and how many replies show it."""
    counts = Counter(values)
    if not counts:
        return Finding(part, (), 0, 0, tells)
    value, number = counts.most_common(1)[0]
    return Finding(part, (value,), counts.total(), number, tells)
