"""Grades beside the truth of a loopback server, and that the score sees a fault."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kimi_helpers.generation import Settings, run_generation
from kimi_helpers.graded_rows import GradedRow, grade_replies
from kimi_helpers.profiles import read_profiles
from kimi_helpers.prompts import Prompt
from kimi_helpers.reading_search import packed
from kimi_helpers.reply_sources import read_sources
from kimi_helpers.simulator.scoring import HostScore, Truth, fetch_truth, read_truth, score, truth_url, write_truth
from kimi_helpers.simulator.server import running
from kimi_helpers.vocabulary import load_vocabulary
from kimi_helpers.workspace import DATA

FAITHFUL, STRIPPED = "Loopback Faithful", "Loopback Stripped"
TEXTS = ("Explain why bread goes stale.", "17 + 28 = ?", "用三句话介绍番茄炒蛋的做法。", "Say hello with an emoji.")

Truths = dict[str, Truth]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with running() as url:
        yield url


@pytest.fixture(scope="module")
def graded(server: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[GradedRow], Truths]:
    """The rows of two hosts, whole and cut replies, and the truth behind them."""
    folder = tmp_path_factory.mktemp("scoring")
    prompts = [
        Prompt(f"p{place}", ({"role": "user", "content": text},), None, True) for place, text in enumerate(TEXTS)
    ]
    profiles = read_profiles(DATA / "profiles/loopback.toml")
    rows: list[GradedRow] = []
    for limit in (4096, 20):
        settings = Settings("scoring", "moonshotai/kimi-k2.5", limit, 1.0, 0.95, 3)
        journal = folder / f"{limit}.sqlite"
        run_generation(prompts, ["faithful", "stripped"], settings, journal, base_url=server, samples=2)
        replies = read_sources([journal])
        rows += grade_replies(
            replies, lambda format: load_vocabulary(format=format.name), {FAITHFUL: profiles[FAITHFUL]}
        )
    ids = [row.generation_id for row in rows if row.generation_id]
    assert len(ids) == len(rows) == 32
    return rows, fetch_truth(server, ids)


def by_host(rows: list[GradedRow], truth: Truths) -> dict[str, HostScore]:
    return {host.provider: host for host in score(rows, truth)}


def test_no_row_is_called_exact_that_is_not(graded: tuple[list[GradedRow], Truths]) -> None:
    rows, truth = graded
    scores = by_host(rows, truth)
    assert set(scores) == {FAITHFUL, STRIPPED}
    assert all(host.replies == 16 and host.false_exact == 0 for host in scores.values())
    assert scores[FAITHFUL].exact >= 12
    assert scores[FAITHFUL].right >= scores[FAITHFUL].exact
    assert scores[STRIPPED].exact == 0
    for row in rows:
        assert row.generation_id is not None
        if row.grade.is_exact:
            assert row.token_ids == truth[row.generation_id].token_ids


def test_an_altered_row_is_counted_as_false_exact(graded: tuple[list[GradedRow], Truths]) -> None:
    rows, truth = graded
    before = by_host(rows, truth)
    place = next(place for place, row in enumerate(rows) if row.grade.is_exact)
    ids = list(rows[place].token_ids)
    for wrong in ([*ids[:-1], ids[-1] ^ 1], ids[:-1], [*ids, ids[-1]], []):
        altered = [*rows]
        altered[place] = replace(rows[place], data=packed(wrong))
        after = by_host(altered, truth)
        assert after[FAITHFUL] == replace(before[FAITHFUL], false_exact=1, right=before[FAITHFUL].right - 1)
        assert after[STRIPPED] == before[STRIPPED]
    other = dict(truth)
    generation_id = rows[place].generation_id
    assert generation_id is not None
    other[generation_id] = Truth((*ids[:-1], ids[-1] ^ 1), "canonical")
    assert by_host(rows, other)[FAITHFUL].false_exact == 1


def test_another_split_into_as_many_tokens_is_counted_apart(graded: tuple[list[GradedRow], Truths]) -> None:
    rows, truth = graded
    row = next(row for row in rows if row.grade.is_exact)
    assert row.generation_id is not None
    exact = by_host(rows, truth)[FAITHFUL].exact
    split = (row.token_ids[0] ^ 1, *row.token_ids[1:])
    same = by_host(rows, truth | {row.generation_id: Truth(split, "same_length")})[FAITHFUL]
    assert (same.exact, same.false_exact, same.same_length, same.other_length) == (exact, 0, 1, 0)
    longer = by_host(rows, truth | {row.generation_id: Truth((*split, 5), "longer")})[FAITHFUL]
    assert (longer.exact, longer.false_exact, longer.same_length, longer.other_length) == (exact, 1, 0, 1)


def test_a_row_without_truth_is_an_error_and_one_without_a_reply_is_not_scored(
    graded: tuple[list[GradedRow], Truths],
) -> None:
    rows, truth = graded
    with pytest.raises(KeyError):
        score(rows, {})
    lost = [replace(row, generation_id=None) for row in rows]
    assert score(lost, truth) == []
    assert sum(host.replies for host in score([*lost, *rows], truth)) == 32


def test_the_truth_comes_back_as_it_was_written(graded: tuple[list[GradedRow], Truths], tmp_path: Path) -> None:
    _, truth = graded
    path = tmp_path / "truth.jsonl"
    write_truth(path, truth)
    assert read_truth(path) == truth
    assert len(path.read_bytes().splitlines()) == len(truth)


def test_the_truth_lies_outside_the_api(server: str) -> None:
    assert truth_url("http://127.0.0.1:8000/api/v1") == "http://127.0.0.1:8000/truth/"
    with pytest.raises(LookupError, match="gen-unknown"):
        fetch_truth(server, ["gen-unknown"])
    assert fetch_truth(server, []) == {}
