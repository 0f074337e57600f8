"""Readings against an independent forward model: what a stack made of a completion is read back, and never wrongly."""

import json
import random
import resource
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kimi_helpers.formats import BEGIN_ARGUMENTS, END_THINK, END_TURN, FORMATS, Special
from kimi_helpers.profiles import ProviderProfile, read_profiles
from kimi_helpers.reading_search import Choices, encoder_of, in_ids, packed
from kimi_helpers.readings import MOST_SOURCE_CHARACTERS, MOST_SPELLED, Layout, Slot, layouts, most_spelled
from kimi_helpers.reconstruction import Grade, Reconstruction, reconstruct
from kimi_helpers.replies import Reply, ToolCall, Usage
from kimi_helpers.request_terms import Asked, read_request
from kimi_helpers.serving_stacks import ServingStack, known_stacks
from kimi_helpers.vocabulary import load_vocabulary
from kimi_helpers.workspace import DATA
from tests.forward_stacks import Call, Completion, draw_completion, draw_stack, losses, returned

THINKING = Asked(True)
KNOWN = tuple(known_stacks().values()) + tuple(
    stack for profile in read_profiles(DATA / "profiles/loopback.toml").values() for stack in profile.stacks
)
LAW = settings(
    max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
SEEDS = st.integers(0, 2**32).map(random.Random)
STACKS = st.sampled_from(KNOWN) | SEEDS.map(draw_stack)


def fixed(stack: ServingStack) -> ProviderProfile:
    return ProviderProfile("P", (stack,), None, "built so")


def holds(choices: Choices, ids: bytes, billed: int) -> bool:
    """Whether a choice of one alternative a part makes these ids and this count."""
    ways: dict[int, tuple[tuple[bytes], ...]] = {0: ()}
    for alternatives in choices.parts:
        following: dict[int, tuple[tuple[bytes], ...]] = {}
        for place, chosen in ways.items():
            for each in alternatives:
                if ids.startswith(each, place):
                    following[place + len(each)] = (*chosen, (each,))
        ways = following
    if len(ids) not in ways:
        return False
    return replace(choices, parts=ways[len(ids)]).plain().billed == billed


def is_read(completion: Completion, outcome: Reply, stack: ServingStack) -> bool:
    encode, vocabulary = cache(encoder_of(completion.vocabulary)), completion.vocabulary
    assert outcome.usage
    assert outcome.usage.completion_tokens is not None
    billed, true = outcome.usage.completion_tokens, packed(completion.ids)
    found = layouts(outcome, vocabulary, FORMATS[completion.format], stack, completion.asked)
    return any(holds(in_ids(layout, vocabulary, encode), true, billed) for layout in found)


@LAW
@given(STACKS, SEEDS, st.booleans(), st.booleans())
def test_backwards_of_forwards_holds_the_true_ids(
    stack: ServingStack, draw: random.Random, streamed: bool, keeps_open: bool
) -> None:
    """Save where something is lost that no source restores; `losses` names each case."""
    completion = draw_completion(draw)
    outcome = returned(completion, stack, streamed, keeps_open)
    assume(outcome and not losses(completion, stack, streamed, keeps_open))
    assert outcome
    assert is_read(completion, outcome, stack)


@pytest.mark.parametrize("stack", KNOWN, ids=lambda stack: stack.name)
def test_every_known_stack_is_inverted(stack: ServingStack) -> None:
    read = 0
    for seed in range(25):
        completion = draw_completion(random.Random(seed))
        for streamed in (False, True):
            outcome = returned(completion, stack, streamed)
            if outcome and not losses(completion, stack, streamed):
                assert is_read(completion, outcome, stack), seed
                read += 1
    assert read > 10


@LAW
@given(STACKS, SEEDS, st.booleans(), st.booleans())
def test_nothing_is_called_exact_that_is_not(
    stack: ServingStack, draw: random.Random, streamed: bool, keeps_open: bool
) -> None:
    """Under the true stack's profile, save where the stack hides what no profile tells (`losses`)."""
    completion = draw_completion(draw)
    outcome = returned(completion, stack, streamed, keeps_open)
    assume(outcome and not losses(completion, stack, streamed, keeps_open))
    assert outcome
    format = FORMATS[completion.format]
    result = reconstruct(outcome, completion.vocabulary, format, fixed(stack), completion.asked)
    if result.grade.is_exact:
        assert result.token_ids == completion.ids
    else:
        assert result.grade in (Grade.exact_ambiguous, Grade.unresolved)
    # where nothing is changed, nothing but a cut, a spelled token or an unclosed call leaves a doubt
    if stack.name == "faithful" and completion.kept is None and completion.closes and not completion.missing:
        texts = [outcome.reasoning, outcome.content, *(call.arguments for call in outcome.tool_calls)]
        if not any(completion.vocabulary.spelling.search(text or "") for text in texts):
            assert result.grade is Grade.exact_unique


# stack, what was lost, and the completion: cases of the property above that were wrong once
LAST = Completion("kimi-k2.5", True, (" So",), True, ("42",), (), 0, "", None, 0, False)
CALL = Call("f", "functions.f:0", ('{"a": 1}',))


@pytest.mark.parametrize(
    ("steps", "completion"),
    [
        # a call that was not closed has no blank behind its arguments
        ({"blanks": True}, replace(LAST, calls=(CALL,), missing=2)),
        ({"blanks": True}, replace(LAST, calls=(Call("f", "functions.f:0", ("{} ",)),), missing=2)),
        # what is no JSON keeps the blanks that were added
        ({"blanks": True, "arguments": "compact"}, replace(LAST, calls=(Call("f", "functions.f:0", ("42 x",)),))),
        # a section inside the reasoning, whose blank is all the content
        ({"blanks": True, "cuts_at_call": True}, replace(LAST, content=(), calls=(CALL,), closes=False)),
        # a strip that reached that blank
        (
            {"blanks": True, "cuts_at_call": True, "strips_json": frozenset({"content end"})},
            replace(LAST, content=("ok\n",), calls=(CALL,)),
        ),
        # what is sampled before the forced start is billed
        ({"counts_forced": False}, replace(LAST, content=(), calls=(CALL,), forced=True)),
        # styles that models write
        ({"arguments": "compact"}, replace(LAST, calls=(Call("f", "functions.f:0", ('{"a":1, "b":2, "c":3}',)),))),
        ({"arguments": "spaced"}, replace(LAST, calls=(Call("f", "functions.f:0", ('{\n  "a": 1,\n  "b": 2\n}',)),))),
    ],
)
def test_cases_by_hand(steps: dict[str, Any], completion: Completion) -> None:
    stack = ServingStack("built", "nowhere", **steps)
    outcome = returned(completion, stack, False)
    assert outcome
    assert not losses(completion, stack, False)
    assert is_read(completion, outcome, stack)
    format = FORMATS[completion.format]
    result = reconstruct(outcome, completion.vocabulary, format, fixed(stack), completion.asked)
    assert completion.ids in {tuple(reading.token_ids.tolist()) for reading in result.candidates}
    assert not result.grade.is_exact or result.token_ids == completion.ids


def test_an_open_section_proves_nothing() -> None:
    """An id of two tokens less than the canonical one, and a section that lacks two: the same count."""
    lost = replace(LAST, calls=(Call("f", "f:0", ("{}",)),))
    opened = replace(LAST, calls=(Call("f", "functions.f:0", ("{}",)),), missing=1)
    assert len(lost.ids) == len(opened.ids)
    bare, format = ServingStack("built", "nowhere", ids="bare"), FORMATS["kimi-k2.5"]
    for completion in (lost, opened):
        outcome = returned(completion, bare, False)
        assert outcome
        result = reconstruct(outcome, completion.vocabulary, format, fixed(bare), THINKING)
        assert (result.grade, result.token_ids) == (Grade.exact_ambiguous, opened.ids)
        assert "left the law" in result.reason
    faithful = ServingStack("built", "nowhere")
    outcome = returned(opened, faithful, False)
    assert outcome
    result = reconstruct(outcome, opened.vocabulary, format, fixed(faithful), THINKING)
    assert (result.grade, result.token_ids) == (Grade.exact_ambiguous, opened.ids)


def test_a_parser_that_drops_open_calls_returned_a_closed_one() -> None:
    """The same reply is proven where the host drops what was not closed: the shorter reading is no longer one."""
    lost = replace(LAST, calls=(Call("f", "f:0", ("{}",)),))
    bare = ServingStack("built", "nowhere", ids="bare", drops_open_calls=True)
    opened = replace(LAST, calls=(Call("f", "functions.f:0", ("{}",)),), missing=2)
    assert not getattr(returned(opened, bare, False), "tool_calls", ())
    outcome = returned(lost, bare, False)
    assert outcome
    read = reconstruct(outcome, lost.vocabulary, FORMATS["kimi-k2.5"], fixed(bare), THINKING)
    assert all(lost.vocabulary.special_id("<|tool_call_end|>") in reading.token_ids for reading in read.candidates)


def test_a_model_that_always_thinks_is_stripped_though_the_request_says_off() -> None:
    """K2-Thinking opens its own think section, so a host that strips with thinking on strips its reply."""
    kimi, format = load_vocabulary(format="kimi-k2-thinking"), FORMATS["kimi-k2-thinking"]
    stack = replace(known_stacks()["stripped"], strips_thinking_only=True)
    outcome = returned(replace(LAST, format="kimi-k2-thinking", thinking=False, reasoning=(" Paris",)), stack, False)
    assert outcome
    assert outcome.reasoning == "Paris"
    read = reconstruct(outcome, kimi, format, fixed(stack), Asked(thinking=False))
    assert read.grade is Grade.exact_ambiguous
    assert {kimi.decode(reading.token_ids[1:2].tolist()) for reading in read.candidates} >= {" Paris", "Paris"}


def test_the_forward_model_by_hand() -> None:
    """What tests the inverse is itself tested: a turn with a call through four stacks, written out."""
    completion = replace(LAST, content=("ok\n",), calls=(CALL,))

    def seen(**steps: Any) -> tuple[Any, ...]:
        outcome = returned(completion, ServingStack("built", "nowhere", **steps), False)
        assert outcome
        assert outcome.usage
        (call,) = outcome.tool_calls
        return outcome.reasoning, outcome.content, call.id, call.arguments, outcome.usage.completion_tokens

    billed = len(completion.ids)
    assert seen() == (" So", "ok\n", "functions.f:0", '{"a": 1}', billed)
    assert seen(blanks=True) == (" So ", " ok\n ", "functions.f:0", ' {"a": 1} ', billed)
    avian = known_stacks()["blanks, reasoning front stripped, cut at the call, spaced arguments, end not counted"]
    steps = {name: value for name, value in vars(avian).items() if name not in ("name", "seen")}
    assert seen(**steps) == ("So ", " ok\n  ", "functions.f:0", '{"a": 1}', billed - 1)
    assert seen(arguments="compact", ids="bare", counts_end=False) == (" So", "ok\n", "f:0", '{"a":1}', billed - 1)
    assert seen(parses_reasoning=False)[:2] == (None, " So</think>ok\n")
    stripped = frozenset({"content end"})
    assert seen(blanks=True, strips_json=stripped)[1] == " ok"
    assert (completion.ids[-1], completion.ids.count(163607)) == (163586, 1)


def reply(
    reasoning: str | None = None, content: str | None = None, *calls: ToolCall, billed: int = 5, finish: str = "stop"
) -> Reply:
    return Reply(
        reasoning=reasoning,
        reasoning_field=None,
        content=content,
        tool_calls=calls,
        finish_reason=finish,
        native_finish_reasons=(),
        usage=Usage(None, billed, billed, None, None),
        provider="P",
        model="moonshotai/kimi-k2.5",
        generation_id=None,
        logprobs=None,
        engine_token_ids=None,
        engine_prompt_token_ids=None,
        transport="json",
        chunk_texts=(),
    )


def all_layouts(outcome: Reply, asked: Asked = THINKING, **steps: Any) -> list[Layout]:
    stack = ServingStack("built", "nowhere", **steps)
    return list(layouts(outcome, load_vocabulary(), FORMATS["kimi-k2.5"], stack, asked))


def test_layouts_of_a_plain_reply() -> None:
    slots = Slot("reasoning", (" So",)), Slot("content", ("42",))
    (layout,) = all_layouts(reply(" So", "42"))
    assert layout == Layout((slots[0], Special(END_THINK), slots[1], Special(END_TURN)), "counted")
    (layout,) = all_layouts(reply(" So", "42"), counts_end=False)
    assert layout.end_token == "not counted"
    cut = all_layouts(reply(" So", "42", finish="length"))
    assert [layout.end_token for layout in cut] == ["absent", "counted"]
    assert cut[0].parts == (slots[0], Special(END_THINK), slots[1])


def test_only_the_forced_start_is_not_billed() -> None:
    outcome = reply(" So", None, ToolCall("functions.f:0", "f", "{}"), finish="tool_calls")
    for layout in all_layouts(outcome, Asked(True, forced_call=True), counts_forced=False):
        uncounted = [layout.parts[place] for place in layout.uncounted]
        assert len(uncounted) == 4
        assert uncounted[2:] == [Slot("id", ("functions.f:0",)), Special(BEGIN_ARGUMENTS)]
    for asked, counts in ((Asked(True), False), (Asked(True, forced_call=True), True)):
        assert not any(layout.uncounted for layout in all_layouts(outcome, asked, counts_forced=counts))


def test_earlier_calls_and_forced_calls_are_read_from_the_request() -> None:
    messages = [{"role": "assistant", "tool_calls": [{}, {}]}, "junk", {"tool_calls": None}, {"tool_calls": [{}]}]
    assert read_request({"messages": messages, "tool_choice": "required"}) == Asked(True, 3, True)
    assert read_request({"messages": 3, "tool_choice": {"type": "function"}}) == Asked(True, 0, True)
    assert read_request({"tool_choice": "auto"}) == Asked(True, 0, False)
    replaced = all_layouts(reply(None, "x", ToolCall("call_1", "f", "{}")), Asked(False, 3), ids="replaced")
    slots = [part for part in replaced[0].parts if isinstance(part, Slot) and part.kind == "id"]
    assert slots == [Slot("id", ("functions.f:0", "functions.f:3"))]


def test_fewer_special_tokens_may_be_spelled_in_a_long_text() -> None:
    assert most_spelled(reply(None, "x")) == MOST_SPELLED
    assert most_spelled(reply(None, "x" * 100_000)) == 6  # 2 ** 6 * 100,000 characters
    assert most_spelled(reply(None, "x" * MOST_SOURCE_CHARACTERS)) == 0
    spelled = reply(None, "</think>" * 7 + "x" * 100_000)
    assert all_layouts(spelled) == []
    result = reconstruct(spelled, load_vocabulary(), FORMATS["kimi-k2.5"], fixed(KNOWN[0]), Asked(True))
    assert result.grade is Grade.unresolved
    assert "7 special tokens" in result.reason


def test_a_text_whose_sources_were_not_all_tried_is_never_exact() -> None:
    text = json.dumps({f"k{place}": place for place in range(300)}, separators=(",", ":"))
    outcome = reply(None, "x", ToolCall("functions.f:0", "f", text), finish="tool_calls")
    compact = ServingStack("built", "nowhere", arguments="compact")
    vocabulary, format = load_vocabulary(), FORMATS["kimi-k2.5"]
    found = all_layouts(outcome, Asked(False), arguments="compact")
    assert not any(layout.complete for layout in found)
    choices = in_ids(found[0], vocabulary, cache(encoder_of(vocabulary)))
    counts = sorted({choices.plain().billed, choices.plain().billed + 1, choices.plain().billed + 299})
    results = [
        reconstruct(
            reply(None, "x", *outcome.tool_calls, billed=each), vocabulary, format, fixed(compact), Asked(False)
        )
        for each in counts
    ]
    assert {result.grade for result in results} == {Grade.exact_ambiguous}
    # compact throughout: the only listed source of its count
    (alone,) = [result for result in results if len(result.candidates) == 1]
    assert "more than were tried" in alone.reason
    short = replace(outcome, tool_calls=(ToolCall("functions.f:0", "f", '{"a":1}'),))
    assert all(layout.complete for layout in all_layouts(short, Asked(False), arguments="compact"))


WILD: dict[str, Callable[[], Reply]] = {
    "a megabyte of a letter": lambda: reply("a" * 1_000_000, "a" * 1_000_000),
    "a megabyte of blanks": lambda: reply("So", " " * 1_000_000),
    "a megabyte of Han": lambda: reply("So", "中" * 1_000_000),
    "100,000 spelled tokens": lambda: reply("So", "</think>" * 100_000),
    "8 spelled tokens in a megabyte": lambda: reply("So", ("a" * 125_000 + "</think>") * 8),
    "20,000 separators": lambda: reply(None, None, ToolCall("functions.f:0", "f", dumped(list(range(20_001))))),
    "JSON 100,000 deep": lambda: reply(None, None, ToolCall("functions.f:0", "f", "[" * 100_000 + "]" * 100_000)),
    "JSON 900 deep": lambda: reply(None, None, ToolCall("functions.f:0", "f", "[" * 900 + "]" * 900)),
    "300 calls": lambda: reply(
        "So", None, *(ToolCall(f"functions.f:{place}", "f", dumped({"a": 1, "b": [2, 3]})) for place in range(300))
    ),
    "300 long calls": lambda: reply(
        "So", None, *(ToolCall(f"functions.f:{place}", "f", dumped(list(range(200)))) for place in range(300))
    ),
    "a string of a megabyte": lambda: reply(
        None, None, ToolCall("functions.f:0", "f", dumped(["\\" * 300_000, '"' * 300_000]))
    ),
}


def dumped(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


SIDES: Any = frozenset({"reasoning start", "reasoning end", "content start", "content end"})
HARSH = ServingStack("built", "nowhere", arguments="compact", ids="sampled", strips_json=SIDES, counts_reasoning=True)


@pytest.mark.parametrize("case", WILD)
def test_wild_replies_neither_crash_nor_hang_nor_fill_memory(case: str) -> None:
    outcome = WILD[case]()
    if outcome.tool_calls:
        outcome = replace(outcome, finish_reason="tool_calls")

    def graded(billed: int) -> Reconstruction:
        counted = replace(outcome, usage=Usage(None, billed, billed, None, None))
        return reconstruct(counted, load_vocabulary(), FORMATS["kimi-k2.5"], fixed(HARSH), Asked(True))

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    first = graded(1)
    assert first.grade is Grade.unresolved
    if first.candidates:
        # a count that some readings make, and a reasoning count that none does
        assert graded(first.candidates[0].billed).grade is not Grade.failed
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 1_000_000  # kB
