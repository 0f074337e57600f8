"""Figures of an audit and their words; bytes per token."""

# mypy: disable-error-code="no-untyped-call"

from collections.abc import Iterator

import matplotlib.pyplot as plt
import numpy as np
import pytest

from kimi_helpers.quirk_figures import (
    boundary_figure,
    bytes_figure,
    describe_boundaries,
    describe_bytes,
    describe_distribution,
    describe_id_map,
    distribution_figure,
    id_map_figure,
)
from kimi_helpers.quirks import Audit, audit
from kimi_helpers.text_kinds import bytes_per_token, text_kinds
from kimi_helpers.token_boundaries import BoundaryProbe, Cut, boundary_rates
from kimi_helpers.vocabulary import Vocabulary


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def found(tiny: Vocabulary) -> Audit:
    return audit(tiny)


def test_the_map_shows_every_slot_and_the_gap(found: Audit) -> None:
    figure = id_map_figure(found)
    figure.canvas.draw()
    labels = [text.get_text() for text in figure.axes[1].get_legend().get_texts()]  # type: ignore[union-attr]
    assert labels == ["reserved (242)", "named (14)"]
    assert "516 ids" in describe_id_map(found)
    assert "from 260 to 263" in describe_id_map(found)


def test_lengths_and_scripts(found: Audit) -> None:
    left, right = distribution_figure(found).axes
    # 256 bytes, two tokens of 2 bytes (th, in), two of 3 (the, ing)
    assert [bar.get_height() for bar in left.patches] == [256, 2, 2]
    # 52 letters and four words
    assert max(bar.get_width() for bar in right.patches) == sum(found.ordinary["script"] == "Common")
    assert "Latin 56" in describe_distribution(found)
    assert "longest 3" in describe_distribution(found)


def test_rates_are_where_they_belong() -> None:
    rates = boundary_rates([BoundaryProbe("a", "b", cut) for cut in (Cut.kept, Cut.inside, Cut.inside, Cut.kept)])
    (points,) = boundary_figure(rates).axes[0].lines[:1]
    assert np.asarray(points.get_xdata()).tolist() == [0.5]
    assert describe_boundaries(rates) == "Cuts that change ids. a before b: 2 of 4."
    assert describe_boundaries(boundary_rates([])) == "Cuts that change ids. None tried."


def test_bytes_per_token(tiny: Vocabulary) -> None:
    # tiny: `the` and `thing` (th + ing) are three tokens with the blank, four; o200k has a token for each word
    table = bytes_per_token(tiny, {"words": "the thing"})
    assert table.loc["words"].tolist() == pytest.approx([9, 4, 9 / 4, 4 / 9, 9 / 2])
    bars = [bar.get_width() for bar in bytes_figure(table).axes[0].patches]
    assert bars == pytest.approx([9 / 4, 9 / 2])
    assert describe_bytes(table) == "Bytes per token of this vocabulary and of o200k_base: words 2.25 and 4.50."
    assert len(text_kinds()) == 12
