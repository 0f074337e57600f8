"""The official class's departures, held to what it was seen to do."""

import pytest

from kimi_helpers.official_class import official_quirks, skipped_decode, spaced_decode
from kimi_helpers.vocabulary import UnknownSpecialToken, Vocabulary


def test_a_keyword_puts_blanks_around_special_tokens(kimi: Vocabulary) -> None:
    # transformers 4.57.6 with the official class, vllm-project/vllm#33457
    assert spaced_decode(kimi, [163606, 1228, 163607, 16]) == "<think> 11 </think> 1"
    assert kimi.decode([163606, 1228, 163607, 16]) == "<think>11</think>1"
    assert spaced_decode(kimi, []) == ""


def test_skipping_special_tokens_keeps_think_tool_and_reserved_ones(kimi: Vocabulary) -> None:
    ids = [163607, 163595, 163700, 163586, 163585]
    assert skipped_decode(kimi, ids) == "</think><|tool_calls_section_begin|><|reserved_token_163700|>"


def test_each_departure_is_seen(kimi: Vocabulary) -> None:
    quirks = official_quirks(kimi)
    assert [quirk.is_seen for quirk in quirks] == [True] * 4
    assert (quirks[0].plain, quirks[0].official) == ("1 times 163586", "0 times 163586")
    with pytest.raises(UnknownSpecialToken):
        official_quirks(kimi, "<nothing>")
