"""What each host makes of one completion, worked out by hand."""

from decimal import Decimal

import pytest

from kimi_helpers.simulator.hosts import HOSTS, Answer, Completion, Host, allowed_hosts, answer, cost
from kimi_helpers.vocabulary import Vocabulary

BY_SLUG = {host.slug: host for host in HOSTS}
END_THINK, END_TURN = 163607, 163586
SECTION, END_SECTION, CALL, ARGUMENTS, END_CALL = 163595, 163596, 163597, 163598, 163599


def texts(found: Answer) -> tuple[str, str, list[str], list[str]]:
    arguments = ["".join(call.arguments) for call in found.calls]
    return "".join(found.reasoning), "".join(found.content), [call.id for call in found.calls], arguments


def serve(slug: str, kimi: Vocabulary, ids: list[int], ended: bool = True, thinking: bool = True) -> Answer:
    return answer(BY_SLUG[slug], kimi, Completion((1,), tuple(ids), thinking, ended))


def test_six_hosts_have_slugs_and_names_of_their_own() -> None:
    assert list(BY_SLUG) == [
        "faithful", "blanks", "reasoning-content", "think-in-content", "end-not-counted", "stripped",
    ]  # fmt: skip
    assert len({host.name for host in HOSTS}) == len(HOSTS)


@pytest.mark.parametrize(
    ("slug", "reasoning", "content", "counts"),
    [
        ("faithful", "11", "1", (4, 2)),
        ("blanks", "11 ", " 1", (4, 2)),
        ("reasoning-content", "11", "1", (4, 2)),
        ("think-in-content", "", "11</think>1", (4, 0)),
        ("end-not-counted", "11", "1", (3, 2)),
        ("stripped", "11", "1", (4, 2)),
    ],
)
def test_an_answer(slug: str, reasoning: str, content: str, counts: tuple[int, int], kimi: Vocabulary) -> None:
    found = serve(slug, kimi, [1228, END_THINK, 16, END_TURN])
    assert texts(found) == (reasoning, content, [], [])
    assert (found.completion_tokens, found.reasoning_tokens) == counts
    assert found.finish_reason == "stop"


@pytest.mark.parametrize(
    ("slug", "reasoning", "content", "argument"),
    [
        ("faithful", "11", "", "{}"),
        ("blanks", "11 ", " ", " {} "),
        ("think-in-content", "", "11</think>", "{}"),
        ("stripped", "11", "", "{}"),
    ],
)
def test_a_tool_call(slug: str, reasoning: str, content: str, argument: str, kimi: Vocabulary) -> None:
    name, braces = kimi.encode("functions.f:0"), kimi.encode("{}")
    ids = [1228, END_THINK, SECTION, CALL, *name, ARGUMENTS, *braces, END_CALL, END_SECTION, END_TURN]
    found = serve(slug, kimi, ids)
    assert texts(found) == (reasoning, content, ["functions.f:0"], [argument])
    assert found.finish_reason == "tool_calls"
    assert found.completion_tokens == len(ids)


def test_a_section_inside_the_reasoning_ends_it(kimi: Vocabulary) -> None:
    ids = [1228, SECTION, CALL, *kimi.encode("functions.f:0"), ARGUMENTS, *kimi.encode("{}"), END_CALL, END_SECTION]
    found = serve("faithful", kimi, [*ids, END_TURN])
    assert texts(found) == ("11", "", ["functions.f:0"], ["{}"])
    assert found.reasoning_tokens == 1


def test_the_think_token_that_k2_thinking_samples(kimi: Vocabulary) -> None:
    ids = [163606, 1228, END_THINK, 16, END_TURN]
    assert texts(serve("faithful", kimi, ids))[:2] == ("11", "1")
    assert texts(serve("blanks", kimi, ids))[:2] == (" 11 ", " 1")
    assert texts(serve("think-in-content", kimi, ids))[:2] == ("", "<think>11</think>1")


def test_stripped_takes_blanks_and_newlines_of_both_texts(kimi: Vocabulary) -> None:
    ids = [*kimi.encode(" R\n"), END_THINK, *kimi.encode("\n\nA b \n"), END_TURN]
    assert texts(serve("faithful", kimi, ids))[:2] == (" R\n", "\n\nA b \n")
    assert texts(serve("stripped", kimi, ids))[:2] == ("R", "A b")


def test_a_cut_reply_has_no_end_to_leave_out_of_the_count(kimi: Vocabulary) -> None:
    for slug in ("faithful", "end-not-counted"):
        found = serve(slug, kimi, [1228, END_THINK, 16], ended=False)
        assert (found.finish_reason, found.completion_tokens) == ("length", 3)


def test_a_reply_cut_in_its_reasoning_is_all_reasoning(kimi: Vocabulary) -> None:
    found = serve("faithful", kimi, [1228], ended=False)
    assert texts(found) == ("11", "", [], [])
    assert found.reasoning_tokens == 1


def test_without_thinking_no_reasoning_is_looked_for(kimi: Vocabulary) -> None:
    found = serve("faithful", kimi, [16, END_TURN], thinking=False)
    assert texts(found)[:2] == ("", "1")
    assert found.reasoning_tokens == 0


def test_provider_only_takes_slugs_and_tags_in_its_order() -> None:
    assert [host.slug for host in allowed_hosts(["blanks/int4", "Faithful"])] == ["blanks", "faithful"]
    assert allowed_hosts(["blanks/fp8", "elsewhere"]) == []


def test_cost_is_price_times_count() -> None:
    host = Host("h", "H", prompt_price="0.00000044", completion_price="0.000002")
    assert cost(host, 69, 66) == (Decimal("0.00003036"), Decimal("0.000132"))
