"""Which stacks explain which host: on the recorded replies, on hosts made at random, and where nothing does."""

import random
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kimi_helpers.count_doubts import FEW_REPLIES
from kimi_helpers.formats import FORMATS, ModelFormat
from kimi_helpers.graded_rows import grade_replies
from kimi_helpers.profile_choice import (
    HostEvidence,
    choose_profile,
    describe_profiles,
    explaining_stacks,
    explains_reply,
    host_of,
    profiles_of_batch,
    weigh_stacks,
)
from kimi_helpers.reading_search import encoder_of
from kimi_helpers.reconstruction import Grade, reconstruct
from kimi_helpers.replies import Failure, Reply, ToolCall, Usage, parse_reply
from kimi_helpers.reply_sources import SourcedReply, find_sources, read_sources
from kimi_helpers.request_terms import Asked
from kimi_helpers.serving_stacks import ServingStack, known_stacks
from kimi_helpers.vocabulary import Vocabulary, load_vocabulary
from tests.forward_stacks import Completion, draw_completion, draw_stack, losses, returned


def vocabulary_of(format: ModelFormat) -> Vocabulary:
    return load_vocabulary(format=format.name)


AVIAN = "blanks, reasoning front stripped, cut at the call, spaced arguments, end not counted"

# Host, its counted replies, stacks that explain all of them, stacks that do not.
RECORDED = [
    ("(unnamed host of moonshotai/kimi-k2.5)", 3, [AVIAN], ["faithful", "blanks, end not counted"]),  # Avian
    ("(unnamed host of moonshotai/kimi-k2-instruct-0905)", 3, ["compact arguments"], ["faithful"]),  # Groq, HF router
    ("Chutes", 3, ["faithful"], ["blanks", "faithful, end not counted", "stripped"]),
    ("Inceptron", 1, ["faithful, end not counted", "blanks, reasoning end stripped"], ["faithful", "blanks"]),
    ("ModelRun", 1, ["blanks"], ["faithful", "stripped"]),
    ("Together", 2, ["compact arguments, ids replaced"], ["bare ids", "faithful, end not counted"]),
    ("Moonshot AI", 1, ["bare ids"], ["faithful, end not counted", "compact arguments"]),
    ("DeepInfra", 2, ["faithful, end not counted"], ["faithful", "blanks"]),
    ("SiliconFlow", 1, ["faithful, end not counted"], ["faithful"]),
    ("Novita", 1, ["faithful, end not counted"], ["faithful"]),
    ("BaseTen", 1, ["faithful"], ["faithful, end not counted"]),
    ("Nebius", 1, ["faithful"], []),
    ("AtlasCloud", 1, [], list(known_stacks())),  # a forced call, counted short
]


@pytest.fixture(scope="module")
def recorded(shared_dir: Path) -> dict[str, HostEvidence]:
    replies = read_sources(find_sources([shared_dir / "recorded"]))
    return weigh_stacks(replies, vocabulary_of, known_stacks())


@pytest.mark.parametrize(("host", "counted", "open_stacks", "excluded"), RECORDED)
def test_the_stacks_of_recorded_hosts(
    recorded: Mapping[str, HostEvidence], host: str, counted: int, open_stacks: list[str], excluded: list[str]
) -> None:
    evidence = recorded[host]
    assert evidence.counted == counted
    assert set(evidence.explained) == set(known_stacks())
    assert all(evidence.explained[name] == counted for name in open_stacks)
    assert all(evidence.explained[name] < counted for name in excluded)


def test_twenty_of_the_twenty_one_recorded_replies_are_explained(recorded: Mapping[str, HostEvidence]) -> None:
    assert set(recorded) == {host for host, *_ in RECORDED}
    assert sum(evidence.counted for evidence in recorded.values()) == 21
    explained = {
        host: evidence.counted for host, evidence in recorded.items() if evidence.counted in evidence.explained.values()
    }
    assert sum(explained.values()) == 20
    assert set(recorded) - set(explained) == {"AtlasCloud"}


def test_recorded_profiles_rest_on_too_few_replies_to_be_exact(shared_dir: Path) -> None:
    replies = list(read_sources(find_sources([shared_dir / "recorded"])))
    profiles, unexplained = profiles_of_batch(replies, vocabulary_of, known_stacks())
    assert unexplained == ["AtlasCloud"]
    assert {host: profile.replies for host, profile in profiles.items()} == {
        host: counted for host, counted, open_stacks, _ in RECORDED if open_stacks
    }
    rows = [row for row in grade_replies(replies, vocabulary_of, profiles) if row.completion_tokens and row.format]
    graded = [row for row in rows if row.grade is not Grade.failed]
    assert not any(row.grade.is_exact for row in graded)
    assert [row.provider for row in graded if row.grade is Grade.unresolved] == ["AtlasCloud"]
    told = describe_profiles(profiles, unexplained)
    assert "DeepInfra: " in told
    assert "(n = 2)" in told
    assert "AtlasCloud: no known serving stack explains all its counted replies" in told


# The real ids of "hello world" and of the end token, of "don't", and of "42"
PLAIN = Completion("kimi-k2", False, (), True, ("hello world",), (), 0, "", None, 0, False)


def sent(completion: Completion, stack: ServingStack, host: str = "P") -> SourcedReply:
    outcome = returned(completion, stack, False, host=host)
    assert outcome
    return SourcedReply("s", None, outcome)


FAITHFUL = known_stacks()["faithful"]


def test_host_names() -> None:
    outcome = sent(PLAIN, FAITHFUL).outcome
    assert host_of(outcome) == "P"
    assert host_of(replace(outcome, provider=None)) == "(unnamed host of moonshotai/kimi-k2)"
    assert host_of(replace(outcome, provider="")) == "(unnamed host of moonshotai/kimi-k2)"
    assert host_of(replace(outcome, provider=None, model=None)) == "(unnamed host of no model)"
    failure = parse_reply(b'{"error": {"code": 502, "message": "no"}}')
    assert isinstance(failure, Failure)
    assert host_of(failure) == "(unnamed host of no model)"


def test_hosts_are_told_apart_and_only_counted_replies_weigh() -> None:
    uncounted = sent(PLAIN, FAITHFUL)
    assert isinstance(uncounted.outcome, Reply)
    uncounted = replace(uncounted, outcome=replace(uncounted.outcome, usage=None))
    foreign = sent(PLAIN, FAITHFUL, "other model")
    foreign = replace(foreign, outcome=replace(foreign.outcome, model="z-ai/glm-4.6"))
    failure = parse_reply(b'{"error": {"code": 502, "message": "no"}}')
    short = known_stacks()["faithful, end not counted"]
    batch = [
        sent(PLAIN, FAITHFUL, "A"),
        sent(PLAIN, short, "B"),
        sent(PLAIN, FAITHFUL, "A"),
        uncounted,
        foreign,
        SourcedReply("s", None, failure),
    ]
    evidence = weigh_stacks(batch, vocabulary_of, {stack.name: stack for stack in (FAITHFUL, short)})
    assert evidence == {
        "A": HostEvidence(2, {"faithful": 2, "faithful, end not counted": 0}),
        "B": HostEvidence(1, {"faithful": 0, "faithful, end not counted": 1}),
    }


def test_a_reply_that_cannot_be_read_says_nothing_of_its_host() -> None:
    spelled = replace(PLAIN, content=("<|im_end|>" * 9,))
    batch = [sent(spelled, FAITHFUL), sent(PLAIN, FAITHFUL)]
    assert weigh_stacks(batch, vocabulary_of, {"faithful": FAITHFUL}) == {"P": HostEvidence(1, {"faithful": 1})}


@pytest.mark.parametrize(
    ("content", "billed", "explained"), [("hello world", 2, True), ("hello world", 9, True), ("hello world", 1, False)]
)
def test_a_cut_reply_is_explained_by_what_is_not_longer(content: str, billed: int, explained: bool) -> None:
    outcome = sent(PLAIN, FAITHFUL).outcome
    assert isinstance(outcome, Reply)
    cut = replace(outcome, finish_reason="length", content=content, usage=Usage(None, billed, None, None, None))
    vocabulary = load_vocabulary(format="kimi-k2")
    encode = encoder_of(vocabulary)
    assert explains_reply(cut, vocabulary, FORMATS["kimi-k2"], FAITHFUL, Asked(), encode) is explained


def test_a_cut_reply_whose_forced_start_may_be_hidden_does_not_speak_against_a_stack() -> None:
    """Under a host that does not count the start of a forced call, where the cut came before the call was whole."""
    short = ServingStack("short", "nowhere", counts_forced=False)
    outcome = sent(PLAIN, FAITHFUL).outcome
    assert isinstance(outcome, Reply)
    cut = replace(outcome, finish_reason="length", usage=Usage(None, 1, None, None, None))
    vocabulary = load_vocabulary(format="kimi-k2")
    encode = encoder_of(vocabulary)
    for asked, stack, explained in (
        (Asked(forced_call=True), short, True),
        (Asked(forced_call=True), FAITHFUL, False),
        (Asked(), short, False),
    ):
        assert explains_reply(cut, vocabulary, FORMATS["kimi-k2"], stack, asked, encode) is explained


def test_a_reply_with_more_sources_than_are_tried_does_not_speak_against_a_stack() -> None:
    compact = known_stacks()["compact arguments"]
    outcome = sent(PLAIN, FAITHFUL).outcome
    assert isinstance(outcome, Reply)
    text = "[" + ",".join(map(str, range(500))) + "]"
    called = replace(outcome, tool_calls=(ToolCall("functions.f:0", "f", text),), finish_reason="tool_calls")
    vocabulary = load_vocabulary(format="kimi-k2")
    encode = cache(encoder_of(vocabulary))
    assert explains_reply(called, vocabulary, FORMATS["kimi-k2"], compact, Asked(), encode)
    assert not explains_reply(called, vocabulary, FORMATS["kimi-k2"], FAITHFUL, Asked(), encode)


def test_a_host_that_nothing_explains_is_reported() -> None:
    good, odd = sent(PLAIN, FAITHFUL), sent(PLAIN, FAITHFUL)
    assert isinstance(odd.outcome, Reply)
    odd = replace(odd, outcome=replace(odd.outcome, usage=Usage(None, 40, None, None, None)))
    batch = [*[good] * 20, odd, sent(PLAIN, FAITHFUL, "fine")]
    profiles, unexplained = profiles_of_batch(batch, vocabulary_of, known_stacks())
    assert (list(profiles), unexplained) == (["fine"], ["P"])
    assert "P: no known serving stack" in describe_profiles(profiles, unexplained)
    rows = list(grade_replies(batch, vocabulary_of, profiles))
    assert not any(row.grade.is_exact for row in rows)
    assert choose_profile("P", HostEvidence(0, {"faithful": 0}), known_stacks()) is None


@pytest.mark.parametrize("replies", [1, FEW_REPLIES - 1, FEW_REPLIES])
def test_a_profile_that_rests_on_few_replies_is_never_exact_and_says_so(replies: int) -> None:
    shown = replace(PLAIN, content=("\nhello world \n",))  # blanks at both ends, so none are stripped
    batch = [sent(shown, FAITHFUL)] * replies
    profiles, _ = profiles_of_batch(batch, vocabulary_of, {"faithful": FAITHFUL})
    assert profiles["P"].replies == replies
    rows = list(grade_replies(batch, vocabulary_of, profiles))
    if replies < FEW_REPLIES:
        assert {row.grade for row in rows} == {Grade.exact_ambiguous}
        assert f"only {replies} replies" in rows[0].reason
    else:
        assert {row.grade for row in rows} == {Grade.exact_unique}
        assert f"resting on {replies} replies" in rows[0].reason
        assert rows[0].token_ids == shown.ids


def test_a_side_at_which_no_reply_shows_a_blank_may_be_stripped() -> None:
    """`.` and `.` with a line feed are one token each, so a host that strips the end looks like one that does not."""
    sentence, blank = replace(PLAIN, content=("hello.",)), replace(PLAIN, content=(" hello.\n",))
    hidden = [sent(sentence, FAITHFUL)] * 20
    profiles, _ = profiles_of_batch(hidden, vocabulary_of, {"faithful": FAITHFUL})
    assert {row.grade for row in grade_replies(hidden, vocabulary_of, profiles)} == {Grade.exact_ambiguous}
    told = [*hidden, sent(blank, FAITHFUL)]
    profiles, _ = profiles_of_batch(told, vocabulary_of, {"faithful": FAITHFUL})
    assert {row.grade for row in grade_replies(told, vocabulary_of, profiles)} == {Grade.exact_unique}
    assert explaining_stacks(profiles["P"]) == ["faithful"]


def request_of(completion: Completion) -> dict[str, Any]:
    earlier = {"role": "assistant", "tool_calls": [{}] * completion.earlier_calls}
    asked = {"messages": [earlier], "thinking": {"type": "enabled" if completion.thinking else "disabled"}}
    return asked | ({"tool_choice": "required"} if completion.forced else {})


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32).map(random.Random))
def test_a_batch_of_one_host_never_gives_false_exact_ids(draw: random.Random) -> None:
    """Its stack is among the known ones, and whole replies that lose nothing are its batch."""
    stack = draw_stack(draw) if draw.random() < 0.6 else draw.choice(list(known_stacks().values()))
    stacks = dict(known_stacks()) | {stack.name: stack}
    batch: list[tuple[Completion, Reply]] = []
    while len(batch) < 12:
        completion, streamed = draw_completion(draw), draw.random() < 0.5
        outcome = returned(completion, stack, streamed)
        if outcome and not losses(completion, stack, streamed):
            batch.append((completion, outcome))
    sourced = [SourcedReply("s", request_of(completion), outcome) for completion, outcome in batch]
    profiles, unexplained = profiles_of_batch(sourced, vocabulary_of, stacks)
    assert not unexplained
    assert stack in profiles["P"].stacks
    for completion, outcome in batch:
        format = FORMATS[completion.format]
        result = reconstruct(outcome, completion.vocabulary, format, profiles["P"], completion.asked)
        assert not result.grade.is_exact or result.token_ids == completion.ids
