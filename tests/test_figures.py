"""Token views and figures: everything can be seen, nothing untrusted is HTML, and the values are those given."""

# mypy: disable-error-code="no-untyped-call"

import statistics
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
from bs4 import BeautifulSoup
from bs4.element import Tag
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.container import BarContainer

from kimi_helpers.figures import (
    TokenView,
    describe_grades,
    describe_lengths,
    grade_figure,
    length_figure,
    visible,
)
from kimi_helpers.reconstruction import Grade
from kimi_helpers.run_record import Verdict
from kimi_helpers.runner import run_notebook
from kimi_helpers.vocabulary import Vocabulary

COUNTS = {
    "Faithful": {"exact_unique": 5, "unresolved": 0, "failed": 1},
    "$\\bad$ <b>": {"exact_ambiguous": 2, "failed": 3},
}
LENGTHS = {"Faithful": [10, 40, 22], "$x": [7], "Silent": []}


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"the", "the"),
        (b" the  ", "·the··"),
        (b"a\n\tb\r\n", "a⏎→b\\r⏎"),
        ("你好".encode(), "你好"),
        ("你".encode()[:2], "\\xe4\\xbd"),
        (b"a\xff", "\\x61\\xff"),
        ("\u202eevil\u2066".encode(), "\\u202eevil\\u2066"),
        (b"\x1b[31mred\x07\x00", "\\x1b[31mred\\x07\\x00"),
        ("\xa0\u3000\u200b\ufeff".encode(), "\\xa0\\u3000\\u200b\\ufeff"),
        ("❤\ufe0f".encode(), "❤\\ufe0f"),
        ("\u3164\u2800".encode(), "\\u3164\\u2800"),
        ("·⏎→".encode(), "\\xb7\\u23ce\\u2192"),
        ("\U000e0041".encode(), "\\U000e0041"),
        (b"<b>&'\"", "<b>&'\""),
        (b"", ""),
    ],
)
def test_a_token_s_bytes_can_all_be_seen(data: bytes, shown: str) -> None:
    assert visible(data) == shown


@given(st.binary() | st.text().map(lambda text: text.encode("utf-8", "ignore")))
def test_nothing_that_is_shown_is_a_control_or_a_blank(data: bytes) -> None:
    shown = visible(data)
    assert {unicodedata.category(char)[0] for char in shown}.isdisjoint("CZ")
    assert bool(shown) == bool(data)


def bytes_ids(text: str) -> list[int]:
    """In the tiny vocabulary a byte's id is its value."""
    return list(text.encode())


def spans(view: TokenView) -> list[Tag]:
    return BeautifulSoup(view._repr_html_(), "html.parser").select("div.tokens > span")


def test_the_text_of_tokens_is_never_html(tiny: Vocabulary) -> None:
    view = TokenView(bytes_ids("<script>alert('&amp;\"')</script>"), tiny)
    assert "".join(span.text for span in spans(view)) == "<script>alert('&amp;\"')</script>"
    page = BeautifulSoup(view._repr_html_(), "html.parser")
    assert {tag.name for tag in page.find_all()} == {"style", "div", "span"}


def test_a_real_token_that_spells_a_tag_is_escaped(kimi: Vocabulary) -> None:
    ids = kimi.encode("<script>")
    assert any("<script" in kimi.decode([id]) for id in ids)
    html = TokenView(ids, kimi)._repr_html_()
    assert "<script" not in html
    assert "&lt;script" in html


def test_special_and_partial_tokens_are_marked_and_titled(tiny: Vocabulary) -> None:
    end = tiny.special_id("<|im_end|>")
    marked = spans(TokenView([257, 0xE4, end, end + 1, ord(" ")], tiny))
    assert [span["class"] for span in marked] == [["even"], ["partial"], ["special"], ["special"], ["even"]]
    assert [span.text for span in marked] == ["the", "\\xe4", "<|im_end|>", f"<|reserved_token_{end + 1}|>", "·"]
    assert [span["title"] for span in marked[:3]] == [
        "0: id 257, 3 bytes",
        "1: id 228, 1 bytes",
        f"2: id {end}, 10 bytes",
    ]


def test_the_view_is_described_for_who_cannot_see_it(tiny: Vocabulary) -> None:
    html = TokenView([257, tiny.special_id("<|im_end|>")], tiny)._repr_html_()
    view = BeautifulSoup(html, "html.parser").select_one("div.tokens")
    assert view is not None
    assert (view["role"], view["aria-label"]) == ("img", "2 tokens, 1 of them special")


def test_tokens_of_the_prompt_are_paler(tiny: Vocabulary) -> None:
    end = tiny.special_id("<|im_end|>")
    view = TokenView([257, end, 257, end], tiny, loss_mask=[0, 0, 1, 1])
    assert ["prompt" in span["class"] for span in spans(view)] == [True, True, False, False]
    assert [span["class"][0] for span in spans(view)] == ["even", "special", "even", "special"]
    assert ".tokens .prompt{opacity:.55}" in view._repr_html_()
    assert not any("prompt" in span["class"] for span in spans(TokenView([257, end], tiny)))


def test_the_middle_of_a_long_row_is_left_out(tiny: Vocabulary) -> None:
    ids = bytes_ids("abcdefghij")
    assert [span.text for span in spans(TokenView(ids, tiny, most=10))] == list("abcdefghij")
    assert [span.text for span in spans(TokenView(ids, tiny, most=4))] == ["a", "b", "… 6 more …", "i", "j"]
    assert [span.text for span in spans(TokenView(ids, tiny, most=5))] == ["a", "b", "… 6 more …", "i", "j"]
    assert [span["title"] for span in spans(TokenView(ids, tiny, most=4)) if span.has_attr("title")] == [
        "0: id 97, 1 bytes",
        "1: id 98, 1 bytes",
        "8: id 105, 1 bytes",
        "9: id 106, 1 bytes",
    ]


def test_without_html_the_row_is_text(tiny: Vocabulary) -> None:
    assert repr(TokenView([257, 10], tiny)) == "[257]the [10]⏎"
    assert repr(TokenView(bytes_ids("abcdef"), tiny, most=2)) == "[97]a ... [102]f"
    assert repr(TokenView([], tiny)) == ""


def test_an_id_outside_the_vocabulary_is_an_error(tiny: Vocabulary) -> None:
    with pytest.raises(ValueError, match="outside the vocabulary"):
        TokenView([10**6], tiny)._repr_html_()


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
from kimi_helpers.figures import TokenView, describe_grades, grade_figure, show
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
