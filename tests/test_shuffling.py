"""The order of a set: uniform, seeded, the same on any machine; duplicates meet; shares are kept."""

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_helpers.shuffling import (
    bucket_of,
    choice_keys,
    collect,
    deal_out,
    highest_taken,
    in_evaluation,
    keys,
    limits,
    shuffled,
    with_keys,
)
from kimi_helpers.training import SET_SCHEMA
from tests.training_samples import row, rows_table

NUMBERS = np.arange(40_000, dtype=np.uint64)


def test_keys_are_the_same_on_every_machine() -> None:
    """Worked out with Python's own integers from the published splitmix64."""

    def mixed(number: int) -> int:
        number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        number = (number ^ number >> 27) * 0x94D049BB133111EB % 2**64
        return number ^ number >> 31

    salt = bytes.fromhex("74812d41285fc91093fc0e3568de1582")  # printf 'order 7' | b2sum -l 128
    first, second = int.from_bytes(salt[:8], "little"), int.from_bytes(salt[8:], "little")
    expected = [mixed((mixed(number ^ first) + second) % 2**64) for number in (0, 1, 2**64 - 1)]
    assert keys(np.array([0, 1, 2**64 - 1], np.uint64), "order", 7).tolist() == expected


def test_keys_are_a_bijection_and_differ_by_purpose_and_seed() -> None:
    drawn = [keys(NUMBERS, purpose, seed) for purpose, seed in (("order", 0), ("order", 1), ("choice", 0))]
    assert all(len(np.unique(each)) == len(NUMBERS) for each in drawn)
    ranks = [np.argsort(np.argsort(each)) for each in drawn]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert abs(np.corrcoef(ranks[one], ranks[other])[0, 1]) < 0.02  # 4 standard errors


def test_the_order_is_uniform() -> None:
    """Each number is as often in each tenth of the order: chi-squared over 200 seeds."""
    places = np.zeros((20, 10))
    for seed in range(200):
        order = np.argsort(keys(NUMBERS[:20], "order", seed))
        for place, number in enumerate(order):
            places[number, place // 2] += 1
    chi = ((places - 20) ** 2 / 20).sum()
    assert chi < 240  # 171 degrees of freedom: 99.9 % lie below 234


def test_buckets_follow_the_order_of_keys_and_are_even() -> None:
    drawn = np.sort(keys(NUMBERS, "order", 3))
    buckets = bucket_of(drawn, 7)
    assert (np.diff(buckets) >= 0).all()
    assert np.abs(np.bincount(buckets) / len(drawn) - 1 / 7).max() < 0.01
    assert bucket_of(np.array([0, 2**64 - 1], np.uint64), 1024).tolist() == [0, 1023]


def test_an_evaluation_holds_whole_conversations_at_the_share_asked_for() -> None:
    names = [f"{number:016x}" for number in NUMBERS.tolist()]
    apart = in_evaluation(names, 0.1, 5)
    assert abs(apart.mean() - 0.1) < 0.006  # 4 standard errors
    assert in_evaluation(names[:100] * 2, 0.1, 5).tolist() == [*apart[:100].tolist(), *apart[:100].tolist()]
    assert not in_evaluation(names[:100], 0.0, 5).any()
    assert in_evaluation(names, 0.1, 6).tolist() != apart.tolist()


def test_rows_come_back_from_their_buckets_in_one_order(tmp_path: Path) -> None:
    table = with_keys(rows_table([row("q", f"a{number}") for number in range(50)]).select(SET_SCHEMA.names), 9)
    for number, part in enumerate((table.slice(0, 20), table.slice(20, 0), table.slice(20))):
        deal_out(part, 4, tmp_path / f"{number}.arrow")
    paths = sorted(tmp_path.glob("*.arrow"))
    assert len(paths) == len(list(tmp_path.iterdir())) == 3
    found = []
    for bucket in range(4):
        rows = collect(paths, bucket)
        order, same = shuffled(rows)
        found += rows.take(order)["row_id"].to_pylist()
        assert not same.any()
        some = collect(paths, bucket, ["row_id", "key"])
        assert some["row_id"].to_pylist() == rows["row_id"].to_pylist()
    by_key = sorted(zip(table["key"].to_pylist(), table["row_id"].to_pylist(), strict=True))
    assert found == [name for _, name in by_key]


def test_of_equal_rows_the_best_grade_comes_first() -> None:
    grades = ["unverified", "engine_ids", "exact_unique", "exact_unique"]
    rows = [row("q", "same", name=name, grade=grade) for name, grade in zip("abcd", grades, strict=True)]
    table = with_keys(rows_table([*rows, row("q", "other")]).select(SET_SCHEMA.names), 1)
    order, same = shuffled(table)
    stay = table.take(order[~same])
    assert Counter(stay["grade"].to_pylist()) == {"engine_ids": 1, "exact_unique": 1}
    assert same.sum() == 3
    backwards = table.take(list(range(len(table)))[::-1])
    order, same = shuffled(backwards)
    assert backwards.take(order[~same])["row_id"].to_pylist() == stay["row_id"].to_pylist()


COUNTS = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 50), min_size=1)
SOME_CAPS = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 60))
SOME_WEIGHTS = st.dictionaries(st.sampled_from("abcd"), st.floats(0.1, 10))


@given(COUNTS, SOME_CAPS, SOME_WEIGHTS, st.integers(0, 120))
def test_limits_hold(counts: dict[str, int], caps: dict[str, int], weights: dict[str, float], size: int) -> None:
    given_rows = limits(counts, caps, weights, size)
    assert given_rows.keys() == counts.keys()
    for name, number in given_rows.items():
        assert 0 <= number <= min(counts[name], caps.get(name, counts[name]))
    without_size = limits(counts, caps, weights, 0)
    total = sum(without_size.values())
    assert sum(given_rows.values()) == (min(size, total) if size else total)
    weighed = [name for name in counts if name in weights and min(counts[name], caps.get(name, 99))]
    for one in weighed:
        for other in weighed:  # in proportion, to less than a row
            assert without_size[one] >= weights[one] * (without_size[other] / weights[other]) - 1 - 1e-6


def test_weights_are_rows_beside_each_other() -> None:
    assert limits({"a": 100, "b": 100, "c": 7}, {}, {"a": 3, "b": 1}, 0) == {"a": 100, "b": 33, "c": 7}
    assert limits({"a": 100, "b": 10}, {"a": 60}, {}, 35) == {"a": 30, "b": 5}
    assert limits({"a": 1, "b": 1, "c": 1}, {}, {}, 2) == {"a": 1, "b": 1, "c": 0}


@pytest.mark.parametrize("number", [0, 1, 3, 5, 9])
def test_as_many_keys_are_taken_as_asked_for(number: int) -> None:
    drawn = keys(NUMBERS[:5], "choice", 0)
    highest = highest_taken(drawn, number)
    assert sum(key <= highest for key in drawn.tolist()) == min(number, 5)


def test_a_choice_is_no_part_of_the_order() -> None:
    table = with_keys(rows_table([row("q", f"a{number}") for number in range(300)]).select(SET_SCHEMA.names), 2)
    ranks = [np.argsort(np.argsort(each)) for each in (table["key"].to_numpy(), choice_keys(table, 2))]
    assert abs(np.corrcoef(*ranks)[0, 1]) < 0.25
    assert isinstance(table["digest"].type, pa.FixedSizeBinaryType)
