"""Training sets: an independent oracle for their rows, the same bytes from any number of workers, and kills."""

import json
import multiprocessing
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.parquet as pq
import pytest

from kimi_helpers.bulk_reconstruction import local_workers
from kimi_helpers.merging import MANIFEST, MergeError, build_set, read_manifest, shard_paths
from kimi_helpers.selection import DatasetTerms, Policy
from kimi_helpers.shuffling import with_keys
from kimi_helpers.training import SET_SCHEMA
from kimi_helpers.training_inputs import Source, find_source
from tests.training_samples import row, rows_table, write_rows

ALL = Policy(evaluation=0.0)
CHUNK = 3_000  # bytes: some row groups of small rows
MERGES = 1_000
T = TypeVar("T")
R = TypeVar("R")


_pool = cache(ThreadPoolExecutor)


class Workers:
    """A `map` by some workers that take their tasks in any order."""

    def __init__(self, number: int, seed: int) -> None:
        self.pool, self.random = _pool(number), random.Random(seed)

    def __call__(self, function: Callable[[T], R], items: Iterable[T], /) -> Iterator[R]:
        tasks = list(enumerate(items))
        self.random.shuffle(tasks)
        done = {place: self.pool.submit(function, item) for place, item in tasks}
        return (done[place].result() for place in sorted(done))


def some_rows(drawn: random.Random, most: int = 9) -> list[dict[str, Any]]:
    """Rows of few conversations, some of them the same."""
    return [
        row(
            f"q{drawn.randrange(5)}",
            f"a{drawn.randrange(8)}",
            name=str(drawn.randrange(40)),
            grade=drawn.choice(["engine_ids", "exact_unique", "exact_ambiguous"]),
        )
        for _ in range(drawn.randrange(1, most))
    ]


def files(folder: Path, sets: dict[str, list[dict[str, Any]]]) -> list[Source]:
    """A file a dataset, its rows named after it."""
    return [
        find_source(f"{name}={write_rows(folder / f'{name}.parquet', [each | {'dataset': name} for each in rows])}")
        for name, rows in sets.items()
    ]


def rows_of(folder: Path, split: str) -> list[dict[str, Any]]:
    return [row for path in shard_paths(folder, split) for row in pq.read_table(path).to_pylist()]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def expected_rows(sets: dict[str, list[dict[str, Any]]], seed: int) -> list[str]:
    """By another way: all rows in one list, sorted by key, the best of equal ones kept."""
    made = [each | {"dataset": name} for name, rows in sets.items() for each in rows]
    made = [each for each in made if each["grade"] in ("engine_ids", "exact_unique")]
    if not made:
        return []
    table = with_keys(rows_table(made), seed).to_pylist()
    grades = ["engine_ids", "exact_unique"]
    table = [
        each | {"input": tuple(each["input_ids"])}
        for each in sorted(table, key=lambda each: (each["key"], grades.index(each["grade"]), each["row_id"]))
    ]
    first: dict[tuple[int, ...], str] = {}
    for each in table:
        first.setdefault(each["input"], each["row_id"])
    return list(first.values())


def test_a_thousand_random_merges_give_the_same_bytes_with_any_workers(tmp_path: Path) -> None:
    """Each beside its rows merged another way; every tenth with 1, 2 and 5 workers, the others with one of these."""
    drawn = random.Random(0)
    bank = {f"{number:02d}": some_rows(drawn) for number in range(40)}
    sources = dict(zip(bank, files(tmp_path, bank), strict=True))
    merges = 0
    while merges < MERGES:
        names = drawn.sample(sorted(bank), drawn.randrange(1, 4))
        seed = drawn.randrange(1 << 32)
        wanted = expected_rows({name: bank[name] for name in names}, seed)
        made = []
        for workers in (1, 2, 5) if drawn.random() < 0.1 else (drawn.choice([1, 2, 5]),):
            drawn.shuffle(names)
            merges += 1
            try:
                chosen = [sources[name] for name in names]
                build_set(chosen, ALL, tmp_path / "set", seed, each=Workers(workers, seed), chunk=CHUNK)
            except MergeError:
                assert wanted == []
                continue
            made.append(contents(tmp_path / "set"))
        assert all(each == made[0] for each in made)
        if wanted:
            assert [each["row_id"] for each in rows_of(tmp_path / "set", "train")] == wanted


def test_processes_write_what_one_does(tmp_path: Path) -> None:
    sources = files(tmp_path, {"A": [row(f"q{n % 9}", f"a{n}", name=str(n)) for n in range(40)]})
    build_set(sources, Policy(evaluation=0.3), tmp_path / "one", 3, chunk=CHUNK)
    with local_workers(2) as each:
        build_set(sources, Policy(evaluation=0.3), tmp_path / "two", 3, each=each, chunk=CHUNK)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert len(shard_paths(tmp_path / "one", "train")) > 2


def test_a_conversation_is_on_one_side_of_the_split(tmp_path: Path) -> None:
    sources = files(tmp_path, {"A": [row(f"q{n % 30}", f"a{n}", name=str(n)) for n in range(120)]})
    build_set(sources, Policy(evaluation=0.3), tmp_path / "set", 3, chunk=CHUNK)
    sides = [
        {each["conversation_id"] for each in rows_of(tmp_path / "set", split)} for split in ("train", "evaluation")
    ]
    assert sides[0] & sides[1] == set()
    assert len(sides[0] | sides[1]) == 30
    assert 3 <= len(sides[1]) <= 15  # 30 conversations of which 0.3 are kept apart


def test_every_row_is_counted_once(tmp_path: Path) -> None:
    rows = [row(f"q{n}", f"a{n}", name=str(n)) for n in range(20)]
    bad = [row("x", f"b{n}", grade="unresolved") for n in range(3)]
    sources = files(tmp_path, {"A": [*rows, *rows[:4], *bad], "B": rows[:2]})
    terms = {"A": DatasetTerms(cap=10)}
    manifest = build_set(sources, Policy(datasets=terms, evaluation=0.3), tmp_path / "set", chunk=CHUNK)
    kept = sum(group["rows"] for split in ("train", "evaluation") for group in manifest["groups"][split])
    rejected = sum(sum(of_dataset.values()) for of_dataset in manifest["rejected"].values())
    assert manifest["rows_read"] == 29 == kept + rejected
    assert manifest["rejected"]["A"]["grade unresolved"] == 3
    duplicates = sum(of_dataset.get("exact duplicate", 0) for of_dataset in manifest["rejected"].values())
    assert duplicates == 6
    assert (
        sum(
            group["rows"]
            for split in ("train", "evaluation")
            for group in manifest["groups"][split]
            if group["dataset"] == "A"
        )
        == 10
    )
    assert sum(file["rows"] for file in manifest["files"]) == kept
    assert manifest == read_manifest(tmp_path / "set")
    assert sum(sum(bins) for split in manifest["lengths"].values() for bins in split.values()) == kept


def test_caps_weights_and_size_take_rows_at_random_and_exactly(tmp_path: Path) -> None:
    sets = {name: [row(f"{name}{n}", f"a{n}", name=str(n)) for n in range(30)] for name in "AB"}
    sources = files(tmp_path, sets)

    def taken(size: int = 0, **terms: DatasetTerms) -> list[dict[str, Any]]:
        build_set(sources, Policy(datasets=terms, evaluation=0.0), tmp_path / "set", 1, size, chunk=CHUNK)
        return rows_of(tmp_path / "set", "train")

    everything = [each["row_id"] for each in taken()]
    capped = taken(A=DatasetTerms(cap=7))
    assert Counter(each["dataset"] for each in capped) == {"A": 7, "B": 30}
    assert [name for name in everything if name in {each["row_id"] for each in capped}] == [
        each["row_id"] for each in capped
    ]  # the others keep their order
    places = [place for place, each in enumerate(capped) if each["dataset"] == "A"]
    assert max(places) > 20  # not the first ones of the order
    weighed = taken(A=DatasetTerms(weight=1), B=DatasetTerms(weight=0.5))
    assert Counter(each["dataset"] for each in weighed) == {"A": 30, "B": 15}
    assert Counter(each["dataset"] for each in taken(20)) == {"A": 10, "B": 10}


def test_a_set_of_sets_is_a_set(tmp_path: Path) -> None:
    sources = files(tmp_path, {"A": [row(f"q{n}", f"a{n}", name=str(n)) for n in range(30)]})
    build_set(sources, ALL, tmp_path / "set", 1, chunk=CHUNK)
    again = [find_source(str(path)) for path in shard_paths(tmp_path / "set", "train")]
    build_set(again, ALL, tmp_path / "again", 1, chunk=CHUNK)
    assert rows_of(tmp_path / "again", "train") == rows_of(tmp_path / "set", "train")


def test_the_shards_have_the_columns_that_readers_rely_on(tmp_path: Path) -> None:
    sources = files(tmp_path, {"A": [row("q", "a")]})
    build_set(sources, ALL, tmp_path / "set")
    (path,) = shard_paths(tmp_path / "set", "train")
    assert pq.read_schema(path).equals(SET_SCHEMA)
    (only,) = pq.read_table(path).to_pylist()
    assert only["input_ids"] == [*row("q", "a")["prompt"], *row("q", "a")["completion"]]
    assert sum(only["loss_mask"]) == only["completion_length"] == len(row("q", "a")["completion"])


class Killed(BaseException):
    """A kill, as far as this process is concerned."""


class KilledAfter:
    """A `map` in this process that is killed before its n-th task."""

    def __init__(self, tasks: int) -> None:
        self.left = tasks

    def __call__(self, function: Callable[[T], R], items: Iterable[T], /) -> Iterator[R]:
        for item in items:
            self.left -= 1
            if self.left < 0:
                raise Killed
            yield function(item)


def test_a_run_that_is_killed_before_any_task_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    sources = files(tmp_path, {"A": [row(f"q{n % 9}", f"a{n}", name=str(n)) for n in range(40)]})
    policy = Policy(near_duplicates=0.9, evaluation=0.2, datasets={"A": DatasetTerms(cap=20)})
    build_set(sources, policy, tmp_path / "whole", 3, chunk=CHUNK)
    tasks = 0
    while True:
        out = tmp_path / f"killed {tasks}"
        try:
            build_set(sources, policy, out, 3, each=KilledAfter(tasks), chunk=CHUNK)
        except Killed:
            assert not out.exists()
        else:
            break
        build_set(sources, policy, out, 3, chunk=CHUNK)
        assert contents(out) == contents(tmp_path / "whole")
        tasks += 1
    assert tasks > 8
    assert not list(tmp_path.glob("*.unfinished"))


def test_finished_tasks_are_not_done_again(tmp_path: Path) -> None:
    sources = files(tmp_path, {"A": [row(f"q{n}", f"a{n}", name=str(n)) for n in range(40)]})
    with pytest.raises(Killed):
        build_set(sources, ALL, tmp_path / "set", 3, each=KilledAfter(5), chunk=CHUNK)
    work = tmp_path / "set.unfinished"
    before = {path.name: path.stat().st_mtime_ns for path in work.glob("dealt-*")}
    assert len(before) >= 4
    with pytest.raises(Killed):
        build_set(sources, ALL, tmp_path / "set", 3, each=KilledAfter(6), chunk=CHUNK)
    assert {name: (work / name).stat().st_mtime_ns for name in before} == before
    build_set(sources, ALL, tmp_path / "set", 4, chunk=CHUNK)  # another seed begins anew
    assert not work.exists()


def _build(sources: list[Source], out: Path) -> None:
    build_set(sources, Policy(evaluation=0.2), out, 3, chunk=CHUNK)


def test_a_process_that_is_killed_at_any_moment_leaves_no_set_or_a_whole_one(tmp_path: Path) -> None:
    sources = files(tmp_path, {"A": [row(f"q{n % 9}", f"a{n}", name=str(n)) for n in range(60)]})
    _build(sources, tmp_path / "whole")
    out = tmp_path / "set"
    fork = multiprocessing.get_context("fork")
    drawn = random.Random(0)
    for _ in range(12):
        process = fork.Process(target=_build, args=(sources, out))
        process.start()
        process.join(drawn.uniform(0.0, 0.25))
        if process.pid is not None and process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
        process.join()
        if out.exists():
            assert contents(out) == contents(tmp_path / "whole")
            break
    _build(sources, out)
    assert contents(out) == contents(tmp_path / "whole")


def test_a_set_is_replaced_and_another_folder_is_not(tmp_path: Path) -> None:
    sources = files(tmp_path, {"A": [row("q", "a"), row("r", "a")]})
    build_set(sources, ALL, tmp_path / "set", 1)
    build_set(sources, ALL, tmp_path / "set", 2)
    assert json.loads((tmp_path / "set" / MANIFEST).read_text())["seed"] == 2
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(MergeError, match="is no training set, so it is left alone"):
        build_set(sources, ALL, tmp_path / "mine", 1)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]


def test_no_rows_are_told_and_leave_nothing(tmp_path: Path) -> None:
    sources = files(tmp_path, {"A": [row("q", "a", grade="unresolved")]})
    with pytest.raises(MergeError, match=r"no row is left .* of 1 read \(grade unresolved 1\)"):
        build_set(sources, ALL, tmp_path / "set", 1)
    with pytest.raises(MergeError, match="nothing to make a set of"):
        build_set([], ALL, tmp_path / "set", 1)
    assert not list(tmp_path.glob("set*"))


def test_two_runs_into_one_folder_do_not_meet(tmp_path: Path) -> None:
    sources = files(tmp_path, {"A": [row("q", "a")]})

    def second(function: Callable[[T], R], items: Iterable[T], /) -> Iterator[R]:
        with pytest.raises(MergeError, match="another run works in"):
            build_set(sources, ALL, tmp_path / "set", 2)
        return map(function, items)

    build_set(sources, ALL, tmp_path / "set", 1, each=second)
    assert read_manifest(tmp_path / "set")["seed"] == 1
