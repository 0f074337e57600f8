"""The space of serving stacks: every combination of their parts, each distinct behaviour once.

The registry names stacks that were seen. A host may combine the parts otherwise, so inference looks at all
combinations: detokeniser, reasoning parser, tool parser, serialiser, counter, and what is stripped on which side.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, combinations, product
from typing import Literal, get_args

from kimi_helpers.serving_stacks import ServingStack, Side
from kimi_helpers.workspace import printable

Strips = frozenset[Side]
ArgumentRule = Literal["sampled", "compact", "spaced"]
IdRule = Literal["sampled", "bare", "replaced"]

FIELD_SIDES: tuple[Side, ...] = ("reasoning start", "reasoning end", "content start", "content end")
WHOLE_TEXT: Strips = frozenset({"text start", "text end"})
ARGUMENT_RULES: tuple[ArgumentRule, ...] = get_args(ArgumentRule)
ID_RULES: tuple[IdRule, ...] = get_args(IdRule)


def strip_sets() -> tuple[Strips, ...]:
    """What a parser may strip in replies of one transport: any sides of the two fields, or the whole text as well."""
    fields = [frozenset(sides) for number in range(5) for sides in combinations(FIELD_SIDES, number)]
    return tuple(dict.fromkeys(plain_strips(sides) for sides in chain(fields, (each | WHOLE_TEXT for each in fields))))


def plain_strips(sides: Strips) -> Strips:
    """The strips by their shortest name: the front of the whole text is the front of the reasoning.

    Stripping the whole text beside both ends of both fields adds nothing.
    """
    if not sides >= WHOLE_TEXT:
        return sides
    if sides >= {"reasoning end", "content start", "content end"}:
        return frozenset(FIELD_SIDES)
    return sides - {"reasoning start"}


def plain_form(stack: ServingStack) -> ServingStack:
    """The stack by its simplest name: parts that change nothing beside the others are at their defaults.

    Where a tool parser cuts shows only by the blanks of a detokeniser; arguments that are dumped again have no blanks
    around them; without a reasoning parser there is no reasoning to strip. What `reasoning_tokens` counts is no part
    of the text and is found apart.
    """
    sides = [plain_strips(stack.strips_json), plain_strips(stack.strips_stream)]
    if not stack.parses_reasoning:
        sides = [_strips_of_content(each) for each in sides]
    strips = any(sides)
    hides_cut = not stack.blanks or all("content end" in each for each in sides)
    return replace(
        stack,
        name="",
        seen="",
        strips_json=sides[0],
        strips_stream=sides[1],
        strips_thinking_only=stack.strips_thinking_only and strips,
        cuts_at_call=stack.cuts_at_call and not hides_cut,
        trims_arguments=stack.trims_arguments and stack.arguments == "sampled",
        counts_reasoning=False,
    )


def _strips_of_content(sides: Strips) -> Strips:
    """The strips where the content is the whole text, but for a tool section behind it."""
    if sides >= WHOLE_TEXT | {"content end"}:
        return frozenset({"content start", "content end"})
    return sides - {"reasoning start", "reasoning end"}


def cores() -> Iterator[ServingStack]:
    """Every combination of the parts beside the strips, in plain form."""
    no_yes, yes_no = (False, True), (True, False)
    for blanks, cuts, parses, thinking_only, arguments, trims, ids, end, forced in product(
        no_yes, no_yes, yes_no, no_yes, ARGUMENT_RULES, no_yes, ID_RULES, yes_no, yes_no
    ):
        if (cuts and not blanks) or (trims and arguments != "sampled"):
            continue
        yield ServingStack(
            name="",
            seen="",
            blanks=blanks,
            cuts_at_call=cuts,
            parses_reasoning=parses,
            strips_thinking_only=thinking_only,
            arguments=arguments,
            trims_arguments=trims,
            ids=ids,
            counts_end=end,
            counts_forced=forced,
        )


def stack_name(stack: ServingStack) -> str:
    """A stack by its parts, in words; `faithful` where nothing is changed."""
    parts = [
        "blanks" if stack.blanks else "",
        "" if stack.parses_reasoning else "think in content",
        "cut at the call" if stack.cuts_at_call else "",
        *_strip_words(stack),
        "" if stack.arguments == "sampled" else f"{stack.arguments} arguments",
        "trimmed arguments" if stack.trims_arguments else "",
        "" if stack.ids == "sampled" else f"ids {stack.ids}" if stack.ids == "replaced" else "bare ids",
        "" if stack.counts_end else "end not counted",
        "" if stack.counts_forced else "forced call not counted",
        "reasoning counted" if stack.counts_reasoning else "",
    ]
    changes = [part for part in parts if part]
    if not changes or changes[0] in ("end not counted", "forced call not counted", "reasoning counted"):
        changes.insert(0, "faithful")
    return printable(", ".join(changes))


def _strip_words(stack: ServingStack) -> list[str]:
    whole, stream = (" and ".join(sorted(sides)) for sides in (stack.strips_json, stack.strips_stream))
    only = ["only with thinking"] if stack.strips_thinking_only and (whole or stream) else []
    if whole == stream:
        return [f"{whole} stripped", *only] if whole else []
    words = [f"{whole} stripped in whole replies" if whole else "", f"{stream} stripped in streams" if stream else ""]
    return [*(word for word in words if word), *only]
