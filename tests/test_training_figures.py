"""Figures of training sets: their values are those of a manifest written by hand."""

# mypy: disable-error-code="no-untyped-call"

from collections.abc import Iterator
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.container import BarContainer

from kimi_helpers.figures import describe_grades, grade_figure
from kimi_helpers.set_tasks import BINS_A_DOUBLING, LENGTH_BINS
from kimi_helpers.training_figures import coverage_figure, funnel, funnel_figure, grades_by_dataset, length_figure

MANIFEST = {
    "rows_read": 12,
    "rejected": {"a": {"grade failed": 1, "exact duplicate": 2}, "$b": {"grade failed": 2, "near duplicate": 0}},
    "groups": {
        "train": [
            {"dataset": "a", "grade": "exact_unique", "provider": "p", "rows": 3},
            {"dataset": "a", "grade": "exact_unique", "provider": "q", "rows": 1},
            {"dataset": "$b", "grade": "engine_ids", "provider": "p", "rows": 2},
        ],
        "evaluation": [{"dataset": "a", "grade": "engine_ids", "provider": "p", "rows": 1}],
    },
}


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    yield
    plt.close("all")


def bars(figure: Any) -> list[float]:
    return [bar.get_width() for each in figure.axes[0].containers if isinstance(each, BarContainer) for bar in each]


def test_the_funnel_ends_where_all_rows_went() -> None:
    steps = funnel(MANIFEST)
    assert steps == [
        ("read", 12),
        ("left out: grade failed", 3),
        ("left out: exact duplicate", 2),
        ("in train", 6),
        ("in evaluation", 1),
    ]
    assert steps[0][1] == sum(number for _, number in steps[1:])
    figure = funnel_figure(steps)
    figure.canvas.draw()
    assert bars(figure) == [1, 6, 2, 3, 12]  # the first on top
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()][-1] == "read"


def test_a_reason_is_no_formula() -> None:
    figure = funnel_figure([("left out: grade $\\bad$", 1)])
    figure.canvas.draw()
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["left out: grade $\\bad$"]


def test_grades_of_a_dataset_are_those_of_both_splits() -> None:
    grades = grades_by_dataset(MANIFEST)
    assert grades == {"$b": {"engine_ids": 2}, "a": {"exact_unique": 4, "engine_ids": 1}}
    assert (
        describe_grades(grades, "rows") == "Bars of rows by grade. $b: 2 engine_ids; a: 4 exact_unique, 1 engine_ids."
    )
    figure = grade_figure(grades, "rows")
    assert bars(figure) == [1, 2, 4, 0]
    assert figure.axes[0].get_xlabel() == "rows"


def test_lengths_stand_over_their_bins() -> None:
    counts = [0] * LENGTH_BINS
    counts[3 * BINS_A_DOUBLING] = 5  # from 8 tokens on
    figure = length_figure({"$a": counts})
    figure.canvas.draw()
    (steps,) = figure.axes[0].patches
    values, edges, _ = steps.get_data()
    assert edges[np.flatnonzero(values)].tolist() == [8.0]
    assert np.allclose(figure.axes[0].get_xlim(), (8, 8 * 2 ** (1 / BINS_A_DOUBLING)))
    length_figure({}).canvas.draw()


def test_coverage_is_told_at_the_size() -> None:
    figure = coverage_figure(np.array([0.5, 0.75, 1.0]), 2)
    figure.canvas.draw()
    curve, size = figure.axes[0].lines
    assert np.asarray(curve.get_xydata()).tolist() == [[1, 0.5], [2, 0.75], [3, 1.0]]
    assert np.asarray(size.get_xdata()).tolist() == [2, 2]
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["2 tokens: 75.00%"]
