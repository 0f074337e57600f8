"""The border check: places by hand, planted errors that are what they say, areas by counting pairs."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kimi_helpers.border_check import PLANTS, border_places, report_row, roc
from kimi_helpers.capture_rows import CaptureRow
from kimi_helpers.hidden_states import CapturedRow, TokenScores
from kimi_helpers.vocabulary import Vocabulary


def row(ids: list[int], mask: list[int]) -> CaptureRow:
    return CaptureRow(0, "r", np.array(ids, np.int32), np.array(mask, np.uint8))


def test_borders_are_the_edges_of_sampled_runs_and_what_touches_a_special_token() -> None:
    ids = [9, 1, 2, 3, 4, 5, 9, 6, 7, 8, 3, 2, 9]
    #      .  .  ^        ^  ^  ^               ^  ^     9 is special
    mask = [0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    assert border_places(row(ids, mask), {9}) == [2, 5, 6, 7, 11, 12]
    assert border_places(row([1, 2, 3, 4], [1, 1, 0, 0]), {9}) == [0, 1]
    assert border_places(row([1, 2], [0, 0]), {9}) == []


def test_a_report_is_about_sampled_tokens_alone() -> None:
    nan = float("nan")
    scores = TokenScores(
        np.array([nan, -9, -1, -3, -8], np.float32),
        np.array([nan, -0.1, -0.5, -1, -1], np.float32),
        np.zeros((5, 0), np.int32),
        np.zeros((5, 0), np.float32),
    )
    report = report_row(CapturedRow(row([1, 2, 3, 4, 5], [0, 0, 1, 1, 1]), torch.zeros(5, 1, 1), scores), {3})
    assert (report.tokens, report.mean_logprob) == (3, -4.0)
    assert [(token.place, token.id, token.gap, token.at_border) for token in report.worst] == [
        (4, 5, 7.0, True),
        (3, 4, 2.0, True),
        (2, 3, 0.5, True),
    ]
    assert report.worst_border == report.worst[0]
    assert report.is_flagged(6.9)
    assert not report.is_flagged(7.1)
    with pytest.raises(ValueError, match="captured without scores"):
        report_row(CapturedRow(row([1], [1]), torch.zeros(1, 1, 1)), {3})


SENTENCE = "Say it: the thing is in the string of things, nothing more, and then it ends"


@pytest.mark.parametrize("kind", list(PLANTS))
def test_planted_errors_are_what_they_say(kimi: Vocabulary, kind: str) -> None:
    prompt, said = kimi.encode("Go on."), [*kimi.encode(SENTENCE), kimi.special_id("<|im_end|>")]
    right = row(prompt + said, [0] * len(prompt) + [1] * len(said))
    wrong = PLANTS[kind](right, kimi, np.random.default_rng(3))
    assert wrong is not None
    assert wrong.ids.size == wrong.mask.size
    assert wrong.ids[: len(prompt)].tolist() == prompt
    assert wrong.mask.sum() == wrong.ids.size - len(prompt)
    spelled, before = kimi.decode(wrong.ids.tolist()), kimi.decode(right.ids.tolist())
    if kind == "wrong end token":
        assert wrong.ids[:-1].tolist() == right.ids[:-1].tolist()
        assert int(wrong.ids[-1]) not in kimi.special_ids
    elif kind == "emptied opening":
        assert before.endswith(spelled.removeprefix("Go on."))
        assert 0 < len(said) // 2 - (right.ids.size - wrong.ids.size) + 1 < 3
    elif kind == "moved blank":
        assert len(spelled) == len(before) + 1
        assert spelled.replace("  ", " ") == before
    else:
        assert spelled == before
        assert wrong.ids.size == right.ids.size + 1


def test_a_row_without_a_place_for_an_error_gives_none(tiny: Vocabulary) -> None:
    bare = row([ord("a")], [1])
    assert [kind for kind, plant in PLANTS.items() if plant(bare, tiny, np.random.default_rng(0))] == []


scores = st.lists(st.integers(0, 9).map(float), min_size=1, max_size=12)


@given(scores, scores)
def test_the_area_is_the_share_of_pairs_in_the_right_order(right: list[float], wrong: list[float]) -> None:
    pairs = [(one > other) + 0.5 * (one == other) for one in wrong for other in right]
    curve = roc(right, wrong)
    assert curve.area == pytest.approx(np.mean(pairs))
    assert (curve.false_alarms[-1], curve.found[-1]) == (1, 1)


def test_rows_are_not_changed_in_place(kimi: Vocabulary) -> None:
    right = row(kimi.encode(SENTENCE), [1] * len(kimi.encode(SENTENCE)))
    before = replace(right, ids=right.ids.copy())
    for plant in PLANTS.values():
        plant(right, kimi, np.random.default_rng(1))
    np.testing.assert_array_equal(right.ids, before.ids)
