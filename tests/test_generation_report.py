"""What a journal brought back, as tables with values counted by hand."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from kimi_helpers.generation_report import COLUMNS, by_provider, reply_table
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
