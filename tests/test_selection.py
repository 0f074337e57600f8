"""Selection: each row that is left out has the first reason that applies."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kimi_helpers.decontamination import BenchmarkError, Benchmarks, find_hits, find_run, read_benchmarks, words
from kimi_helpers.near_duplicates import near_duplicates, signatures
from kimi_helpers.selection import Policy, PolicyError, read_policy, reasons
from kimi_helpers.workspace import DATA
from tests.training_samples import row, rows_table


def why(policy: Policy, **values: Any) -> str:
    return str(reasons(rows_table([row("q", "a", **values)]), policy)[0])


@pytest.mark.parametrize(
    ("values", "policy", "reason"),
    [
        ({}, {}, ""),
        ({"grade": "exact_ambiguous"}, {}, "grade exact_ambiguous"),
        ({"prompt_grade": "unknown"}, {}, "prompt grade unknown"),
        ({"grade": "unverified", "prompt_grade": "unknown"}, {}, "grade unverified"),
        ({"finish_reason": "length"}, {}, "finish reason length"),
        ({"finish_reason": "length"}, {"finish_reasons": ("length",)}, ""),
        ({}, {"providers": ("Q",)}, "provider not asked for"),
        ({}, {"without_providers": ("P",)}, "provider not wanted"),
        ({}, {"most_completion": 2}, "completion too long"),
        ({}, {"least_completion": 99}, "completion too short"),
        ({}, {"most_tokens": 5}, "prompt and completion too long"),
        ({}, {"profiles": str(DATA / "profiles" / "loopback.toml")}, "provider without a profile"),
        ({"grade": "engine_ids"}, {"profiles": str(DATA / "profiles" / "loopback.toml")}, ""),
        ({"provider": "Loopback Faithful"}, {"profiles": str(DATA / "profiles" / "loopback.toml")}, ""),
    ],
)
def test_a_row_is_left_out_for_its_first_reason(values: dict[str, Any], policy: dict[str, Any], reason: str) -> None:
    assert why(Policy(**policy), **values) == reason


def test_languages_are_told_from_the_completion() -> None:
    texts = [
        "The cache forgets what was not read for the longest time.",
        "缓存会忘记最久没有读取的内容，这样可以节省内存。",
    ]
    table = rows_table([row("q", text, reasoning=text) for text in texts])
    assert reasons(table, Policy(languages=("en",))).tolist() == ["", "language zh"]


def test_the_policy_of_the_repository_is_the_default() -> None:
    assert read_policy(DATA / "policies" / "exact.toml") == Policy()


def test_a_policy_names_files_from_its_own_folder(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text('benchmarks = ["b.txt"]\n')
    with pytest.raises(PolicyError, match="which is not there"):
        read_policy(tmp_path / "p.toml")
    (tmp_path / "b.txt").write_text("a prompt\n")
    assert read_policy(tmp_path / "p.toml").benchmarks == (str(tmp_path / "b.txt"),)


PROMPT = "A farmer has hens and rabbits with thirty five heads and ninety four feet in all"


def test_text_shared_with_a_benchmark_is_found_and_listed(tmp_path: Path) -> None:
    file = tmp_path / "bench.jsonl"
    file.write_text(f'{{"question": "{PROMPT}"}}\n{{"messages": [{{"role": "user", "content": "Too short."}}]}}\n')
    known = read_benchmarks((str(file),), 8)
    assert (known.prompts, known.too_short) == (2, 1)
    table = rows_table(
        [row("Something else entirely, with enough words to matter here", "a"), row(f"So: {PROMPT.upper()}!", "b")]
    )
    ((place, hit),) = find_hits(table, known)
    assert (place, hit["benchmark"]) == (1, "bench.jsonl:1")
    assert hit["words"] == "a farmer has hens and rabbits with thirty"
    seven = " ".join(PROMPT.split()[:7])
    assert find_run(words(seven), known) is None


def test_words_of_scripts_without_blanks_are_characters() -> None:
    assert words("Den 缓存 2b, naïve") == ["den", "缓", "存", "2", "b", "naïve"]


def test_a_benchmark_without_prompts_is_told(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_text('{"answer": 1}\n')
    with pytest.raises(BenchmarkError, match="line 1"):
        read_benchmarks((str(tmp_path / "b.jsonl"),), 8)
    assert isinstance(Benchmarks({}, (), 0).runs, dict)


def test_near_duplicates_are_those_of_a_comparison_of_all_pairs() -> None:
    drawn = np.random.default_rng(0)
    base = drawn.integers(0, 150_000, (6, 200))
    near, far = base.copy(), base.copy()
    near[:, 100] += 1  # one token: 5 of 196 runs differ
    far[:, ::4] += 1  # every run differs
    rows = [
        {"prompt": row("q", "a")["prompt"], "completion": tuple(ids.tolist())} for ids in np.vstack([base, near, far])
    ]
    made = np.frombuffer(b"".join(signatures(rows_table(rows)).to_pylist()), "<u4").reshape(18, -1)
    ranks = np.array([f"{place:02d}" for place in range(18)], "S2")
    assert np.flatnonzero(near_duplicates(made, ranks, 0.8)).tolist() == [6, 7, 8, 9, 10, 11]


def test_short_completions_are_never_near_duplicates() -> None:
    table = rows_table([row("q", "a", name="1"), row("r", "a", name="2")])
    made = np.frombuffer(b"".join(signatures(table).to_pylist()), "<u4").reshape(2, -1)
    assert not near_duplicates(made, np.array([b"1", b"2"]), 0.5).any()
