"""Which names and texts count as secrets."""

import html
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kimi_helpers import leaks, workspace
from kimi_helpers.leaks import find_leak, find_leak_in_file, is_secret_name


@pytest.mark.parametrize(
    "name", ["key", "api_key", "OPENROUTER_API_KEY", "hfToken", "APIKey", "password", "my_secret_2"]
)
def test_a_name_with_a_secret_word_is_secret(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["max_tokens", "tokenizer", "keyboard", "monkeys", "sort_keys", "model", "n"])
def test_a_name_that_only_contains_the_letters_is_not(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer sk-or-v1-0123456789abcdef",
        '{"key":"sk-proj-Ab3dEf6hIj9kLm2n"}',
        "hf_ABCDEFGHIJKLMNOPQRSTUVWX",
        "\x1b[32mhf_ABCDEFGH\x1b[39mIJKLMNOPQRSTUVWX",
    ],
)
def test_the_shape_of_a_key_is_found(text: str) -> None:
    assert find_leak(text) == "a text shaped like an API key"


@pytest.mark.parametrize(
    "text",
    ["a task-oriented-dialogue-set-2024", "sk-or-v1-...", "from hf_hub import x", "sk-learn", "hf_dataset_of_mine"],
)
def test_words_that_resemble_a_key_are_not(text: str) -> None:
    assert find_leak(text) is None


@pytest.mark.parametrize("variable", ["SOME_API_KEY", "SOME_TOKEN", "SOME_SECRET"])
def test_the_value_of_a_secret_variable_is_found_and_not_told(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, 'quite "plain"')
    assert find_leak('it is quite "plain" here') == f"the value of {variable}"
    assert find_leak("it is quite plain here") is None


def test_a_value_too_short_to_be_a_secret_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "seven77")
    assert find_leak("seven77") is None


@pytest.fixture
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A key that stands in `.env` alone."""
    monkeypatch.setattr(workspace, "ROOT", tmp_path)
    (tmp_path / ".env").write_text("SOME_API_KEY='<correct> \"horse\"'\n")
    return '<correct> "horse"'


def write_parquet(path: Path, text: str) -> None:
    pq.write_table(pa.table({"messages": [[{"role": "user", "content": text}]], "n": [1]}), path, compression="zstd")


def write_sqlite(path: Path, text: str) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE exchanges (n INTEGER, body BLOB)")
        packed = pa.compress(text.encode() * 2, codec="zstd", asbytes=True)
        database.execute("INSERT INTO exchanges VALUES (1, ?)", (packed,))


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("rows.parquet", write_parquet),
        ("journal.sqlite", write_sqlite),
        ("rows.jsonl", lambda path, text: path.write_text(json.dumps({"a": text}))),
        ("page.html", lambda path, text: path.write_text(html.escape(text))),
        ("run.log", lambda path, text: path.write_text(f"GET https://host.invalid/?key={quote(text)}")),
        ("no.parquet", lambda path, text: path.write_text(text)),
        ("large.bin", lambda path, text: path.write_bytes(b"\xff" * (leaks.BLOCK - 5) + text.encode() + b"\xff" * 99)),
    ],
)
def test_a_secret_is_found_in_every_kind_of_file(
    tmp_path: Path, secret: str, name: str, write: Callable[[Path, str], Any]
) -> None:
    write(tmp_path / name, "nothing to see")
    assert find_leak_in_file(tmp_path / name) is None
    (tmp_path / name).unlink()
    write(tmp_path / name, secret)
    assert find_leak_in_file(tmp_path / name) == "the value of SOME_API_KEY"


def test_the_words_of_a_model_are_not_taken_for_a_key(tmp_path: Path) -> None:
    for name, leak in (("rows.jsonl", None), ("figures.json", "a text shaped like an API key")):
        (tmp_path / name).write_text('{"content": "set it to sk-proj-Ab3dEf6hIj9kLm2n"}')
        assert find_leak_in_file(tmp_path / name) == leak
