"""The draft vocabulary: counted by hand, and by the rules that the trainers state."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_helpers.draft_vocabulary import coverage, draft_vocabulary, token_frequencies
from tests.training_samples import row, write_rows


@given(st.lists(st.integers(0, 3), min_size=2, max_size=9), st.data())
def test_offsets_and_flags_name_the_most_frequent_tokens(counts: list[int], data: st.DataObject) -> None:
    size = data.draw(st.integers(1, len(counts)))
    made = draft_vocabulary(np.array(counts), size)
    expected = sorted(sorted(range(len(counts)), key=lambda id: (-counts[id], id))[:size])
    assert [draft + int(offset) for draft, offset in enumerate(made.d2t)] == expected
    assert np.flatnonzero(made.t2d).tolist() == expected
    assert (made.d2t.dtype, made.t2d.dtype) == (np.int64, np.bool_)


def test_only_sampled_tokens_count(tmp_path: Path) -> None:
    rows = [row(f"q{n}", f"a{n}") for n in range(9)]
    found = token_frequencies([write_rows(tmp_path / "a.parquet", rows)], 163_840)
    expected = Counter(id for each in rows for id in each["completion"])
    assert {id: int(found[id]) for id in np.flatnonzero(found).tolist()} == dict(expected)


def test_coverage_is_of_the_most_frequent() -> None:
    assert coverage(np.array([1, 0, 3])).tolist() == [0.75, 1.0, 1.0]


@pytest.mark.parametrize("size", [0, 4])
def test_a_size_must_fit(size: int) -> None:
    with pytest.raises(ValueError, match="1 to 3 tokens"):
        draft_vocabulary(np.array([1, 2, 3]), size)
