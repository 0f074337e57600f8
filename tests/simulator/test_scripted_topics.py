"""Slots, and the texts that have them."""

import random
import re

import pytest

from kimi_helpers.simulator.scripted_arguments import STRINGS
from kimi_helpers.simulator.scripted_texts import TOPICS
from kimi_helpers.simulator.scripted_topics import WORDS, fill


def test_a_labelled_slot_has_one_value_and_others_draw_anew() -> None:
    filled = [fill("⟦n:a⟧ ⟦n:a⟧ ⟦n⟧ ⟦n⟧", random.Random(seed)).split(" ") for seed in range(20)]
    assert all(row[0] == row[1] for row in filled)
    assert any(row[2] != row[3] for row in filled)
    assert len({row[0] for row in filled}) > 10


def test_text_without_slots_stays_as_it_is() -> None:
    text = "{a} $b$ %c \\d ⟦ ⟧ [[e]]"
    assert fill(text, random.Random(0)) == text


def test_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(KeyError, match="nothing"):
        fill("⟦nothing⟧", random.Random(0))


def test_every_text_can_be_filled_and_no_slot_is_left() -> None:
    texts = [text for topic in TOPICS for text in (*topic.reasoning, *topic.answers)] + list(STRINGS)
    for text in texts:
        assert not re.search("[⟦⟧]", fill(text, random.Random(1))), text
    assert sum("⟦" in text for text in texts) > 60


def test_words_of_a_kind_are_not_repeated() -> None:
    assert all(len(set(words)) == len(words) > 4 for words in WORDS.values())
