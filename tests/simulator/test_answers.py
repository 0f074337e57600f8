"""What each host makes of one completion, worked out by hand."""

import re

import pytest

from kimi_helpers.simulator.answers import Answer, answer
from kimi_helpers.simulator.completions import Completion
from kimi_helpers.simulator.hosts import HOSTS
from kimi_helpers.vocabulary import Vocabulary

BY_SLUG = {host.slug: host for host in HOSTS}
THINK, END_THINK, END_TURN = 163606, 163607, 163586
SECTION, END_SECTION, CALL, ARGUMENTS, END_CALL = 163595, 163596, 163597, 163598, 163599
NAME = [41937, 1654, 25, 15]  # functions.f:0
SPACED = [8264, 64, 1289, 220, 16, 92]  # {"a": 1}
MIXED = [8264, 64, 1289, 16, 11, 414, 65, 1289, 17, 92]  # {"a":1, "b":2}
MARKUP = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
    '{"a": 1}<|tool_call_end|><|tool_calls_section_end|>'
)


def texts(found: Answer) -> tuple[str, str, list[str], list[str]]:
    arguments = ["".join(call.arguments) for call in found.calls]
    return "".join(found.reasoning), "".join(found.content), [call.id for call in found.calls], arguments


def serve(
    slug: str,
    kimi: Vocabulary,
    ids: list[int],
    ended: bool = True,
    thinking: bool = True,
    forced: bool = False,
    streamed: bool = False,
) -> Answer:
    return answer(BY_SLUG[slug], kimi, Completion((1,), tuple(ids), thinking, ended, forced), streamed)


def calling(*arguments: list[int], content: tuple[int, ...] = ()) -> list[int]:
    """`11</think>`, content, a section with calls of `functions.f:0`, and the end."""
    calls = [id for text in arguments for id in (CALL, *NAME, ARGUMENTS, *text, END_CALL)]
    return [1228, END_THINK, *content, SECTION, *calls, END_SECTION, END_TURN]


@pytest.mark.parametrize(
    ("slug", "reasoning", "content", "counts"),
    [
        ("faithful", "11", "1", (4, 2)),
        ("blanks", "11 ", " 1", (4, 2)),
        ("reasoning-content", "11", "1", (4, 2)),
        ("think-in-content", "", "11</think>1", (4, 0)),
        ("end-not-counted", "11", "1", (3, 2)),
        ("stripped", "11", "1", (4, 2)),
        ("compact-arguments", "11", "1", (4, 2)),
        ("spaced-arguments", "11", "1", (4, 2)),
        ("call-ids", "11", "1", (4, 2)),
        ("bare-ids", "11", "1", (4, 2)),
        ("hex-ids", "11", "1", (3, 2)),
        ("leaky-tools", "11", "1", (4, 2)),
        ("short-forced", "11", "1", (4, 2)),
        ("avian-like", "11 ", " 1", (3, 0)),
        ("sglang-old", "11", "1", (4, 2)),
        ("trimmed-arguments", "11 ", " 1", (4, 2)),
        ("returns-ids", "11", "1", (4, 2)),
        ("returns-bytes", "11", "1", (4, 2)),
        ("returns-content-bytes", "11", "1", (4, 2)),
    ],
)
def test_an_answer(slug: str, reasoning: str, content: str, counts: tuple[int, int], kimi: Vocabulary) -> None:
    found = serve(slug, kimi, [1228, END_THINK, 16, END_TURN])
    assert texts(found) == (reasoning, content, [], [])
    assert (found.completion_tokens, found.reasoning_tokens) == counts
    assert found.finish_reason == "stop"


@pytest.mark.parametrize(
    ("slug", "reasoning", "content", "argument", "count"),
    [
        ("faithful", "11", "", '{"a": 1}', 18),
        ("blanks", "11 ", " ", ' {"a": 1} ', 18),
        ("think-in-content", "", "11</think>", '{"a": 1}', 18),
        ("end-not-counted", "11", "", '{"a": 1}', 17),
        ("stripped", "11", "", '{"a": 1}', 18),
        ("compact-arguments", "11", "", '{"a":1}', 18),
        ("spaced-arguments", "11", "", '{"a": 1}', 18),
        ("short-forced", "11", "", '{"a": 1}', 18),
        ("avian-like", "11 ", "  ", '{"a": 1}', 17),
        ("sglang-old", "11", "", '{"a": 1}', 18),
        ("trimmed-arguments", "11 ", " ", '{"a": 1}', 18),
        ("returns-ids", "11", "", '{"a": 1}', 18),
    ],
)
def test_a_tool_call(slug: str, reasoning: str, content: str, argument: str, count: int, kimi: Vocabulary) -> None:
    found = serve(slug, kimi, calling(SPACED))
    assert texts(found) == (reasoning, content, ["functions.f:0"], [argument])
    assert found.finish_reason == "tool_calls"
    assert found.completion_tokens == count


def test_arguments_are_written_anew_one_way_or_the_other(kimi: Vocabulary) -> None:
    ids = calling(MIXED, kimi.encode("{}"), kimi.encode('{\n  "城": [1.50, "a\\u00e9\\n"]\n}'))
    assert texts(serve("faithful", kimi, ids))[3] == ['{"a":1, "b":2}', "{}", '{\n  "城": [1.50, "a\\u00e9\\n"]\n}']
    assert texts(serve("compact-arguments", kimi, ids))[3] == ['{"a":1,"b":2}', "{}", '{"城":[1.5,"aé\\n"]}']
    for slug in ("spaced-arguments", "avian-like"):
        assert texts(serve(slug, kimi, ids))[3] == ['{"a": 1, "b": 2}', "{}", '{"城": [1.5, "aé\\n"]}']
    assert texts(serve("trimmed-arguments", kimi, ids))[3][0] == '{"a":1, "b":2}'


@pytest.mark.parametrize(
    ("slug", "pattern", "argument", "count"),
    [
        ("call-ids", r"call_[0-9a-f]{24}", '{"a":1}', 26),
        ("bare-ids", r"f:0", '{"a": 1}', 26),
        ("hex-ids", r"[0-9a-f]{32}", '{"a": 1}', 25),
    ],
)
def test_ids_are_replaced(slug: str, pattern: str, argument: str, count: int, kimi: Vocabulary) -> None:
    found = serve(slug, kimi, calling(SPACED, kimi.encode("{}")))
    _, _, ids, arguments = texts(found)
    assert arguments == [argument, "{}"]
    assert all(re.fullmatch(pattern, id) for id in ids)
    assert len(set(ids)) == (1 if slug == "bare-ids" else 2)
    assert ids == [call.id for call in serve(slug, kimi, calling(SPACED, kimi.encode("{}")), streamed=True).calls]
    assert [call.name for call in found.calls] == ["f", "f"]
    assert found.completion_tokens == count


def test_without_a_tool_parser_markup_is_content_and_the_finish_is_stop(kimi: Vocabulary) -> None:
    found = serve("leaky-tools", kimi, calling(SPACED, content=(16,)))
    assert texts(found) == ("11", f"1{MARKUP}", [], [])
    assert (found.finish_reason, found.completion_tokens) == ("stop", 19)


def test_what_was_forced_is_not_counted(kimi: Vocabulary) -> None:
    assert serve("short-forced", kimi, calling(SPACED), forced=True).completion_tokens == 18 - 1 - 1 - len(NAME) - 1
    assert serve("faithful", kimi, calling(SPACED), forced=True).completion_tokens == 18
    two = calling(SPACED, SPACED)
    assert serve("short-forced", kimi, two, forced=True).completion_tokens == len(two) - 7
    cut = [1228, END_THINK, SECTION, CALL, *NAME[:2]]
    assert serve("short-forced", kimi, cut, ended=False, forced=True).completion_tokens == 2
    before = [1228, END_THINK]
    assert serve("short-forced", kimi, before, ended=False, forced=True).completion_tokens == 2


def test_avian_strips_the_front_of_the_reasoning_and_leaves_blanks_elsewhere(kimi: Vocabulary) -> None:
    ids = [*kimi.encode("\n R\n"), END_THINK, *kimi.encode(" A\n"), *calling(SPACED)[2:]]
    assert texts(serve("avian-like", kimi, ids)) == ("R\n ", "  A\n  ", ["functions.f:0"], ['{"a": 1}'])
    assert texts(serve("blanks", kimi, ids))[:2] == ("\n R\n ", "  A\n ")
    cut = [1228, END_THINK, 16, SECTION]
    assert texts(serve("avian-like", kimi, cut, ended=False))[:2] == ("11 ", " 1 ")


def test_avian_guesses_the_reasoning_tokens_from_the_text(kimi: Vocabulary) -> None:
    ids = [*kimi.encode("用户想要一个简短的回答。用户想要"), END_THINK, 16, END_TURN]
    assert serve("avian-like", kimi, ids).reasoning_tokens == 17 // 4
    assert serve("faithful", kimi, ids).reasoning_tokens == len(ids) - 2


def test_old_sglang_strips_a_whole_reply_and_a_stream_by_different_rules(kimi: Vocabulary) -> None:
    ids = [*kimi.encode(" R\n"), END_THINK, *kimi.encode("\n\nA <think> \n"), END_TURN]
    assert texts(serve("sglang-old", kimi, ids))[:2] == ("R\n", "A")
    assert texts(serve("sglang-old", kimi, ids, streamed=True))[:2] == (" R", "\n\nA <think> \n")
    cut = kimi.encode(" R\n")
    assert texts(serve("sglang-old", kimi, cut, ended=False))[:2] == ("R", "")
    assert texts(serve("sglang-old", kimi, cut, ended=False, streamed=True))[:2] == (" R\n", "")


def test_stripped_takes_blanks_and_newlines_of_both_texts(kimi: Vocabulary) -> None:
    ids = [*kimi.encode(" R\n"), END_THINK, *kimi.encode("\n\nA b \n"), END_TURN]
    assert texts(serve("faithful", kimi, ids))[:2] == (" R\n", "\n\nA b \n")
    assert texts(serve("stripped", kimi, ids))[:2] == ("R", "A b")


@pytest.mark.parametrize(
    ("slug", "streamed", "reasoning"),
    [
        ("faithful", False, "11\n"),
        ("blanks", False, "11\n "),
        ("sglang-old", False, "11"),
        ("sglang-old", True, "11"),
    ],
)
def test_a_section_inside_the_reasoning_ends_it(slug: str, streamed: bool, reasoning: str, kimi: Vocabulary) -> None:
    ids = [1228, 198, *calling(SPACED)[2:]]
    found = serve(slug, kimi, ids, streamed=streamed)
    assert texts(found)[:3] == (reasoning, "", ["functions.f:0"])
    assert found.reasoning_tokens == 2


def test_the_think_token_that_k2_thinking_samples(kimi: Vocabulary) -> None:
    ids = [THINK, 1228, END_THINK, 16, END_TURN]
    assert texts(serve("faithful", kimi, ids))[:2] == ("11", "1")
    assert texts(serve("blanks", kimi, ids))[:2] == (" 11 ", " 1")
    assert texts(serve("avian-like", kimi, ids))[:2] == ("11 ", " 1")
    assert texts(serve("sglang-old", kimi, ids))[:2] == ("11", "1")
    assert texts(serve("think-in-content", kimi, ids))[:2] == ("", "<think>11</think>1")


def test_a_cut_reply_has_no_end_to_leave_out_of_the_count(kimi: Vocabulary) -> None:
    for slug in ("faithful", "end-not-counted"):
        found = serve(slug, kimi, [1228, END_THINK, 16], ended=False)
        assert (found.finish_reason, found.completion_tokens) == ("length", 3)


def test_a_reply_cut_in_its_reasoning_is_all_reasoning(kimi: Vocabulary) -> None:
    found = serve("faithful", kimi, [1228], ended=False)
    assert texts(found) == ("11", "", [], [])
    assert found.reasoning_tokens == 1


def test_without_thinking_no_reasoning_is_looked_for(kimi: Vocabulary) -> None:
    for slug in ("faithful", "sglang-old", "avian-like"):
        found = serve(slug, kimi, [220, 16, END_TURN], thinking=False)
        assert texts(found)[:2] == ("", " 1")
        assert found.reasoning_tokens == 0
