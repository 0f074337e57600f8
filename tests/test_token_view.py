"""Token views: everything can be seen and heard, nothing untrusted is HTML, differences are where they are."""

import colorsys
import re
import unicodedata

import pytest
from bs4 import BeautifulSoup
from bs4.element import Tag
from hypothesis import given
from hypothesis import strategies as st

from kimi_helpers.reachability import rank_table
from kimi_helpers.token_view import STYLE, DifferenceView, MergeView, TokenView, view_text, visible
from kimi_helpers.vocabulary import Vocabulary


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"the", "the"),
        (b" the  ", "·the··"),
        (b"a\n\tb\r\n", "a⏎→b\\r⏎"),
        ("你好".encode(), "你好"),
        ("你".encode()[:2], "<0xE4><0xBD>"),
        (b"a\xff", "a<0xFF>"),
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
    assert {tag.name for tag in page.find_all()}.isdisjoint({"script", "img", "b"})


def test_a_real_token_that_spells_a_tag_is_escaped(kimi: Vocabulary) -> None:
    ids = kimi.encode("<script>")
    assert any("<script" in kimi.decode([id]) for id in ids)
    html = TokenView(ids, kimi)._repr_html_()
    assert "<script" not in html
    assert "&lt;script" in html


def test_special_and_partial_tokens_are_marked_and_titled(tiny: Vocabulary) -> None:
    end = tiny.special_id("<|im_end|>")
    marked = spans(TokenView([257, 0xE4, end, end + 1, ord(" ")], tiny))
    assert [span["class"][-1] for span in marked[1:4]] == ["partial", "special", "special"]
    assert [span.text for span in marked] == ["the", "<0xE4>", "<|im_end|>", f"<|reserved_token_{end + 1}|>", "·"]
    assert [span["title"] for span in marked[:3]] == [
        "0: id 257, bytes 74 68 65",
        "1: id 228, bytes e4, part of a character",
        f"2: id {end}, bytes 3c 7c 69 6d 5f 65 6e 64 7c 3e, special token",
    ]


def test_the_view_is_described_for_who_cannot_see_it(tiny: Vocabulary) -> None:
    html = TokenView([257, tiny.special_id("<|im_end|>")], tiny)._repr_html_()
    view = BeautifulSoup(html, "html.parser").select_one("div.tokens")
    assert view is not None
    assert (view["role"], view["aria-label"]) == ("list", "2 tokens, 1 of them special")


def test_tokens_of_the_prompt_are_paler(tiny: Vocabulary) -> None:
    end = tiny.special_id("<|im_end|>")
    view = TokenView([257, end, 257, end], tiny, loss_mask=[0, 0, 1, 1])
    assert ["prompt" in span["class"] for span in spans(view)] == [True, True, False, False]
    assert ".tokens .prompt{opacity:.6}" in view._repr_html_()
    assert not any("prompt" in span["class"] for span in spans(TokenView([257, end], tiny)))


def test_the_middle_of_a_long_row_is_left_out(tiny: Vocabulary) -> None:
    ids = bytes_ids("abcdefghij")
    assert [span.text for span in spans(TokenView(ids, tiny, most=10))] == list("abcdefghij")
    assert [span.text for span in spans(TokenView(ids, tiny, most=4))] == ["a", "b", "… 6 more …", "i", "j"]
    assert [span.text for span in spans(TokenView(ids, tiny, most=5))] == ["a", "b", "… 6 more …", "i", "j"]
    assert [span["title"] for span in spans(TokenView(ids, tiny, most=4)) if span.has_attr("title")] == [
        "0: id 97, bytes 61",
        "1: id 98, bytes 62",
        "8: id 105, bytes 69",
        "9: id 106, bytes 6a",
    ]


def test_without_html_the_row_is_text(tiny: Vocabulary) -> None:
    assert repr(TokenView([257, 10], tiny)) == "[257]the [10]⏎"
    assert repr(TokenView(bytes_ids("abcdef"), tiny, most=2)) == "[97]a ... [102]f"
    assert repr(TokenView([], tiny)) == ""


def test_an_id_outside_the_vocabulary_is_an_error(tiny: Vocabulary) -> None:
    with pytest.raises(ValueError, match="outside the vocabulary"):
        TokenView([10**6], tiny)._repr_html_()


def test_the_table_gives_id_text_and_bytes_of_every_token(tiny: Vocabulary) -> None:
    page = BeautifulSoup(TokenView([257, 0xE4, ord(" ")], tiny)._repr_html_(), "html.parser")
    rows = [[cell.text for cell in row.find_all("td")] for row in page.select("tbody tr")]
    assert rows == [
        ["0", "257", "the", "74 68 65", ""],
        ["1", "228", "<0xE4>", "e4", "part of a character"],
        ["2", "32", "·", "20", ""],
    ]
    assert [head["scope"] for head in page.select("th")] == ["col"] * 5
    assert page.select_one("details code").text == "[257, 228, 32]"  # type: ignore[union-attr]


def test_a_token_has_its_colour_wherever_it_stands(tiny: Vocabulary) -> None:
    first, second = (spans(TokenView(ids, tiny)) for ids in ([257, 97], [97, 98, 257]))
    assert first[0]["class"] == second[2]["class"]
    assert first[1]["class"] == second[0]["class"]


def luminance(red: float, green: float, blue: float) -> float:
    parts = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in (red, green, blue)]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


@pytest.mark.parametrize(("dark", "text"), [(False, 0x11), (True, 0xF2)])
def test_text_can_be_read_on_every_colour(dark: bool, text: int) -> None:
    rule = r'"false"\] \.tokens \.h' if dark else r"(?<!\] )\.tokens \.h"
    colours = re.findall(rule + r"\d+\{background:hsl\((\d+) (\d+)% (\d+)%\)", STYLE)
    assert len(colours) == 12
    ink = luminance(*[text / 255] * 3)
    for hue, saturation, light in colours:
        paper = luminance(*colorsys.hls_to_rgb(int(hue) / 360, int(light) / 100, int(saturation) / 100))
        low, high = sorted((ink, paper))
        assert (high + 0.05) / (low + 0.05) > 7  # WCAG AAA


def test_specials_are_tokens_or_text_as_asked(tiny: Vocabulary) -> None:
    assert list(view_text("<think>", tiny).ids) == [tiny.special_id("<think>")]
    # `th` and `in` are merges of the tiny vocabulary
    assert list(view_text("<think>", tiny, specials=False).ids) == [ord("<"), 256, 258, ord("k"), ord(">")]


def test_differences_are_shown_by_their_bytes() -> None:
    first = [(1, b"don't"), (2, b" go")]
    second = [(3, b"don"), (4, b"'t"), (2, b" go")]
    view = DifferenceView(("right", "<wrong>"), first, second)
    assert repr(view) == "1 span(s) differ\nbytes 0 to 5: don't  right [1], <wrong> [3, 4]"
    page = BeautifulSoup(view._repr_html_(), "html.parser")
    assert page.find("wrong") is None
    marked = ["differs" in span["class"] for span in page.select("div.tokens > span")]
    assert marked == [True, False, True, True, False]
    assert [span["title"].endswith("differs") for span in page.select("div.tokens > span")] == marked
    assert repr(DifferenceView(("a", "b"), first, first)) == "the ids are equal"
    with pytest.raises(ValueError, match="from byte 5 on"):
        repr(DifferenceView(("a", "b"), first, second[:2]))


def test_the_merge_path_of_a_token(tiny: Vocabulary) -> None:
    view = MergeView(b"thing", rank_table(tiny))
    assert repr(view) == (
        "0. t h i n g   (single bytes)\n1. th i n g   (th at rank 256)\n"
        "2. th in g   (in at rank 258)\n3. th ing   (ing at rank 259)"
    )
    assert BeautifulSoup(view._repr_html_(), "html.parser").select("tbody tr")[3].text == "3th inging at rank 259"
