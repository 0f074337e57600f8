"""Replies as rows: their values, their lines of JSON, and the counts of grades."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kimi_helpers.formats import FORMATS, ModelFormat
from kimi_helpers.graded_rows import GradedRow, count_grades, grade_replies, grades_by_provider, table_text, write_rows
from kimi_helpers.profiles import ProviderProfile
from kimi_helpers.reconstruction import Grade
from kimi_helpers.replies import parse_reply
from kimi_helpers.reply_sources import SourcedReply, SourceError, find_sources
from kimi_helpers.serving_stacks import ServingStack
from kimi_helpers.vocabulary import Vocabulary, load_vocabulary
from tests.reply_samples import completion, json_body

PROFILES = {"P": ProviderProfile("P", (ServingStack("built", "built so"),), None, "built so")}
USER = {"role": "user", "content": "Hi there"}
# "don't" is 88709, "hello world" 22931 2695, </think> 163607, <|im_end|> 163586
ANSWER = (88709, 163607, 22931, 2695, 163586)


def vocabulary_of(format: ModelFormat) -> Vocabulary:
    return load_vocabulary(format=format.name)


def sourced(body: bytes, source: str = "a.json", request: Mapping[str, Any] | None = None) -> SourcedReply:
    return SourcedReply(source, request, parse_reply(body))


def body(billed: int | None = 5, model: str = "moonshotai/kimi-k2.5-0127", provider: str = "P") -> bytes:
    usage = {} if billed is None else {"usage": {"prompt_tokens": 9, "completion_tokens": billed}}
    message = {"reasoning": "don't", "content": "hello world"}
    return completion(message, **{"model": model, "provider": provider, **usage})


def rows(*replies: SourcedReply, format: ModelFormat | None = None) -> list[GradedRow]:
    return list(grade_replies(replies, vocabulary_of, PROFILES, format))


def test_the_row_of_an_exact_reply() -> None:
    (row,) = rows(sourced(body(), "folder/a.json", {"model": "m", "messages": [USER]}))
    told = (row.source, row.provider, row.model, row.format, row.transport, row.generation_id, row.finish_reason)
    assert told == ("folder/a.json", "P", "moonshotai/kimi-k2.5-0127", "kimi-k2.5", "json", "gen-1", "stop")
    assert (row.grade, row.token_ids, row.loss_mask) == (Grade.exact_unique, ANSWER, (1, 1, 1, 1, 1))
    assert (row.completion_tokens, row.reconstructed_tokens, row.readings) == (5, 5, 1)
    assert (row.end_token, row.stack) == ("counted", "built")
    assert "5 billed tokens" in row.reason


def test_a_host_without_a_profile_is_not_exact() -> None:
    (row,) = list(grade_replies([sourced(body())], vocabulary_of, {}))
    assert (row.grade, row.token_ids, row.readings) == (Grade.exact_ambiguous, ANSWER, 1)


def test_the_request_says_whether_thinking_was_on() -> None:
    plain = completion({"content": "hello world"}, model="moonshotai/kimi-k2.5", usage={"completion_tokens": 3})
    off = {"model": "m", "messages": [USER], "reasoning": {"enabled": False}}
    on, without, unknown = rows(
        sourced(plain, request={"model": "m", "messages": [USER]}), sourced(plain, request=off), sourced(plain)
    )
    assert (on.grade, on.reconstructed_tokens) == (Grade.unresolved, 4)
    assert (without.grade, without.token_ids) == (Grade.exact_unique, (22931, 2695, 163586))
    assert unknown.token_ids == without.token_ids


def test_a_row_that_does_not_fit_has_no_ids() -> None:
    (row,) = rows(sourced(body(billed=50)))
    assert (row.grade, row.token_ids, row.loss_mask, row.readings) == (Grade.unresolved, (), (), 0)
    assert (row.completion_tokens, row.reconstructed_tokens, row.end_token) == (50, 5, None)
    assert "50 tokens were billed" in row.reason


@pytest.mark.parametrize("model", ["z-ai/glm-4.6", "moonshotai/kimi-k3", "m"])
def test_a_model_without_a_known_law_is_unresolved(model: str) -> None:
    (row,) = rows(sourced(body(model=model)))
    assert (row.grade, row.token_ids, row.format) == (Grade.unresolved, (), None)
    assert (row.model, row.completion_tokens) == (model, 5)
    assert model in row.reason


def test_a_named_format_goes_before_the_model() -> None:
    (row,) = rows(sourced(body(model="somebody/finetune")), format=FORMATS["kimi-k2.5"])
    assert (row.grade, row.token_ids, row.format) == (Grade.exact_unique, ANSWER, "kimi-k2.5")
    (other,) = rows(sourced(body(billed=6)), format=FORMATS["kimi-k2-thinking"])
    assert (other.format, other.token_ids) == ("kimi-k2-thinking", (163606, *ANSWER))


def test_a_failure_is_a_row() -> None:
    error = {"error": {"code": 429, "message": "slow down", "metadata": {"provider_name": "Q"}}}
    failed, empty = rows(
        sourced(json_body(error), "e.json"), sourced(completion({"content": ""}, model="moonshotai/kimi-k2"))
    )
    assert (failed.source, failed.provider, failed.model, failed.finish_reason) == ("e.json", "Q", None, None)
    assert (failed.grade, failed.token_ids, failed.loss_mask, failed.readings) == (Grade.failed, (), (), 0)
    assert "error_in_200" in failed.reason
    assert "slow down" in failed.reason
    assert (empty.grade, empty.format, empty.generation_id) == (Grade.failed, "kimi-k2", "gen-1")


def test_all_grades_are_counted_best_first() -> None:
    engine = {"index": 0, "message": {"content": "hello world"}, "finish_reason": "stop", "token_ids": [22931, 2695]}
    entries = [{"token": "t", "logprob": -1.0, "bytes": list(data)} for data in (b"hello", b" world", b"<|im_end|>")]
    listed = {**engine, "token_ids": None, "logprobs": {"content": entries}}
    named = {"id": "g", "model": "moonshotai/kimi-k2", "provider": "P"}
    made = rows(
        sourced(b"<html>"),
        sourced(body(billed=50)),
        sourced(body(billed=None)),
        sourced(body(provider="Q")),
        sourced(body()),
        sourced(body()),
        sourced(json_body({**named, "choices": [listed]})),
        sourced(json_body({**named, "choices": [engine]})),
    )
    counts = count_grades(made)
    assert list(counts.items()) == [
        ("engine_ids", 1),
        ("logprob_bytes", 1),
        ("exact_unique", 2),
        ("exact_ambiguous", 1),
        ("unverified", 1),
        ("unresolved", 1),
        ("failed", 1),
    ]
    assert made[-1].token_ids == made[-2].token_ids == (22931, 2695, 163586)
    assert set(count_grades([]).values()) == {0}
    by_provider = grades_by_provider(made)
    assert sum(sum(of_one.values()) for of_one in by_provider.values()) == len(made)
    assert by_provider["P"] == {**counts, "exact_ambiguous": 0, "failed": 0}
    assert by_provider["Q"] == {**dict.fromkeys(counts, 0), "exact_ambiguous": 1}


def test_lines_of_json(tmp_path: Path) -> None:
    path = tmp_path / "new" / "rows.jsonl"
    made = rows(sourced(body(), "a\u2028b\u0085c\n.json"), sourced(b"{", "中.json"))
    write_rows(path, made, PROFILES)
    data = path.read_bytes()
    assert data.isascii()
    lines = data.decode().splitlines()  # which also cuts at U+2028 and U+0085
    assert data.count(b"\n") == len(lines) == 2
    first, second = map(json.loads, lines)
    assert first["source"] == "a\u2028b\u0085c\n.json"
    assert (first["token_ids"], first["loss_mask"]) == (list(ANSWER), [1, 1, 1, 1, 1])
    assert (first["grade"], first["completion_tokens"], first["transport"]) == ("exact_unique", 5, "json")
    assert (first["provider"], first["model"]) == ("P", "moonshotai/kimi-k2.5-0127")
    assert first["reason"] == made[0].reason
    assert (second["source"], second["grade"], second["token_ids"]) == ("中.json", "failed", [])
    about = json.loads((path.parent / "rows.about.json").read_bytes())
    assert about["profiles"] == {"P": ["built"]}
    assert about["residual"].endswith("no host returned ids here, by which its rate could be measured.")
    with pytest.raises(SourceError, match="no replies"):
        find_sources([path.parent])


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.jsonl"
    write_rows(path, rows(sourced(body())), {})
    before = path.read_bytes()

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", full)
        with pytest.raises(OSError, match="No space"):
            write_rows(path, rows(sourced(body(billed=50))), {})
    assert path.read_bytes() == before
    assert sorted(tmp_path.iterdir()) == [path.with_suffix(".about.json"), path]
    write_rows(path, [], {})
    assert path.read_bytes() == b""


def test_the_table_prints_no_control_characters() -> None:
    named = body(provider="P\x1b[31m\u202e")
    text = table_text(rows(sourced(body(), "a.json"), sourced(named, "b.json")))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "a.json" in text
    assert "exact_unique" in text
    assert "a.json" not in table_text(rows(sourced(body(), "a.json"), sourced(body(), "b.json")), most=1)
