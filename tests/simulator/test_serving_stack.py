"""The steps of a serving stack, on ids and texts worked out by hand."""

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_helpers.simulator.serving_stack import (
    ToolCall,
    cut_at_first_call,
    cut_reasoning,
    cut_reasoning_right_stripped,
    cut_reasoning_stripped,
    cut_tool_section,
    decode_faithfully,
    decode_with_blanks,
    leave_reasoning,
    leave_tools,
    part,
    strip,
    strip_left,
    strip_right,
)
from kimi_helpers.vocabulary import Vocabulary, load_vocabulary

KIMI = load_vocabulary()
ANY_IDS = st.lists(
    st.one_of(st.integers(0, 163_583), st.integers(0, 300), st.sampled_from([163_595, 163_597, 163_606, 163_607])),
    max_size=30,
)
SECTION = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
    "<|tool_calls_section_end|>"
)


def test_blanks_join_added_tokens_as_in_the_published_example(kimi: Vocabulary) -> None:
    ids = [163606, 1228, 163607, 16]
    assert "".join(decode_faithfully(kimi, ids)) == "<think>11</think>1"
    assert "".join(decode_with_blanks(kimi, ids)) == "<think> 11 </think> 1"


def test_one_blank_stands_between_two_added_tokens_and_none_outside(kimi: Vocabulary) -> None:
    assert "".join(decode_with_blanks(kimi, [163607, 163595])) == "</think> <|tool_calls_section_begin|>"
    assert decode_with_blanks(kimi, []) == ()


@given(ANY_IDS)
def test_faithful_pieces_join_to_the_decoded_text(ids: list[int]) -> None:
    assert "".join(decode_faithfully(KIMI, ids)) == KIMI.decode(ids)


@given(ANY_IDS)
def test_blanks_join_the_runs_decoded_on_their_own(ids: list[int]) -> None:
    runs = [list(run) for _, run in groupby(enumerate(ids), lambda at: (at[1] < 163_584) or at)]
    expected = " ".join(KIMI.decode([id for _, id in run]) for run in runs)
    assert "".join(decode_with_blanks(KIMI, ids)) == expected


def test_an_unfinished_character_is_held_back(kimi: Vocabulary) -> None:
    ids = kimi.encode("🏳🐔")
    whole = decode_faithfully(kimi, ids)
    assert len(ids) > 2
    assert "" in whole[:-1]
    assert "\ufffd" not in "".join(whole)
    assert "".join(decode_faithfully(kimi, ids[:-1])) == "🏳\ufffd"


@pytest.mark.parametrize(
    ("text", "reasoning", "rest"),
    [
        (" R</think>A", " R", "A"),
        ("<think>R\n</think>\n\nA", "R\n", "\n\nA"),
        ("<think> R </think> A", " R ", " A"),
        ("R<think>S</think>A", "R<think>S", "A"),
        ("R</think>A</think>B", "R", "A</think>B"),
        ("all of it", "all of it", ""),
        (f"R{SECTION}", "R", SECTION),
        ("</think>A", "", "A"),
        ("", "", ""),
    ],
)
def test_reasoning_is_cut_at_the_first_border(text: str, reasoning: str, rest: str) -> None:
    for pieces in ((text,), tuple(text)):
        found = cut_reasoning(pieces)
        assert ("".join(found[0]), "".join(found[1])) == (reasoning, rest)


@pytest.mark.parametrize(
    ("text", "whole", "streamed"),
    [
        (" R \n</think>\n A ", ("R \n", "A"), (" R", "\n A ")),
        ("<think>\nR</think>A<think>", ("R", "A"), ("\nR", "A<think>")),
        (" R ", ("R", ""), (" R ", "")),
        (f" R {SECTION}", ("R", SECTION), (" R", SECTION)),
        (f" R </think> A {SECTION}", ("R ", f"A {SECTION}"), (" R", f" A {SECTION}")),
        (" </think> ", ("", ""), ("", " ")),
        ("", ("", ""), ("", "")),
    ],
)
def test_old_sglang_cuts_a_whole_reply_and_a_stream(
    text: str, whole: tuple[str, str], streamed: tuple[str, str]
) -> None:
    for cut, expected in ((cut_reasoning_stripped, whole), (cut_reasoning_right_stripped, streamed)):
        for pieces in ((text,), tuple(text)):
            assert tuple("".join(found) for found in cut(pieces)) == expected


def test_without_a_reasoning_parser_everything_is_content() -> None:
    assert leave_reasoning(("R", "</think>", "A")) == ((), ("R", "</think>", "A"))


def test_tool_calls_come_out_as_sampled() -> None:
    text = (
        "Look.\n<|tool_calls_section_begin|>"
        '<|tool_call_begin|>functions.get.it:3<|tool_call_argument_begin|>{"城市": "北京"}<|tool_call_end|>'
        "<|tool_call_begin|> functions.f:4 <|tool_call_argument_begin|> {} <|tool_call_end|>"
        "<|tool_calls_section_end|>"
    )
    content, calls = cut_tool_section((text,))
    assert "".join(content) == "Look.\n"
    assert calls == (
        ToolCall("functions.get.it:3", "get.it", ('{"城市": "北京"}',)),
        ToolCall("functions.f:4", "f", (" {} ",)),
    )


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (f" A  {SECTION}", " A  "),
        (f" A  {SECTION}".replace("n|><|", "n|> <|"), " A   "),
        (" A <|tool_calls_section_begin|>", " A "),
        (" A <|tool_calls_section_begin|> <|tool_", " A  <|tool_"),
        (" A ", " A "),
    ],
)
def test_text_between_the_section_and_its_first_call_may_be_content(text: str, content: str) -> None:
    found, calls = cut_at_first_call(tuple(text))
    assert "".join(found) == content
    assert calls == cut_tool_section(tuple(text))[1]


def test_without_a_tool_parser_everything_is_content() -> None:
    assert leave_tools((f"A{SECTION}",)) == ((f"A{SECTION}",), ())


def test_a_call_cut_before_its_end_is_dropped() -> None:
    complete, begun = SECTION.removesuffix("<|tool_calls_section_end|>"), "<|tool_call_begin|>functions.g:1<|tool"
    content, calls = cut_tool_section((f"A{complete}{begun}",))
    assert content == ("A",)
    assert [call.name for call in calls] == ["f"]


def test_text_without_a_section_is_content() -> None:
    assert cut_tool_section(("a", "b")) == (("a", "b"), ())


@pytest.mark.parametrize(
    ("pieces", "stripped"),
    [((" ", "\n a", " b", " \n"), ("a", " b")), ((" \n",), ()), ((), ()), (("x",), ("x",))],
)
def test_strip_takes_the_outer_blanks_only(pieces: tuple[str, ...], stripped: tuple[str, ...]) -> None:
    assert strip(pieces) == strip_left(strip_right(pieces)) == stripped


@given(st.lists(st.text(alphabet=" \n\u3000ab", max_size=3), max_size=6))
def test_each_end_is_stripped_as_text_is(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert "".join(strip_left(tuple(pieces))) == text.lstrip()
    assert "".join(strip_right(tuple(pieces))) == text.rstrip()


@given(st.lists(st.text(max_size=4), max_size=8), st.integers(0, 40), st.integers(0, 40))
def test_part_is_a_slice_of_the_text(pieces: list[str], start: int, end: int) -> None:
    assert "".join(part(pieces, start, end)) == "".join(pieces)[start:end]
