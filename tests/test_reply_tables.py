"""Replies in tables: both forms give the same replies, and what a column cannot hold is not lost."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_helpers.replies import Failure, Reply
from kimi_helpers.reply_sources import SourceError, find_sources, read_sources, read_tables
from kimi_helpers.reply_tables import (
    RAW_SCHEMA,
    REPLY_SCHEMA,
    RawReply,
    parse_raw,
    parsed_table,
    raw_rows,
    raw_table,
    sourced_rows,
)
from tests.loopback_replies import loopback_replies
from tests.reply_samples import CALL, chunk, completion, json_body, stream

TEXTS = st.text(st.characters(), max_size=12)


def raw(body: bytes, request: bytes | None = None, status: int | None = 200, broke: str | None = None) -> RawReply:
    return RawReply("a", request, status, body, broke)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    message = {"reasoning": draw(st.none() | TEXTS), "content": draw(st.none() | TEXTS)}
    if draw(st.booleans()):
        message["tool_calls"] = [{**CALL, "index": 0, "id": draw(TEXTS)}]
    finish = draw(st.sampled_from(["stop", "tool_calls", "length", "error", None]))
    usage = draw(st.none() | st.fixed_dictionaries({"prompt_tokens": st.integers(0, 9), "cost": st.floats(0, 1)}))
    if draw(st.booleans()):
        return completion(message, finish, usage=usage, model=draw(TEXTS))
    return stream(chunk(message), chunk({"content": draw(TEXTS)}), chunk({}, finish, usage=usage))


@given(st.lists(bodies(), max_size=4))
def test_the_parsed_form_gives_the_same_replies(made: list[bytes]) -> None:
    table = raw_table(raw(body) for body in made)
    assert list(raw_rows(table)) == [raw(body) for body in made]
    assert list(sourced_rows(parsed_table(table))) == [parse_raw(raw(body)) for body in made]


def test_so_it_does_for_every_loopback_host() -> None:
    replies = loopback_replies()
    parsed = parsed_table(raw_table(replies))
    assert list(sourced_rows(parsed)) == [parse_raw(each) for each in replies]
    assert parsed.column("body").null_count > len(replies) / 2


@pytest.mark.parametrize(
    ("exchange", "kept"),
    [
        (raw(completion({"content": "said"})), False),
        (raw(stream(chunk({"reasoning": "so"}), chunk({"content": "said"}, "stop"))), False),
        (raw(stream(chunk({"content": "said"}), chunk({"reasoning": "so"}, "stop"))), True),  # not in this order
        (raw(completion({"content": "half \ud800"})), True),
        (raw(completion({"content": "said"}, choice={"token_ids": [1, 2]})), True),
        (raw(completion({"content": "s"}, choice={"logprobs": {"content": [{"token": "s", "logprob": -1.0}]}})), True),
        (raw(json_body({"error": {"message": "no"}}), status=502), True),
        (raw(completion({"content": "said"}), broke="reset"), True),
        (raw(b"\x00 no reply"), True),
    ],
)
def test_a_body_is_kept_where_no_columns_hold_what_it_says(exchange: RawReply, kept: bool) -> None:
    parsed = parsed_table(raw_table([exchange]))
    assert parsed.column("body").to_pylist() == [exchange.body if kept else None]
    assert list(sourced_rows(parsed)) == [parse_raw(exchange)]


def test_a_parsed_table_is_not_parsed_again() -> None:
    parsed = parsed_table(raw_table([raw(completion({"content": "said"}))]))
    assert parsed_table(parsed) is parsed


def test_half_a_surrogate_pair_in_a_name_becomes_an_escape() -> None:
    (kept,) = raw_rows(raw_table([RawReply("a\udcff.json", None, None, b"", "no \ud800")]))
    assert (kept.source, kept.transport_error) == ("a\\udcff.json", "no \\ud800")


def test_files_of_both_forms_are_sources_and_others_are_not(tmp_path: Path) -> None:
    exchanges = [raw(completion({"content": word})) for word in ("one", "two", "three")]
    table = raw_table(exchanges)
    pq.write_table(table, tmp_path / "a.parquet")
    pq.write_table(parsed_table(table).append_column("note", pa.array(["x"] * 3)), tmp_path / "b.parquet")
    (tmp_path / "c.json").write_bytes(completion({"content": "four"}))
    sources = find_sources([tmp_path])
    said = [content_of(each.outcome) for each in read_sources(sources)]
    assert said == ["one", "two", "three", "one", "two", "three", "four"]
    tables = list(read_tables(sources, 2))
    assert [len(each) for each in tables] == [2, 1, 2, 1, 1]
    assert [each.schema for each in tables] == [RAW_SCHEMA] * 2 + [REPLY_SCHEMA] * 2 + [RAW_SCHEMA]
    assert [content_of(row.outcome) for each in tables for row in sourced_rows(each)] == said
    pq.write_table(table.drop_columns(["body"]), tmp_path / "d.parquet")
    with pytest.raises(SourceError, match="column body is missing"):
        list(read_tables([tmp_path / "d.parquet"], 2))


def content_of(outcome: Reply | Failure) -> Any:
    assert isinstance(outcome, Reply)
    return outcome.content
