"""What a journal brought back, as tables with values counted by hand."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from kimi_helpers.generation_report import (
    ATTEMPT_COLUMNS,
    COLUMNS,
    attempt_table,
    by_cost,
    by_failure,
    by_provider,
    by_speed,
    outcome_counts,
    reply_table,
)
from kimi_helpers.journal import Exchange, Journal
from kimi_helpers.openrouter import Transfer
from tests.reply_samples import CALL, chunk, completion, json_body, stream


def exchange(key: str, body: bytes, status: int | None = 200, failure: str | None = None) -> Exchange:
    transfer = Transfer(
        request=b"{}",
        status=status,
        headers={},
        body=body,
        chunks=(),
        started="2026-11-29T12:00:00+00:00",
        seconds=0.5,
        transport_error=None,
    )
    return Exchange(key, "d", "p", "slug", "m", 0, failure, transfer)


def usage(completion_tokens: int, cost: float) -> dict[str, Any]:
    return {"usage": {"prompt_tokens": 7, "completion_tokens": completion_tokens, "cost": cost}}


def written(path: Path, *exchanges: Exchange) -> Path:
    with Journal.open(path, {}) as journal:
        assert all(journal.add(each) for each in exchanges)
    return path


@pytest.fixture
def table(tmp_path: Path) -> pd.DataFrame:
    """Two hosts and one error that names none."""
    call = {"content": None, "tool_calls": [CALL]}
    return reply_table(
        written(
            tmp_path / "journal.sqlite",
            exchange("a", completion({"reasoning": "Hm.", "content": "你好"}, id="gen-a", **usage(11, 0.25))),
            exchange("b", completion(call, "tool_calls", id="gen-b", **usage(21, 0.5))),
            exchange("c", json_body({"error": {"code": 429, "message": "slow down"}}), 429, "http_error"),
            exchange("d", stream(chunk({"content": "cut"}, provider="Q"), done=False), 200, "stream_cut"),
            exchange("e", completion({"content": "done"}, "length", provider="Q", id="gen-e")),
            exchange("f", completion({"content": "long"}, id="gen-f", **usage(100, 0.125))),
        )
    )


def test_one_row_a_settled_request_in_the_order_of_arrival(table: pd.DataFrame) -> None:
    assert table.dtypes.astype(str).to_dict() == COLUMNS
    assert table["outcome"].tolist() == ["reply", "reply", "http_error", "stream_cut", "reply", "reply"]
    assert table["provider"].fillna("-").tolist() == ["P", "P", "-", "Q", "Q", "P"]
    assert table["generation_id"].fillna("-").tolist() == ["gen-a", "gen-b", "-", "gen-1", "gen-e", "gen-f"]
    assert table["finish_reason"].fillna("-").tolist() == ["stop", "tool_calls", "-", "-", "length", "stop"]


def test_lengths_are_of_the_text_and_counts_as_billed(table: pd.DataFrame) -> None:
    assert table["reasoning_characters"].fillna(-1).tolist() == [3, 0, -1, 0, 0, 0]
    assert table["content_characters"].fillna(-1).tolist() == [2, 0, -1, 3, 4, 4]
    assert table["tool_calls"].fillna(-1).tolist() == [0, 1, -1, 0, 0, 0]
    assert table["prompt_tokens"].fillna(-1).tolist() == [7, 7, -1, -1, -1, 7]
    assert table["completion_tokens"].fillna(-1).tolist() == [11, 21, -1, -1, -1, 100]
    assert table["cost"].fillna(-1).tolist() == [0.25, 0.5, -1, -1, -1, 0.125]


def test_a_host_s_row_counts_replies_failures_and_dollars(table: pd.DataFrame) -> None:
    hosts = by_provider(table)
    assert hosts.index.fillna("-").tolist() == ["P", "-", "Q"]
    assert hosts["replies"].tolist() == [3, 0, 1]
    assert hosts["failed"].tolist() == [0, 1, 1]
    assert hosts["finish reasons"].tolist() == ["stop 2, tool_calls 1", "", "length 1"]
    assert hosts["with tool calls"].tolist() == [1, 0, 0]
    assert hosts["median completion tokens"].fillna(-1).tolist() == [21, -1, -1]
    assert hosts["dollars"].tolist() == [0.875, 0, 0]


def test_attempts_before_a_good_one_are_not_rows(tmp_path: Path) -> None:
    busy = exchange("a", json_body({"error": {"code": 503, "message": "busy"}}), 503, "http_error")
    path = written(tmp_path / "journal.sqlite", busy, busy, exchange("a", completion({"content": "now"})))
    assert reply_table(path)["outcome"].tolist() == ["reply"]


def test_an_empty_journal_gives_empty_tables(tmp_path: Path) -> None:
    table = reply_table(written(tmp_path / "journal.sqlite"))
    assert table.dtypes.astype(str).to_dict() == COLUMNS
    assert len(table) == len(by_provider(table)) == 0
    assert outcome_counts(table) == {}
    attempts = attempt_table(tmp_path / "journal.sqlite")
    assert attempts.dtypes.astype(str).to_dict() == ATTEMPT_COLUMNS
    assert [len(made(attempts)) for made in (by_cost, by_speed, by_failure)] == [0, 0, 0]


def timed(
    key: str, slug: str, seconds: float, failure: str | None, tokens: int | None = None, cost: float | None = None
) -> Exchange:
    """An attempt whose first byte came after a quarter of its time; one that timed out had none."""
    chunks = () if failure == "transport_error" else ((1, int(seconds * 250_000)), (2, int(seconds * 1e6)))
    status = {None: 200, "http_error": 503}.get(failure)
    transfer = Transfer(b"{}", status, {}, b"", chunks, "2026-11-29T12:00:00+00:00", seconds, None)
    return Exchange(key, "d", "p", slug, "m", 0, failure, transfer, 7, tokens, cost)


@pytest.fixture
def attempts(tmp_path: Path) -> pd.DataFrame:
    """Two endpoints: one slow to start that is asked again, one that fails for good."""
    return attempt_table(
        written(
            tmp_path / "journal.sqlite",
            timed("a", "x/int4", 1.0, "http_error"),
            timed("a", "x/int4", 2.0, None, 100, 0.5),
            timed("b", "x/int4", 4.0, None, 400, 1.5),
            timed("c", "y", 8.0, "transport_error"),
            timed("c", "y", 8.0, "stream_cut", 50, 0.25),
        )
    )


def test_every_attempt_has_a_row_with_its_times(attempts: pd.DataFrame) -> None:
    assert attempts["outcome"].tolist() == ["http_error", "reply", "reply", "transport_error", "stream_cut"]
    assert attempts["first_byte_seconds"].fillna(-1).tolist() == [0.25, 0.5, 1.0, -1, 2.0]
    assert attempts["status"].fillna(-1).tolist() == [503, 200, 200, -1, -1]


def test_dollars_without_a_reply_are_told_apart(attempts: pd.DataFrame) -> None:
    costs = by_cost(attempts)
    assert costs["dollars"].to_dict() == {"x/int4": 2.0, "y": 0.25}
    assert costs["of them without a reply"].to_dict() == {"x/int4": 0.0, "y": 0.25}
    # 2 dollars for 500 tokens; of the other endpoint no token is of a reply
    assert costs["dollars per million of them"].fillna(-1).to_dict() == {"x/int4": 4000.0, "y": -1}


def test_speed_is_of_replies_alone(attempts: pd.DataFrame) -> None:
    (row,) = by_speed(attempts).itertuples()
    # 100 tokens in 2 s and 400 in 4 s; nine tenths of the way from 2 s to 4 s
    assert tuple(row) == ("x/int4", 2, 0.75, 3.0, 3.8, 75.0)


def test_failures_that_a_later_attempt_made_good_are_told_apart(attempts: pd.DataFrame) -> None:
    failures = by_failure(attempts)
    assert failures["attempts"].to_dict() == {"http_error": 1, "stream_cut": 1, "transport_error": 1}
    assert failures["got a reply after all"].to_dict() == {"http_error": 1, "stream_cut": 0, "transport_error": 0}
    assert failures["status"].to_dict() == {"http_error": "503 1", "stream_cut": "", "transport_error": ""}
    assert failures["dollars"].to_dict() == {"http_error": 0.0, "stream_cut": 0.25, "transport_error": 0.0}


def test_requests_are_counted_by_how_they_ended(table: pd.DataFrame) -> None:
    (counts,) = outcome_counts(table).values()
    assert counts == {"stop": 2, "tool_calls": 1, "length": 1, "failed: http_error": 1, "failed: stream_cut": 1}
