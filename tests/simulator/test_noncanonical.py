"""Splits that are not the tokenizer's own, on tokens worked out by hand."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_helpers.simulator.noncanonical import split_anew, split_kind
from kimi_helpers.vocabulary import Vocabulary, load_vocabulary

KIMI = load_vocabulary()
END_THINK, END_TURN, CALL, ARGUMENTS = 163607, 163586, 163597, 163598
LAN_TERN, LANT_ERN = [12242, 1278], [129257, 2163]
WEATHER, WE_ATHER = [10666], [645, 2800]


def test_the_ids_by_hand_spell_what_they_should(kimi: Vocabulary) -> None:
    assert kimi.decode(LAN_TERN) == kimi.decode(LANT_ERN) == "lantern"
    assert kimi.decode(WEATHER) == kimi.decode(WE_ATHER) == " weather"


@pytest.mark.parametrize(
    ("ids", "kind"),
    [
        (LAN_TERN, "canonical"),
        (LANT_ERN, "same_length"),
        (WE_ATHER, "longer"),
        ([*LANT_ERN, END_THINK, *WE_ATHER, END_TURN], "longer"),
        ([*LAN_TERN, END_THINK, *LANT_ERN, END_TURN], "same_length"),
        ([64, END_THINK, 65, END_TURN], "canonical"),
        ([64, 65, END_TURN], "longer"),
        ([END_TURN], "canonical"),
        ([], "canonical"),
    ],
)
def test_the_kind_of_a_split(ids: list[int], kind: str, kimi: Vocabulary) -> None:
    assert split_kind(ids, kimi) == kind


def test_a_cut_character_is_no_split(kimi: Vocabulary) -> None:
    ids = kimi.encode("lantern 🐔🥁🏳️‍🌈")
    assert {split_kind(ids[:end], kimi) for end in range(len(ids) + 1)} == {"canonical"}
    assert split_kind([*LANT_ERN, *kimi.encode("🐔")[:-1]], kimi) == "same_length"


def test_both_kinds_come_and_spell_the_same(kimi: Vocabulary) -> None:
    ids = [*kimi.encode("The lantern and the tokenizers"), END_THINK, *kimi.encode("用户: lantern"), END_TURN]
    split = [split_anew(ids, kimi, random.Random(seed)) for seed in range(400)]
    assert {kimi.decode(new) for new in split} == {kimi.decode(ids)}
    kinds = [split_kind(new, kimi) for new in split]
    assert kinds.count("longer") + kinds.count("same_length") == 400
    assert 60 < kinds.count("same_length") < 140
    assert {len(new) - len(ids) for new in split} == {0, 1, 2}


def test_tool_ids_and_single_bytes_stay_whole(kimi: Vocabulary) -> None:
    ids = [64, CALL, *kimi.encode("functions.weather:0"), ARGUMENTS, 64, END_TURN]
    assert all(split_anew(ids, kimi, random.Random(seed)) == ids for seed in range(20))


def test_spelled_special_tokens_are_not_made_special(kimi: Vocabulary) -> None:
    ids = kimi.encode("</think>")
    for seed in range(50):
        new = split_anew(ids, kimi, random.Random(seed))
        assert max(new) < 163_584
        assert kimi.decode(new) == "</think>"


@given(st.text(max_size=30), st.integers(0, 5))
def test_any_text_keeps_its_bytes(text: str, seed: int) -> None:
    ids = KIMI.encode(text)
    new = split_anew(ids, KIMI, random.Random(seed))
    assert KIMI.decode_bytes(new) == KIMI.decode_bytes(ids)
    assert split_kind(ids, KIMI) == "canonical"
    assert (split_kind(new, KIMI) == "canonical") == (new == ids)
