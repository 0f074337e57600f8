"""Replies graded in columns: which are plain, and that each gets what `reconstruct` gives a single one."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_helpers.bulk_encoding import BulkEncoder
from kimi_helpers.formats import FORMATS
from kimi_helpers.plain_replies import PlainGroup, grade_group, plain_groups
from kimi_helpers.profiles import ProviderProfile, read_profiles
from kimi_helpers.reply_tables import RawReply, parsed_table, raw_table
from kimi_helpers.vocabulary import Vocabulary
from kimi_helpers.workspace import DATA
from tests.reply_samples import CALL, chunk, completion, stream

FAITHFUL = "Loopback Faithful"
PROFILES = read_profiles(DATA / "profiles" / "loopback.toml")
TOP = {"provider": FAITHFUL, "model": "moonshotai/kimi-k2.5"}


def table_of(*bodies: bytes, request: bytes | None = None) -> pa.Table:
    return parsed_table(raw_table(RawReply(str(place), request, 200, body) for place, body in enumerate(bodies)))


def groups_of(
    table: pa.Table, kimi: Vocabulary, profiles: Mapping[str, ProviderProfile] = PROFILES
) -> list[PlainGroup]:
    return plain_groups(table, lambda _: FORMATS["kimi-k2.5"], lambda _: kimi, profiles)


def answer(content: str, billed: int, reasoning: str = " so", finish: str = "stop", **top: Any) -> bytes:
    message = {"reasoning": reasoning, "content": content}
    return completion(message, finish, usage={"completion_tokens": billed}, **{**TOP, **top})


def graded(table: pa.Table, kimi: Vocabulary) -> list[dict[str, Any]]:
    rows = []
    for group in groups_of(table, kimi):
        ids, offsets = BulkEncoder(kimi).encode_utf8([text for texts in group.texts for text in texts])
        rows += grade_group(group, ids, np.diff(offsets))[1].to_pylist()
    return rows


def test_the_law_by_hand(kimi: Vocabulary) -> None:
    """Reasoning, `</think>`, content and the end token, each text encoded on its own."""
    rows = graded(table_of(answer("don't", 4), answer("中\n文", 6)), kimi)
    so = kimi.encode(" so")
    assert [row["token_ids"] for row in rows] == [[*so, 163607, 88709, 163586], [*so, 163607, 435, 198, 908, 163586]]
    assert [row["source"] for row in rows] == ["0", "1"]
    assert [len(row["loss_mask"]) for row in rows] == [4, 6]
    assert {row["grade"] for row in rows} == {"exact_unique"}
    assert {row["host"] for row in rows} == {FAITHFUL}


@pytest.mark.parametrize("billed", [3, 5])
def test_a_count_that_is_missed_is_left_alone(kimi: Vocabulary, billed: int) -> None:
    rows = graded(table_of(answer("don't", billed), answer("don't", 4), answer("don't", billed)), kimi)
    assert [row["source"] for row in rows] == ["1"]


CALLS = [{**CALL, "index": 0}]


@pytest.mark.parametrize(
    "body",
    [
        answer("don't", 4, finish="length"),
        answer("a </think> b", 9),
        answer("a <|im_end|> b", 9),
        answer("[EOS]", 4),
        answer("caf\ufffd", 5),
        answer("fine", 5, reasoning=" \ufffd"),
        answer("don't", 4, provider="Nobody"),
        answer("don't", 4, provider="Loopback Blanks"),
        completion({"reasoning": " so", "content": "don't", "tool_calls": CALLS}, "tool_calls", **TOP),
        completion({"reasoning": " so", "content": "don't"}, "stop", **TOP),  # no count
        b'{"error": {"code": 429, "message": "slow down"}}',
    ],
)
def test_what_needs_a_closer_look(kimi: Vocabulary, body: bytes) -> None:
    assert [group.places.tolist() for group in groups_of(table_of(body, answer("don't", 4), body), kimi)] == [[1]]


def test_a_reply_as_long_as_it_may_be_was_cut(kimi: Vocabulary) -> None:
    assert not groups_of(table_of(answer("don't", 4), request=b'{"max_tokens": 4}'), kimi)
    assert groups_of(table_of(answer("don't", 4), request=b'{"max_tokens": 5}'), kimi)


def test_a_profile_on_few_replies_proves_nothing(kimi: Vocabulary) -> None:
    few = ProviderProfile(FAITHFUL, PROFILES[FAITHFUL].stacks, 3, "three replies")
    assert not groups_of(table_of(answer("don't", 4)), kimi, {FAITHFUL: few})


def test_borders_of_a_stream_inside_tokens(kimi: Vocabulary) -> None:
    """`don't` is one token: a border inside it is named, one between tokens is not, whatever bytes come before."""
    usage = {"completion_tokens": len(kimi.encode("é中")) + 4}
    bodies = [
        stream(
            chunk({"reasoning": " so"}, **TOP),
            chunk({"content": first}, **TOP),
            chunk({"content": second}, "stop", usage=usage, **TOP),
        )
        for first, second in (("é中do", "n't"), ("é中", "don't"))
    ]
    assert kimi.encode("é中don't") == kimi.encode("é中") + kimi.encode("don't")
    inside, between = (row["reason"] for row in graded(table_of(*bodies), kimi))
    assert inside.endswith("; 1 borders of the stream's chunks fall inside its tokens")
    assert "borders" not in between


@given(texts=st.lists(st.text() | st.sampled_from(["<|im_end", "<think", "[EOS", "\uff1a", "<|", "["]), max_size=6))
def test_a_mark_is_seen_wherever_it_stands(kimi: Vocabulary, texts: Sequence[str]) -> None:
    """Only where neighbours in the column's buffer spell a mark together may a text be left out that holds none."""
    texts = [*texts, "a<think>", "\ufffd", ""]
    table = table_of(*(answer(text, 4) for text in texts))
    found = {place for group in groups_of(table, kimi) for place in group.places.tolist()}
    marks = [*kimi.named, "\ufffd"]
    holding = {place for place, text in enumerate(texts) if any(mark in text for mark in marks)}
    assert not found & holding
    assert found >= {place for place, text in enumerate(texts) if text and not {"<", "["} & set(text)} - holding
