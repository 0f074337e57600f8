"""Inferred stacks against true ones: random hosts, hosts of wild replies, the recorded hosts, and the space itself."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.stack_inference import measure
from kimi_helpers.formats import ModelFormat
from kimi_helpers.replies import Reply, parse_reply
from kimi_helpers.reply_sources import SourcedReply, find_sources, read_sources
from kimi_helpers.serving_stacks import ServingStack, known_stacks
from kimi_helpers.stack_inference import Judge, allowed_weight, blank_sides, infer_stack, witnesses_by_host
from kimi_helpers.stack_space import cores, plain_form, stack_name, strip_sets
from kimi_helpers.vocabulary import Vocabulary, load_vocabulary
from tests.forward_stacks import draw_completion, draw_stack, losses, returned
from tests.reply_samples import completion


def sample(**message: str) -> Reply:
    told = parse_reply(completion(message))
    assert isinstance(told, Reply)
    return told


def vocabulary_of(format: ModelFormat) -> Vocabulary:
    return load_vocabulary(format=format.name)


def test_random_hosts_are_never_inferred_wrong_and_seldom_left_open() -> None:
    verdicts = [outcome.verdict for outcome in measure(hosts=10, freaks=0.02, most=None, seed=7)]
    assert set(verdicts) <= {"right", "named"}
    assert verdicts.count("right") >= 8


@pytest.mark.parametrize("most", [1, 4, 12])
def test_few_prompts_leave_more_open_and_prove_nothing_wrong(most: int) -> None:
    verdicts = {outcome.verdict for outcome in measure(hosts=6, freaks=0.02, most=most, seed=most)}
    assert "wrong" not in verdicts


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_the_true_stack_of_wild_replies_stays_open_where_nothing_was_lost(seed: int) -> None:
    draw = random.Random(seed)
    stack = draw_stack(draw)
    replies = []
    for _ in range(6):
        drawn, streamed = draw_completion(draw), draw.random() < 0.5
        reply = returned(drawn, stack, streamed)
        if reply is None or losses(drawn, stack, streamed):
            continue
        earlier = [{"tool_calls": [{}] * drawn.earlier_calls}]
        asked: dict[str, Any] = {"reasoning": {"enabled": drawn.thinking}, "messages": earlier}
        if drawn.forced:
            asked["tool_choice"] = "required"
        replies.append(SourcedReply("s", asked, reply))
    witnesses = witnesses_by_host(replies, vocabulary_of).get("P", [])
    inference = infer_stack("P", witnesses, Judge(vocabulary_of))
    assert inference.leaves_open(stack) or inference.odd or not inference.open


def test_no_reply_leaves_nothing_inferred() -> None:
    inference = infer_stack("P", [], Judge(vocabulary_of))
    assert inference.best is None
    assert list(inference.stacks()) == []


def test_recorded_hosts_are_explained(shared_dir: Path) -> None:
    replies = read_sources(find_sources([shared_dir / "recorded"]))
    groups = witnesses_by_host(replies, vocabulary_of)
    found = {host: infer_stack(host, witnesses, Judge(vocabulary_of)) for host, witnesses in groups.items()}
    assert len(found) == 13
    assert all(inference.open for inference in found.values())
    assert found["Chutes"].best == ServingStack("", "")
    assert found["ModelRun"].best == ServingStack("", "", blanks=True)
    assert found["Together"].best == ServingStack("", "", arguments="compact", ids="replaced")
    assert found["DeepInfra"].best == ServingStack("", "", counts_end=False)
    assert sum(inference.counted == 1 for inference in found.values()) == 8


def test_every_registered_stack_lies_in_the_space() -> None:
    space = set(cores())
    for stack in known_stacks().values():
        plain = plain_form(stack)
        core = replace(plain, strips_json=frozenset(), strips_stream=frozenset())
        assert core in space
        assert {plain.strips_json, plain.strips_stream} <= set(strip_sets())
        assert plain_form(plain) == plain


def test_stacks_that_do_the_same_have_one_plain_form() -> None:
    faithful = plain_form(ServingStack("a", "b"))
    assert plain_form(ServingStack("c", "d", cuts_at_call=True, strips_thinking_only=True)) == faithful
    dumped = ServingStack("", "", arguments="compact")
    assert plain_form(replace(dumped, trims_arguments=True)) == plain_form(dumped)
    assert stack_name(faithful) == "faithful"


def test_the_space_names_each_stack_once() -> None:
    listed = [stack_name(core) for core in cores() if not core.strips_thinking_only]
    assert len(set(listed)) == len(listed) == 288


def test_blanks_at_the_edges_are_seen() -> None:
    told = sample(reasoning=" thought\n", content="answer ")
    assert blank_sides(told) == {"reasoning start", "reasoning end", "content end", "text start", "text end"}
    assert blank_sides(sample(reasoning="", content="answer")) == set()


def test_what_may_weigh_grows_with_the_replies() -> None:
    assert [allowed_weight(number) for number in (1, 24, 36, 70)] == [2, 2, 3, 5]
