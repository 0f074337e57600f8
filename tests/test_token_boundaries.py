"""Where a text may be cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_helpers.token_boundaries import (
    BoundaryProbe,
    Cut,
    boundary_rates,
    character_class,
    is_chunked,
    is_clean_border,
    probe,
    probe_texts,
    wilson,
)
from kimi_helpers.vocabulary import RUN_CHARS, Vocabulary


@pytest.mark.parametrize(
    ("before", "after", "result"),
    [
        ("hello", " world", Cut.kept),
        ("hel", "lo", Cut.inside),
        ("中文", "，好", Cut.kept),
        ("1234", "5", Cut.inside),
        ("a ", " b", Cut.kept),
    ],
)
def test_cuts_by_hand(kimi: Vocabulary, before: str, after: str, result: Cut) -> None:
    assert probe(kimi, before, after).result is result


@pytest.mark.parametrize(
    ("char", "name"),
    [("a", "lower case"), ("A", "upper case"), ("中", "Han"), ("1", "digit"), (" ", "blank"), ("\r", "line break"),
     ("あ", "other letter"), ("!", "other")],
)  # fmt: skip
def test_classes_of_characters(char: str, name: str) -> None:
    assert character_class(char) == name


def test_rates_by_hand() -> None:
    probes = [BoundaryProbe("a", "b", cut) for cut in (Cut.kept, Cut.kept, Cut.inside, Cut.moved)]
    table = boundary_rates([*probes, BoundaryProbe("x", "y", Cut.kept)])
    row = table.loc[("a", "b")]
    assert (row["cuts"], row["changed"], row["rate"]) == (4, 2, 0.5)
    assert (row[Cut.inside.value], row[Cut.moved.value]) == (1, 1)
    assert table.loc[("x", "y"), "rate"] == 0
    assert boundary_rates([]).empty


def test_the_interval_is_wilson_s() -> None:
    low, high = wilson(5, 10)
    assert (round(low, 3), round(high, 3)) == (0.237, 0.763)
    assert wilson(0, 10)[0] == 0


def test_cuts_are_drawn_alike_each_time(kimi: Vocabulary) -> None:
    texts = ["The quick brown fox.", "x", "中文字"]
    assert probe_texts(kimi, texts, 20) == probe_texts(kimi, texts, 20)
    assert probe_texts(kimi, ["x"], 20) == []


@given(st.text(), st.sampled_from(["</think>", "<|im_end|>", "<|tool_call_begin|>"]), st.text())
def test_a_special_token_is_a_clean_border(kimi: Vocabulary, before: str, special: str, after: str) -> None:
    assert is_clean_border(kimi, before, special, after)


def test_but_not_where_the_text_is_chunked(kimi: Vocabulary) -> None:
    run = "a" * (RUN_CHARS - 1)
    assert is_chunked(run, "</think>", "")
    assert not is_clean_border(kimi, run, "</think>", "")
    assert not is_chunked("a", "</think>", "b")
