"""Rows that share text with a benchmark's prompts: runs of words in common, as GPT-3's and Llama's reports look for.

Words are letters or digits without case; a Han, kana or Hangul character is a word of its own. A benchmark prompt with
fewer words than a run is looked for whole; one with fewer than `FEWEST_WORDS` cannot be told from chance and is not
looked for, which is counted.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from kimi_helpers.token_lists import flat_rows
from kimi_helpers.training import vocabulary_of

FEWEST_WORDS = 6
_OWN_WORD = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_OWN_WORD}]|[^\W\d_{_OWN_WORD}]+|\d+")


class BenchmarkError(ValueError):
    """A file of benchmark prompts that cannot be read; the message names the line and what is wrong."""


@dataclass(frozen=True)
class Benchmarks:
    """What no row may hold.

    Attributes:
        runs: the first word of a run -> how long runs are that begin so, the longest first; and each run -> the
            prompt it is of.
        too_short: how many prompts have too few words to be looked for.
    """

    runs: Mapping[str, str]
    lengths: tuple[int, ...]
    too_short: int
    prompts: int = field(default=0)


def words(text: str) -> list[str]:
    """The words of a text, without case."""
    return _WORD.findall(text.casefold())


@cache
def read_benchmarks(paths: tuple[str, ...], run: int) -> Benchmarks:
    """The runs of words of all prompts of some files.

    Args:
        paths: JSON lines (`messages`, or a text in `prompt`, `question`, `problem` or `text`), or plain text, a prompt
            a line. Of messages the user's are looked for.
        run: how many words make a run.

    Raises:
        BenchmarkError: a line holds no prompt, or a file none.
        OSError: a file cannot be read.
    """
    runs: dict[str, str] = {}
    lengths: set[int] = set()
    too_short = prompts = 0
    for path in paths:
        name, before = Path(path).name, prompts
        for number, text in _prompts(Path(path)):
            prompts += 1
            said = words(text)
            if len(said) < FEWEST_WORDS:
                too_short += 1
                continue
            size = min(run, len(said))
            lengths.add(size)
            for start in range(len(said) - size + 1):
                runs.setdefault(" ".join(said[start : start + size]), f"{name}:{number}")
        if prompts == before:
            raise BenchmarkError(f"{path} holds no prompts: write one a line, as text or as a JSON object.")
    return Benchmarks(runs, tuple(sorted(lengths)), too_short, prompts)


def _prompts(path: Path) -> Iterator[tuple[int, str]]:
    is_json = path.suffix in (".jsonl", ".json")
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if line.strip():
            try:
                text = _text(json.loads(line)) if is_json else line.decode()
            except ValueError as error:
                raise BenchmarkError(f"{path}, line {number}: {error}: write a prompt a line.") from None
            yield number, text


def _text(row: Any) -> str:
    fields = row if isinstance(row, dict) else {}
    messages = fields.get("messages")
    if isinstance(messages, list):
        said = [each.get("content") for each in messages if isinstance(each, dict) and each.get("role") == "user"]
        return "\n".join(text for text in said if isinstance(text, str))
    for name in ("prompt", "question", "problem", "text"):
        if isinstance(fields.get(name), str):
            return str(fields[name])
    raise ValueError("it has neither messages nor a text named prompt, question, problem or text")


def find_hits(
    rows: pa.Table, benchmarks: Benchmarks, tokenizer: str | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows that share a run of words with a benchmark: their place, and what was found.

    Args:
        rows: of `SET_SCHEMA`; prompt and completion are looked at, as their ids spell them.
    """
    ids, offsets = flat_rows(rows["input_ids"])
    formats = rows["format"].to_pylist()
    for place, (start, end) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        vocabulary = vocabulary_of(tokenizer, formats[place])
        text = vocabulary.decode(ids[start:end].tolist())
        if found := find_run(words(text), benchmarks):
            row = {name: rows[name][place].as_py() for name in ("row_id", "dataset", "prompt_id", "source")}
            yield place, row | {"benchmark": found[0], "words": found[1]}


def find_run(said: Sequence[str], benchmarks: Benchmarks) -> tuple[str, str] | None:
    """The first run that a text shares with a benchmark: the prompt's file and line, and the words; None: none."""
    for size in benchmarks.lengths:
        for start in range(len(said) - size + 1):
            run = " ".join(said[start : start + size])
            if run in benchmarks.runs:
                return benchmarks.runs[run], run
    return None
