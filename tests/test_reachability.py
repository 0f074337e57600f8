"""Merge paths, witnesses, and the rules that hide an id."""

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_helpers.reachability import MERGED_ON, NOT_UTF8, Reachability, candidate_texts, merge_path, rank_table
from kimi_helpers.split_pattern import SplitPattern
from kimi_helpers.vocabulary import KIMI_PATTERN, Vocabulary, build_vocabulary


@pytest.fixture(scope="module")
def reach(kimi: Vocabulary) -> Reachability:
    return Reachability(kimi, rank_table(kimi))


def test_the_merge_path_by_hand() -> None:
    ranks = {b"a": 0, b"b": 1, b"c": 2, b"ab": 3, b"bc": 4, b"abc": 5}
    assert merge_path(ranks, b"abc") == [[b"a", b"b", b"c"], [b"ab", b"c"], [b"abc"]]
    assert merge_path(ranks, b"abab")[-1] == [b"ab", b"ab"]
    assert merge_path(ranks, b"") == [[]]


@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=12))
def test_merging_by_hand_is_tiktoken_s(reach: Reachability, word: str) -> None:
    ids = [reach.ranks[part] for part in merge_path(reach.ranks, word.encode())[-1]]
    assert reach.vocabulary.encode(word) == ids


@given(st.text(max_size=40))
def test_pieces_encoded_apart_are_the_text_s_ids(kimi: Vocabulary, text: str) -> None:
    pieces = list(SplitPattern(KIMI_PATTERN).pieces(text))
    assert "".join(pieces) == text
    assert [id for piece in pieces for id in kimi.encode(piece)] == kimi.encode(text)


def test_an_id_that_changes_alone_has_a_text_that_gives_it(reach: Reachability) -> None:
    id = reach.ranks[b" I'"]
    found = reach.find(id)
    assert found.witness is not None
    assert id in reach.vocabulary.encode(found.witness)
    assert id not in reach.vocabulary.encode(" I'")


def test_a_part_of_a_character_has_a_text_that_gives_it(reach: Reachability) -> None:
    for data in (b"\xe4", b"\xa2", b" \xf0\x9f", b"\x9e\xe1\x80"):
        found = reach.find(reach.ranks[data])
        assert found.witness is not None
        assert reach.ranks[data] in reach.vocabulary.encode(found.witness)


@pytest.mark.parametrize("byte", [0xC0, 0xC1, 0xF5, 0xFF])
def test_bytes_that_utf8_never_holds(reach: Reachability, byte: int) -> None:
    found = reach.find(reach.ranks[bytes([byte])])
    assert (found.witness, found.rule, found.tried) == (None, NOT_UTF8, 0)


def test_the_one_id_that_merges_hide(reach: Reachability) -> None:
    data = "о".encode() + b"\xd0"
    assert reach.is_merged_on(data)
    assert reach.find(reach.ranks[data]).rule == MERGED_ON
    # every character that the last byte can begin, between many others: the rule predicts all of these
    around = ["", "о", "й", "А", "a", " ", "!", "中", "\u0301", "樂", "и\u0306"]
    texts = [a + "о" + chr(0x400 + n) + b for n in range(64) for a in around for b in around]
    assert not any(reach.ranks[data] in ids for ids in map(reach.vocabulary.encode, texts))


def test_a_token_that_arises_is_not_called_hidden() -> None:
    # `о` and the lead byte of `б` merge; nothing merges them on, so the token can stand
    tokens = [bytes([value]) for value in range(256)] + ["о".encode(), "о".encode() + b"\xd0"]
    lines = b"".join(b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens))
    vocabulary = build_vocabulary(lines, [], "small")
    reach = Reachability(vocabulary, rank_table(vocabulary))
    assert not reach.is_merged_on(tokens[-1])
    assert reach.find(257).witness is not None


@given(st.binary(min_size=1, max_size=4))
def test_candidates_hold_the_bytes(data: bytes) -> None:
    for _, text in zip(range(20), candidate_texts(data), strict=False):
        assert data in text.encode()
