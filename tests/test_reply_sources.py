"""Recorded bodies, folders and journals as sources of replies, each with its request."""

import sqlite3
from pathlib import Path

import pytest

from kimi_helpers.journal import Exchange, Journal, JournalError
from kimi_helpers.openrouter import Transfer
from kimi_helpers.replies import Failure, FailureKind, Reply
from kimi_helpers.reply_sources import SourcedReply, SourceError, find_sources, read_sources
from tests.reply_samples import chunk, completion, json_body, stream

GOOD = completion({"content": "first"})
STREAMED = stream(chunk({"content": "second"}), chunk({}, "stop"))
ERROR = json_body({"error": {"code": 502, "message": "no"}})


def content(sourced: SourcedReply) -> str | None:
    assert isinstance(sourced.outcome, Reply)
    return sourced.outcome.content


def attempt(
    key: str, body: bytes, failure: str | None = None, status: int | None = 200, transport_error: str | None = None
) -> Exchange:
    transfer = Transfer(
        request=b'{"model": "m", "seed": 3}',
        status=status,
        headers={},
        body=body,
        chunks=(),
        started="2026-11-29T12:00:00+00:00",
        seconds=0.5,
        transport_error=transport_error,
    )
    return Exchange(key, "d", "p", "chutes", "m", 0, failure, transfer)


def journal(path: Path, *attempts: Exchange) -> Path:
    with Journal.open(path, {"dataset": "d"}) as opened:
        assert all(opened.add(each) for each in attempts)
    return path


def test_a_body_is_read_with_the_request_beside_it(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(GOOD)
    (tmp_path / "a.request.json").write_bytes(b'{"reasoning": {"enabled": false}}')
    (tmp_path / "b.v2.sse").write_bytes(STREAMED)
    first, second = read_sources([tmp_path / "a.json", tmp_path / "b.v2.sse"])
    assert (first.source, first.request) == (str(tmp_path / "a.json"), {"reasoning": {"enabled": False}})
    assert (second.source, second.request) == (str(tmp_path / "b.v2.sse"), None)
    assert (content(first), content(second)) == ("first", "second")


@pytest.mark.parametrize("request_bytes", [b"", b"{", b"[1]", b"null", b"\xff\xfe", b'"text"'])
def test_a_request_that_is_no_object_counts_as_none(tmp_path: Path, request_bytes: bytes) -> None:
    (tmp_path / "a.json").write_bytes(GOOD)
    (tmp_path / "a.request.json").write_bytes(request_bytes)
    (sourced,) = read_sources([tmp_path / "a.json"])
    assert sourced.request is None
    assert content(sourced) == "first"


def test_a_folder_stands_for_the_bodies_in_it(tmp_path: Path) -> None:
    names = ("b.sse", "a.json", "a.request.json", "notes.md", "INDEX.jsonl", "c.request.json", "d.txt")
    for name in names:
        (tmp_path / name).write_bytes(GOOD)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "e.json").write_bytes(GOOD)
    assert find_sources([tmp_path]) == [tmp_path / "a.json", tmp_path / "b.sse"]
    assert find_sources([tmp_path / "b.sse", tmp_path / "a.json"]) == [tmp_path / "b.sse", tmp_path / "a.json"]


def test_a_folder_holds_journals_too(tmp_path: Path) -> None:
    path = journal(tmp_path / "run.sqlite", attempt("k", GOOD))
    (tmp_path / "z.json").write_bytes(STREAMED)
    assert find_sources([tmp_path]) == [path, tmp_path / "z.json"]
    assert sorted(str(content(each)) for each in read_sources(find_sources([tmp_path]))) == ["first", "second"]


@pytest.mark.parametrize("name", ["a.request.json", "notes.md", "rows.jsonl"])
def test_a_path_without_replies_is_told(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(GOOD)
    with pytest.raises(SourceError, match="no replies"):
        find_sources([tmp_path])
    with pytest.raises(SourceError, match="no replies"):
        find_sources([])


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"absent\.json"):
        find_sources([tmp_path / "absent.json"])


def test_any_bytes_in_a_body_are_an_outcome(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"\xff\x00<html>")
    (tmp_path / "b.sse").write_bytes(stream(chunk({"content": "x"}), done=False))
    first, second = read_sources(find_sources([tmp_path]))
    assert isinstance(first.outcome, Failure)
    assert first.outcome.kind is FailureKind.MALFORMED
    assert isinstance(second.outcome, Failure)
    assert second.outcome.kind is FailureKind.STREAM_CUT


def test_of_a_journal_each_reply_comes_once(tmp_path: Path) -> None:
    path = journal(
        tmp_path / "run.sqlite",
        attempt("key of the first reply", ERROR, "error_in_200"),
        attempt("lost", ERROR, "http_error", status=502),
        attempt("key of the first reply", GOOD),
        attempt("lost", b"", "stream_cut", status=None, transport_error="timed out"),
        attempt("streamed", STREAMED),
    )
    replies = {each.source: each for each in read_sources([path])}
    assert list(replies) == [f"{path}#key of the first", f"{path}#lost", f"{path}#streamed"]
    assert all(each.request == {"model": "m", "seed": 3} for each in replies.values())
    assert content(replies[f"{path}#key of the first"]) == "first"
    assert content(replies[f"{path}#streamed"]) == "second"
    # the last failure stands, which is the one without a body
    lost = replies[f"{path}#lost"].outcome
    assert isinstance(lost, Failure)
    assert lost.kind is FailureKind.MALFORMED
    assert lost.status is None


def test_a_reply_that_looks_whole_but_broke_off_is_a_failure(tmp_path: Path) -> None:
    path = journal(tmp_path / "run.sqlite", attempt("k", STREAMED, "stream_cut", transport_error="peer closed"))
    (sourced,) = read_sources([path])
    assert isinstance(sourced.outcome, Failure)
    assert sourced.outcome.kind is FailureKind.STREAM_CUT
    assert "peer closed" in sourced.outcome.message
    assert sourced.outcome.partial is not None
    assert sourced.outcome.partial.content == "second"
    assert sourced.outcome.generation_id == "gen-1"


def test_the_status_decides_over_the_body(tmp_path: Path) -> None:
    path = journal(tmp_path / "run.sqlite", attempt("k", GOOD, "http_error", status=500))
    (sourced,) = read_sources([path])
    assert isinstance(sourced.outcome, Failure)
    assert sourced.outcome.kind is FailureKind.HTTP_ERROR


def test_another_database_is_no_journal(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE exchanges (key TEXT)")
    connection.commit()
    connection.close()
    assert find_sources([path]) == [path]
    with pytest.raises(JournalError, match="no journal"):
        list(read_sources([path]))
