"""Tests of what generation makes of an attempt."""

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from kimi_helpers.attempt_verdicts import judge
from kimi_helpers.openrouter import Transfer
from tests.loopback import events


def transfer(status: int | None, body: bytes, *, cut: str | None = None, **headers: str) -> Transfer:
    names = {name.replace("_", "-"): text for name, text in headers.items()}
    return Transfer(b"{}", status, names, body, (), "2026-11-29T12:00:00+00:00", 0.1, cut)


def error_body(code: int | str | None, **metadata: Any) -> bytes:
    return json.dumps({"error": {"code": code, "message": "no", "metadata": metadata}}).encode()


def test_a_whole_reply_is_kept() -> None:
    verdict = judge(transfer(200, b"".join(events("Hello"))))
    assert verdict.failure is None
    assert not verdict.retriable
    assert verdict.usage
    assert (verdict.usage.prompt_tokens, verdict.usage.completion_tokens, verdict.usage.cost) == (10, 5, 0.25)


def test_a_reply_whose_connection_broke_is_asked_for_again() -> None:
    verdict = judge(transfer(200, b"".join(events("Hello")), cut="ReadError"))
    assert verdict.failure == "transport_error"
    assert verdict.retriable


@pytest.mark.parametrize(
    ("status", "body", "kind", "retriable"),
    [
        (429, error_body(429), "http_error", True),
        (429, b"<html>", "http_error", True),
        (408, error_body(408), "http_error", True),
        (500, error_body(500), "http_error", True),
        (502, b"", "http_error", True),
        (503, error_body(400), "http_error", True),
        (529, error_body(529), "http_error", True),
        (400, error_body(400), "http_error", False),
        (404, error_body(404), "http_error", False),
        (413, error_body(502), "http_error", False),
        (200, error_body(502), "error_in_200", True),
        (200, error_body("429"), "error_in_200", True),
        (200, error_body("rate_limit"), "error_in_200", False),
        (200, error_body(400), "error_in_200", False),
        (200, error_body(None), "error_in_200", True),
        (200, b"".join(events("Hello", end=False)), "stream_cut", True),
        (200, b'data: {"error":{"code":502,"message":"no"}}\n\n', "stream_error", True),
        (200, b'{"choices":[{"message":{"content":"Hi"},"finish_reason":null}]}', "finish_missing", False),
        (200, b'{"choices":[{"message":{"content":""},"finish_reason":"stop"}]}', "empty", False),
    ],
)
def test_failures(status: int, body: bytes, kind: str, retriable: bool) -> None:
    verdict = judge(transfer(status, body))
    assert (verdict.failure, verdict.retriable, verdict.stop) == (kind, retriable, None)


def test_the_usage_of_a_failure_counts() -> None:
    body = b'{"choices":[{"message":{"content":""},"finish_reason":"stop"}],"usage":{"completion_tokens":500}}'
    usage = judge(transfer(200, body)).usage
    assert usage
    assert usage.completion_tokens == 500


@pytest.mark.parametrize(
    ("status", "advice"),
    [(401, "check OPENROUTER_API_KEY"), (402, "the credits are used up"), (403, "check what the key")],
)
def test_what_will_not_get_better_stops_the_run(status: int, advice: str) -> None:
    verdict = judge(transfer(status, error_body(status)))
    assert verdict.stop
    assert advice in verdict.stop
    assert f"HTTP {status}: no" in verdict.stop
    assert not verdict.retriable
    assert judge(transfer(status, b"<html>")).stop


@pytest.mark.parametrize(
    "metadata",
    [{"reasons": ["violence"], "flagged_input": "…"}, {"provider_name": "Azure"}, {"patterns": ["phone"]}],
)
def test_a_403_about_one_prompt_does_not_stop_the_run(metadata: dict[str, Any]) -> None:
    verdict = judge(transfer(403, error_body(403, **metadata)))
    assert (verdict.failure, verdict.retriable, verdict.stop) == ("http_error", False, None)
    assert judge(transfer(403, error_body(403, provider_name=None))).stop
    assert judge(transfer(402, error_body(402, **metadata))).stop


def test_retry_after() -> None:
    def asked(header: str) -> float:
        return judge(transfer(429, error_body(429), retry_after=header)).retry_after

    assert asked("7") == 7
    assert 50 < asked(format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)) <= 60
    assert asked(format_datetime(datetime.now(UTC) - timedelta(seconds=60), usegmt=True)) == 0
    # A date whose zone is "-0000" has none for Python.
    assert asked("Sun, 29 Nov 2026 12:00:00 -0000") == 0
    assert [asked(header) for header in ("", "soon", "-1", "1.5", "²", "nan")] == [0] * 6
    assert judge(transfer(429, b"")).retry_after == 0


def test_recorded_errors(shared_dir: Path) -> None:
    rows = [json.loads(line) for line in (shared_dir / "recorded" / "INDEX.jsonl").read_bytes().split(b"\n") if line]
    errors = {row["file"]: row["status"] for row in rows if row["file"].startswith("or_err_")}
    bodies = {name: (shared_dir / "recorded" / name).read_bytes() for name in errors}
    verdicts = {name: judge(transfer(errors[name], bodies[name])) for name in errors}
    assert len(verdicts) == 8
    assert all(verdict.failure for verdict in verdicts.values())
    assert {name for name, verdict in verdicts.items() if verdict.stop} == {"or_err_401.json"}
    assert {name for name, verdict in verdicts.items() if verdict.retriable} == {
        "or_err_200_choice_error_partial.json",
        "or_err_200_json_error_connection.json",
        "or_err_200_sse_error_no_choices.sse",
        "or_err_429_upstream_kimi-dev.json",
    }
