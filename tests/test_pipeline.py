"""Notebooks feed each other as the data says, and the data names what there is."""

from pathlib import Path

import pytest

from kimi_helpers.notebook_parameters import check_parameters, read_parameters
from kimi_helpers.pipeline import Feed, known_pipeline, wiring
from kimi_helpers.workspace import NOTEBOOKS

GENERATION, RECONSTRUCTION = (NOTEBOOKS / f"{stem}.ipynb" for stem in ("03_generation", "04_reconstruction"))


def notebook(stem: str) -> Path:
    return NOTEBOOKS / f"{stem}.ipynb"


@pytest.mark.parametrize("feed", known_pipeline().feed, ids=lambda feed: f"{feed.source}-{feed.to}-{feed.parameter}")
def test_a_feed_leads_from_an_earlier_notebook_to_a_parameter_of_a_later_one(feed: Feed) -> None:
    assert feed.source < feed.to
    assert feed.parameter in read_parameters(notebook(feed.to))
    assert {"out", *feed.when} <= set(read_parameters(notebook(feed.source)))


@pytest.mark.parametrize("stem", known_pipeline().smallest)
def test_the_smallest_parameters_fit_their_notebook(stem: str) -> None:
    check_parameters(read_parameters(notebook(stem)), known_pipeline().smallest[stem])


def test_a_feed_needs_both_notebooks_and_its_condition() -> None:
    both = wiring([GENERATION, RECONSTRUCTION], "outputs/x", {})
    assert both[0]["out"] == "outputs/x"
    assert both[1] == {"out": "outputs/x", "replies": "outputs/x/journal.sqlite", "truth": "outputs/x/truth.jsonl"}
    assert wiring([RECONSTRUCTION], "outputs/x", {}) == [{"out": "outputs/x"}]
    real = wiring([GENERATION, RECONSTRUCTION], "outputs/x", {"base_url": "https://host.invalid", "out": "elsewhere"})
    assert real[1] == {"out": "outputs/x", "replies": "elsewhere/journal.sqlite"}
