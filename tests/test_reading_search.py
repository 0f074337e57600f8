"""The search against brute force, and the laws by which texts are encoded in pieces."""

import re
from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kimi_helpers.formats import BEGIN_SECTION, END_THINK, END_TURN, Special
from kimi_helpers.reading_search import Choices, encoder_of, in_ids, packed, source_pieces, unpacked
from kimi_helpers.readings import EndToken, Layout, Slot
from kimi_helpers.vocabulary import Vocabulary
from tests.forward_stacks import ATOMS, TYPED

LAW = settings(max_examples=300, deadline=None)
NASTY = st.lists(st.sampled_from((*ATOMS, *TYPED)) | st.text(max_size=3), max_size=12).map("".join)
WORDS = st.lists(st.sampled_from(("a", "The", " ", "  ", "\n", "Z'S", "'s", "42", "é", "中", ".", " d", "x ")) | NASTY)


def test_ids_and_bytes() -> None:
    ids = [0, 1, 163_585, 2**31 - 1]
    assert unpacked(packed(ids)).tolist() == ids
    assert packed([]) == b""
    assert packed([258]) == b"\x02\x01\x00\x00"
    assert unpacked(packed(ids)).dtype.itemsize == 4


@LAW
@given(
    st.lists(NASTY, max_size=5), st.lists(st.sampled_from((END_THINK, BEGIN_SECTION, END_TURN)), min_size=5, max_size=5)
)
def test_pieces_between_special_tokens_join_to_the_whole(kimi: Vocabulary, texts: list[str], marks: list[str]) -> None:
    """Encoding each piece alone, special tokens between them, is encoding the whole with its special tokens known."""
    clean = [re.sub("|".join(map(re.escape, kimi.named)), "", text).replace("<", "").replace("[", "") for text in texts]
    joined = b"".join(
        encoder_of(kimi)(text) + packed([kimi.special_id(mark)]) for text, mark in zip(clean, marks, strict=False)
    )
    whole = "".join(text + mark for text, mark in zip(clean, marks, strict=False))
    assert unpacked(joined).tolist() == kimi.encode(whole, specials=True)


@LAW
@given(WORDS.map("".join), st.integers(0, 60))
def test_source_pieces_encode_as_the_whole(kimi: Vocabulary, text: str, repeated: int) -> None:
    text = text + " and so on" * repeated + text
    several = source_pieces(text, Slot("content", (text, text + "\n")))
    assert "".join(several) == text
    assert b"".join(map(encoder_of(kimi), several)) == encoder_of(kimi)(text)
    assert source_pieces(text, Slot("content", (text,))) == (text,)


@LAW
@given(WORDS.map("".join), st.sampled_from("aZ"), st.sampled_from("bQ"), WORDS.map("".join))
def test_a_blank_between_two_letters_starts_a_piece(
    kimi: Vocabulary, before: str, first: str, second: str, after: str
) -> None:
    encode = encoder_of(kimi)
    assert encode(before + first) + encode(" " + second + after) == encode(f"{before}{first} {second}{after}")


def test_sources_that_differ_at_their_ends_share_their_middle() -> None:
    text = "One" + " and so on" * 200
    sources = tuple(start + text + end for start in ("", " ", "\n") for end in ("", "\n"))
    pieces = {source: source_pieces(source, Slot("content", sources)) for source in sources}
    assert {len(each) for each in pieces.values()} == {3}
    assert len({each[1] for each in pieces.values() if each[0].lstrip() == "One"}) <= 2
    assert len({piece for each in pieces.values() for piece in each}) <= 3 + 2 + 2


Parts = tuple[tuple[bytes, ...], ...]
# ids by number of tokens; two alternatives of a part never have the same ids
ALTERNATIVES = st.lists(st.lists(st.integers(0, 3), max_size=4), min_size=1, max_size=4, unique_by=tuple)
PARTS = st.lists(ALTERNATIVES.map(lambda lists: tuple(map(packed, lists))), min_size=1, max_size=6).map(tuple)
ENDS: st.SearchStrategy[EndToken] = st.sampled_from(("counted", "not counted", "absent"))


def made(parts: Parts, end: EndToken, uncounted: range, border: int) -> Choices:
    """Choices whose reasoning ends before part `border`, where a mark of a tool section stands."""
    marked = [*parts[:border], (packed([9]),), *parts[border:]]
    slots: list[Special | Slot] = [Slot("content", ("any",)) for _ in parts]
    return Choices(tuple(marked), Layout((*slots[:border], Special(BEGIN_SECTION), *slots[border:]), end, uncounted))


@LAW
@given(
    PARTS,
    ENDS,
    st.integers(0, 6),
    st.integers(0, 3),
    st.integers(0, 6),
    st.integers(-2, 30),
    st.none() | st.integers(0, 12),
)
def test_fitting_is_what_brute_force_finds_in_the_same_order(
    parts: Parts, end: EndToken, start: int, length: int, border: int, billed: int, reasoned: int | None
) -> None:
    border = min(border, len(parts))
    uncounted = range(start, start + length)
    choices = made(parts, end, uncounted, border)

    def count(chosen: tuple[bytes, ...], places: range) -> int:
        return sum(len(chosen[place]) // 4 for place in places if place not in uncounted)

    expected = [
        b"".join(chosen)
        for chosen in product(*choices.parts)
        if count(chosen, range(len(chosen))) - (end == "not counted") == billed
        and reasoned in (None, count(chosen, range(border)))
    ]
    found = list(choices.fitting(billed, reasoned))
    assert [reading.data for reading in found] == expected
    assert all(reading.billed == billed and reading.end_token == end for reading in found)


@LAW
@given(PARTS, ENDS, st.integers(0, 6), st.integers(0, 3), st.integers(0, 6))
def test_the_fewest_and_the_plain(parts: Parts, end: EndToken, start: int, length: int, border: int) -> None:
    choices = made(parts, end, range(start, start + length), min(border, len(parts)))
    every = [
        sum(len(ids) // 4 for place, ids in enumerate(chosen) if place not in choices.layout.uncounted)
        - (end == "not counted")
        for chosen in product(*choices.parts)
    ]
    assert choices.fewest() == min(every)
    assert next(choices.fitting(min(every))).billed == min(every)
    assert next(choices.fitting(min(every) - 1), None) is None
    plain = choices.plain()
    assert plain.data == b"".join(alternatives[0] for alternatives in choices.parts)
    assert plain.billed == every[0]
    assert plain in list(choices.fitting(every[0]))


def ids_of(text: str) -> bytes:
    """Two tokens a character: told apart from any real encoder."""
    return packed([ord(char) for char in text for _ in range(2)])


@pytest.mark.parametrize(
    ("end", "uncounted", "billed", "found"),
    [
        # parts: "a" or "" (2 or 0 tokens), </think>, "x" or "yy" (2 or 4), <|im_end|>
        ("counted", range(0), 6, ["ax", "yy"]),
        ("counted", range(0), 4, ["x"]),
        ("counted", range(0), 8, ["ayy"]),
        ("counted", range(0), 5, []),
        ("not counted", range(0), 5, ["ax", "yy"]),
        ("not counted", range(0), 7, ["ayy"]),
        ("not counted", range(2), 4, ["ayy", "yy"]),
        ("counted", range(2), 3, ["ax", "x"]),
        ("counted", range(2, 3), 2, ["x", "yy"]),
        ("counted", range(2, 3), 4, ["ax", "ayy"]),
        ("counted", range(0), 10**15, []),
        ("counted", range(0), -1, []),
    ],
)
def test_counts_by_hand(kimi: Vocabulary, end: EndToken, uncounted: range, billed: int, found: list[str]) -> None:
    parts = (Slot("reasoning", ("a", "")), Special(END_THINK), Slot("content", ("x", "yy")), Special(END_TURN))
    choices = in_ids(Layout(parts, end, uncounted), kimi, ids_of)
    close, end_id = kimi.special_id(END_THINK), kimi.special_id(END_TURN)
    expected = []
    for text in found:
        reasoning, content = ("a", text[1:]) if text.startswith("a") else ("", text)
        expected.append([*unpacked(ids_of(reasoning)), close, *unpacked(ids_of(content)), end_id])
    assert [reading.token_ids.tolist() for reading in choices.fitting(billed)] == expected


def test_sources_with_the_same_ids_are_one_alternative(kimi: Vocabulary) -> None:
    layout = Layout((Slot("content", ("a", "b", "cc")),), "absent")
    same: Callable[[str], bytes] = lambda text: packed([len(text)])  # noqa: E731
    assert in_ids(layout, kimi, same).parts == ((packed([1]), packed([2])),)


def test_a_run_of_blanks_that_no_model_samples_is_cut(kimi: Vocabulary) -> None:
    ids = unpacked(encoder_of(kimi)(" " * 1_500_000))
    assert kimi.decode(ids.tolist()) == " " * 1_500_000
