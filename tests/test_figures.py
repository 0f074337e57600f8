"""Figures: the values are those given, and each is told in words; nothing untrusted is HTML."""

# mypy: disable-error-code="no-untyped-call"

import statistics
from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
from bs4 import BeautifulSoup
from matplotlib.container import BarContainer

from kimi_helpers.figures import (
    describe_grades,
    describe_lengths,
    describe_outcomes,
    describe_speeds,
    grade_figure,
    length_figure,
    outcome_figure,
    speed_figure,
)
from kimi_helpers.reconstruction import Grade
from kimi_helpers.run_record import Verdict
from kimi_helpers.runner import run_notebook

COUNTS = {
    "Faithful": {"exact_unique": 5, "unresolved": 0, "failed": 1},
    "$\\bad$ <b>": {"exact_ambiguous": 2, "failed": 3},
}
LENGTHS = {"Faithful": [10, 40, 22], "$x": [7], "Silent": []}


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    yield
    plt.close("all")


def test_each_bar_is_as_long_as_its_count() -> None:
    axes = grade_figure(COUNTS).axes[0]
    bars = {
        container.get_label(): [(bar.get_x(), bar.get_width()) for bar in container]
        for container in axes.containers
        if isinstance(container, BarContainer)
    }
    # the first host is on top, so last on the axis
    assert bars == {
        "exact_unique": [(0, 0), (0, 5)],
        "exact_ambiguous": [(0, 2), (5, 0)],
        "failed": [(2, 3), (5, 1)],
    }
    assert [text.get_text() for text in axes.texts] == ["", "5", "2", "", "3", "1"]


def test_outcomes_are_bars_whatever_their_names() -> None:
    counts = {"x/int4": {"stop": 3, "$bad": 1, "failed: empty": 0}, "y": {"stop": 0, "failed: empty": 2}}
    figure = outcome_figure(counts)
    figure.canvas.draw()
    bars = {
        container.get_label(): [bar.get_width() for bar in container]
        for container in figure.axes[0].containers
        if isinstance(container, BarContainer)
    }
    assert bars == {"stop": [0, 3], r"\$bad": [0, 1], "failed: empty": [2, 0]}
    assert describe_outcomes(counts) == (
        "Bars of requests by how they ended. x/int4: 3 stop, 1 $bad; y: 2 failed: empty."
    )


def test_speeds_are_points_and_told_in_words() -> None:
    seconds = {"x": [0.5, 1.5, 4.25], "silent": []}
    axes = speed_figure(seconds).axes[0]
    points = [line.get_xdata() for line in axes.lines if line.get_marker() == "o"]
    assert [list(map(float, xs)) for xs in points] == [[], [0.5, 1.5, 4.25]]
    assert describe_speeds(seconds) == "Seconds a reply by endpoint. x: 0.5 to 4.25, median 1.5."


def test_hosts_and_grades_are_named_as_they_are() -> None:
    figure = grade_figure(COUNTS)
    figure.canvas.draw()  # a formula would be read here
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["$\\bad$ <b>", "Faithful"]
    assert figure.axes[0].get_xlabel() == "replies"
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["exact_unique", "exact_ambiguous", "failed"]


def test_grades_differ_without_colour_too() -> None:
    axes = grade_figure({"A": {grade.value: 1 for grade in Grade}}).axes[0]
    styles = {(bar.get_facecolor(), bar.get_hatch()) for bar in axes.patches}
    assert len(styles) == len(Grade)


def test_points_and_boxes_are_at_the_lengths() -> None:
    figure = length_figure(LENGTHS)
    figure.canvas.draw()
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["Silent", "$x", "Faithful"]
    points = [line for line in axes.lines if line.get_marker() == "o"]
    assert [np.asarray(line.get_xdata()).tolist() for line in points] == [[], [7], [10, 40, 22]]
    assert [np.asarray(line.get_ydata()).tolist() for line in points] == [[], [1], [2, 2, 2]]
    median = statistics.median(LENGTHS["Faithful"])
    drawn = [np.asarray(line.get_xdata()).tolist() for line in axes.lines if line not in points]
    assert [median, median] in drawn
    assert axes.get_xlim()[0] == 0


def test_figures_of_nothing_can_be_drawn() -> None:
    for figure in (grade_figure({}), grade_figure({"A": {}}), length_figure({})):
        figure.canvas.draw()
        assert figure.legends == []
    long = grade_figure({"A" * 400: {"failed": 1}})
    assert [label.get_text() for label in long.axes[0].get_yticklabels()] == ["A" * 40]


def test_figures_are_told_in_words() -> None:
    assert describe_grades(COUNTS) == (
        "Bars of replies by grade. Faithful: 5 exact_unique, 1 failed; $\\bad$ <b>: 2 exact_ambiguous, 3 failed."
    )
    assert describe_lengths(LENGTHS | {"Even": [1, 2]}) == (
        "Billed completion tokens by host. Faithful: 10 to 40, median 22; $x: 7 to 7, median 7; "
        "Even: 1 to 2, median 1.5."
    )
    assert describe_grades({}) == "Bars of replies by grade. No replies."
    assert describe_lengths({"Silent": []}) == "Billed completion tokens by host. None stated."


SHOWN = f"""
import matplotlib.pyplot as plt
from kimi_helpers.figures import describe_grades, grade_figure, show
from kimi_helpers.token_view import TokenView
from kimi_helpers.vocabulary import load_vocabulary

counts = {COUNTS!r}
figure = grade_figure(counts)
show(figure, describe_grades(counts))
print(plt.get_fignums())
vocabulary = load_vocabulary()
TokenView(vocabulary.encode("<script>alert(1)</script>"), vocabulary)
"""


def test_the_description_reaches_the_page_and_no_token_becomes_markup(tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(SHOWN)])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, tmp_path / "shown.ipynb")
    run = run_notebook(tmp_path / "shown.ipynb", {}, tmp_path / "run")
    assert run.verdict is Verdict.succeeded, run.reason

    outputs = nbformat.read(run.executed, as_version=4).cells[-1].outputs
    figures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert [output.metadata["image/png"]["alt"] for output in figures] == [describe_grades(COUNTS)]
    assert [output.text for output in outputs if output.output_type == "stream"] == ["[]\n"]

    page = BeautifulSoup(run.html.read_text("utf-8"), "html.parser")
    assert [image["alt"] for image in page.find_all("img")] == [describe_grades(COUNTS)]
    assert page.find_all("script") == []
    assert "".join(span.text for span in page.select("div.tokens > span")) == "<script>alert(1)</script>"
