"""What engines tell of the sampled tokens, on a reply whose ids are written out."""

import pytest

from kimi_helpers.simulator.token_evidence import Evidence, EvidenceKind, evidence_of
from kimi_helpers.vocabulary import Vocabulary

THINK, END_THINK, END_TURN = 163606, 163607, 163586
SECTION, END_SECTION, CALL, ARGUMENTS, END_CALL = 163595, 163596, 163597, 163598, 163599
NAME = (41937, 1654, 25, 15)  # functions.f:0
IDS = (1228, END_THINK, 16, SECTION, CALL, *NAME, ARGUMENTS, 13071, END_CALL, END_SECTION, END_TURN)


def told(kind: EvidenceKind, kimi: Vocabulary, ids: tuple[int, ...] = IDS, thinking: bool = True) -> Evidence:
    return evidence_of(kind, kimi, (7, 8), ids, thinking)


def logprob_texts(evidence: Evidence, start: int, end: int) -> list[str]:
    entries = evidence.choice_fields(start, end)["logprobs"]["content"]
    assert all(bytes(entry["bytes"]).decode() == entry["token"] and entry["logprob"] <= 0 for entry in entries)
    return [entry["token"] for entry in entries]


def test_ids_are_told_with_those_of_the_prompt(kimi: Vocabulary) -> None:
    evidence = told("ids", kimi)
    assert evidence.choice_fields(0, 3) == {"token_ids": (1228, END_THINK, 16)}
    assert evidence.body_fields() == {"prompt_token_ids": (7, 8)}


def test_bytes_are_told_of_every_token_or_of_the_content_alone(kimi: Vocabulary) -> None:
    assert logprob_texts(told("bytes", kimi), 0, len(IDS)) == [
        "11", "</think>", "1", "<|tool_calls_section_begin|>", "<|tool_call_begin|>", "functions", ".f", ":", "0",
        "<|tool_call_argument_begin|>", "{}", "<|tool_call_end|>", "<|tool_calls_section_end|>", "<|im_end|>",
    ]  # fmt: skip
    assert logprob_texts(told("content bytes", kimi), 0, len(IDS)) == ["1"]
    assert logprob_texts(told("content bytes", kimi, (16, END_TURN), thinking=False), 0, 2) == ["1"]
    assert logprob_texts(told("content bytes", kimi, (1228, SECTION, 16)), 0, 3) == []
    assert told("bytes", kimi).body_fields() == {}


def test_the_bytes_of_half_a_character_are_told(kimi: Vocabulary) -> None:
    ids = tuple(kimi.encode("🏳"))
    entries = told("bytes", kimi, ids).choice_fields(0, len(ids))["logprobs"]["content"]
    assert len(ids) > 1
    assert b"".join(bytes(entry["bytes"]) for entry in entries) == "🏳".encode()
    assert "\ufffd" in entries[0]["token"]


def test_each_chunk_has_the_tokens_up_to_where_its_text_ends(kimi: Vocabulary) -> None:
    evidence = told("ids", kimi)
    assert list(evidence.chunks(["11", "1", None, "{}"])) == [(0, 1), (1, 3), (3, 10), (10, 11)]
    assert list(evidence.chunks(["11", "1", None])) == [(0, 1), (1, 3), (3, 10)]


@pytest.mark.parametrize("end", [2, 3])
def test_a_character_of_several_tokens_belongs_to_the_chunk_that_shows_it(end: int, kimi: Vocabulary) -> None:
    ids = (THINK, 1228, *kimi.encode("🏳🐔"), END_THINK, 16, END_TURN)
    evidence = told("ids", kimi, ids)
    texts = ["11", "🏳🐔", "1"][:end]
    behind = [2, len(ids) - 3, len(ids) - 1][:end]
    assert [stop for _, stop in evidence.chunks(texts)] == behind
