"""Other ids that a host would return and bill the same: found where text is lost, and nowhere else."""

import pytest

from kimi_helpers.simulator.answers import answer
from kimi_helpers.simulator.completions import Completion
from kimi_helpers.simulator.hosts import HOSTS
from kimi_helpers.simulator.witnesses import find_witness
from kimi_helpers.vocabulary import Vocabulary

BY_SLUG = {host.slug: host for host in HOSTS}
END_THINK, END_TURN = 163607, 163586
SECTION, END_SECTION, CALL, ARGUMENTS, END_CALL = 163595, 163596, 163597, 163598, 163599
NAME = [41937, 1654, 25, 15]  # functions.f:0
# {"a": "x", "b":"y"}: the style that no serialiser writes
UNEVEN = '{"a": "x", "b":"y"}'


def witness(
    slug: str, kimi: Vocabulary, text: str, ended: bool = True, arguments: str | None = None
) -> list[int] | None:
    ids = [*kimi.encode("ok"), END_THINK, *kimi.encode(text)]
    if arguments is not None:
        ids += [SECTION, CALL, *NAME, ARGUMENTS, *kimi.encode(arguments), END_CALL, END_SECTION]
    completion = Completion((), (*ids, END_TURN) if ended else tuple(ids), True, ended)
    found = find_witness(BY_SLUG[slug], kimi, completion, False)
    if found is None:
        return None
    assert found != completion.token_ids
    given, other = (
        answer(BY_SLUG[slug], kimi, Completion((), one, True, ended)) for one in (completion.token_ids, found)
    )
    assert ("".join(given.content), given.completion_tokens) == ("".join(other.content), other.completion_tokens)
    return list(found)


@pytest.mark.parametrize("text", ["hello world", " 1\n", ""])
def test_a_faithful_host_leaves_no_doubt(kimi: Vocabulary, text: str) -> None:
    assert witness("faithful", kimi, text, arguments='{"a": 1}') is None


def test_a_typed_mark_is_told_by_the_count_unless_a_section_was_left_open(kimi: Vocabulary) -> None:
    assert witness("faithful", kimi, "a <|im_end|> b") is None
    assert witness("faithful", kimi, "a.</think>", arguments='{"a": 1}') is not None


def test_a_stripped_blank_before_a_word(kimi: Vocabulary) -> None:
    """`Paris` and ` Paris` are one token each, and come back the same where content is stripped."""
    assert len(kimi.encode("Paris")) == len(kimi.encode(" Paris")) == 1
    found = witness("stripped", kimi, "Paris")
    assert found is not None
    reasoning, _, content = kimi.decode(found).removesuffix("<|im_end|>").partition("</think>")
    assert (reasoning.strip(), content.strip()) == ("ok", "Paris")
    assert (reasoning, content) != ("ok", "Paris")


def test_a_blank_lost_in_arguments(kimi: Vocabulary) -> None:
    assert witness("compact-arguments", kimi, "", arguments='{"a": "x"}') is not None
    assert witness("faithful", kimi, "", arguments=UNEVEN) is None


def test_a_call_that_was_cut_and_dropped(kimi: Vocabulary) -> None:
    ids = [1228, END_THINK, SECTION, CALL, *NAME, ARGUMENTS, *kimi.encode('{"a')]
    found = find_witness(BY_SLUG["faithful"], kimi, Completion((), tuple(ids), True, False), True)
    assert found is not None
    shown = ids.index(ARGUMENTS) + 1
    assert found[:shown] == tuple(ids[:shown])
    assert (len(found), found == tuple(ids)) == (len(ids), False)
