"""Spans that two tokenisations share."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_helpers.token_spans import Span, common_spans


def test_spans_by_hand() -> None:
    first = [(1, b"ab"), (2, b"c"), (3, b"d")]
    second = [(4, b"a"), (5, b"bc"), (3, b"d")]
    assert list(common_spans(first, second)) == [Span(0, 3, (1, 2), (4, 5)), Span(3, 4, (3,), (3,))]
    assert list(common_spans([], [])) == []


def test_other_bytes_are_refused() -> None:
    with pytest.raises(ValueError, match="from byte 1 on"):
        list(common_spans([(1, b"ab")], [(1, b"ac")]))
    with pytest.raises(ValueError, match="from byte 2 on"):
        list(common_spans([(1, b"ab")], [(1, b"abc")]))


def cut(data: bytes, cuts: set[int], base: int) -> list[tuple[int, bytes]]:
    borders = sorted({0, len(data)} | {place % (len(data) + 1) for place in cuts})
    return [(base + start, data[start:end]) for start, end in itertools.pairwise(borders)]


@given(st.binary(max_size=20), st.sets(st.integers(0, 20)), st.sets(st.integers(0, 20)))
def test_spans_cover_both(data: bytes, one: set[int], two: set[int]) -> None:
    first, second = cut(data, one, 0), cut(data, two, 100)
    spans = list(common_spans(first, second))
    assert [id for span in spans for id in span.first] == [id for id, _ in first]
    assert [id for span in spans for id in span.second] == [id for id, _ in second]
    borders = {0, *({start for start, _ in first} & {start - 100 for start, _ in second})}
    assert {span.start for span in spans} == (borders if data else set())
