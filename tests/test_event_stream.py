"""Framing of server-sent events."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kimi_helpers.event_stream import EventParser, parse_events

LINE_ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])
# Characters at which str.splitlines cuts, characters whose UTF-8 holds byte 0x85, and a byte order mark.
TEXTS = st.text(st.sampled_from("ab :\u0085\u2028\u2029\x0b\x0c\x1c\x1d\x1e挑辅é\ufeff"), max_size=6)
PIECES = st.sampled_from(
    [
        *(b"data", b"data:", b"data: x", b"event: error", b": note", b" "),
        *(b"\n", b"\r", b"\r\n", b"\xef\xbb\xbf", "挑衅\u2028".encode(), b"\xff"),
    ]
)


@pytest.mark.parametrize(
    ("body", "payloads"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\rdata: b\r\rdata: c\r\n\r\n", [b"a\nb", b"c"]),
        (b"data:a\n\n", [b"a"]),
        (b"data:  a \n\n", [b" a "]),
        (b"data\n\ndata:\ndata:\n\n", [b"", b"\n"]),
        (b": note\n\n:\n\nevent: e\nid: 1\nretry: 9\nother: x\ndata: a\n\n", [b"a"]),
        (b"event: e\n\n\n\n", []),
        (b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n", [b"a"]),
        ("data: a\u2028b\u0085c\x1cd\x0be\n\n".encode(), ["a\u2028b\u0085c\x1cd\x0be".encode()]),
        (b"data: [DONE]", [b"[DONE]"]),
        (b"data: a\n", [b"a"]),
        (b"", []),
    ],
)
def test_payloads_of_a_whole_stream(body: bytes, payloads: list[bytes]) -> None:
    assert parse_events(body) == payloads


def test_an_event_is_given_with_its_blank_line_and_the_unfinished_one_on_close() -> None:
    parser = EventParser()
    assert parser.feed(b"data: one\n") == []
    assert parser.feed(b"\nda") == [b"one"]
    assert parser.feed(b"ta: two") == []
    assert parser.close() == [b"two"]


def test_a_blank_line_that_ends_in_cr_gives_its_event_at_once() -> None:
    parser = EventParser()
    assert parser.feed(b"data: one\r\n\r") == [b"one"]
    assert parser.feed(b"") == []
    assert parser.feed(b"\ndata: two\r") == []
    assert parser.feed(b"\n") == []
    assert parser.feed(b"\r") == [b"two"]
    assert parser.feed(b"\n") == []
    assert parser.close() == []


@settings(deadline=None)
@given(pieces=st.lists(PIECES, max_size=14), data=st.data())
def test_chunk_borders_change_nothing(pieces: list[bytes], data: st.DataObject) -> None:
    body = b"".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=8)))
    parser = EventParser()
    payloads = []
    for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True):
        payloads += parser.feed(body[start:end])
    assert payloads + parser.close() == parse_events(body)


@settings(deadline=None)
@given(events=st.lists(st.lists(TEXTS, min_size=1, max_size=3), max_size=4), end=LINE_ENDS)
def test_what_was_framed_comes_back(events: list[list[str]], end: bytes) -> None:
    frames = [b"".join(b"data: " + line.encode() + end for line in lines) + end for lines in events]
    payloads = ["\n".join(lines).encode() for lines in events]
    assert parse_events((b": note" + end).join([b"", *frames])) == payloads
