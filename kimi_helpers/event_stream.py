"""Framing of server-sent events, on bytes.

Source: the `text/event-stream` format of the WHATWG HTML standard (section 9.2.6), with two choices of our own.
Bytes are never decoded here, so no character of a text can end a line: only CR, LF and CRLF do, and U+0085,
U+2028 and the other borders of `str.splitlines` stay inside their event. And an event that the end of the stream
left without its blank line is handed out by `close`, not thrown away: the caller knows that it may be cut.
"""

import re

BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_LINE_END = re.compile(rb"\r\n|\r|\n")


class EventParser:
    """Turns the chunks of a stream into the payloads of its events, wherever the chunks were cut.

    A payload is the bytes of an event's `data` lines, joined by LF. Comments (keep-alive padding), other fields
    and events without data give nothing. A payload may be empty.
    """

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._after_cr = False
        self._at_start = True

    def feed(self, chunk: bytes) -> list[bytes]:
        """The payloads of the events that this chunk completes, in order."""
        if not chunk:
            return []
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]  # the second half of a CRLF whose CR has ended its line already
            self._after_cr = False
        if chunk:
            self._after_cr = chunk.endswith(b"\r")
        *ended, rest = _LINE_END.split(chunk)
        payloads = []
        for piece in ended:
            self._line.append(piece)
            payloads += self._end_line()
        self._line.append(rest)
        return payloads

    def close(self) -> list[bytes]:
        """The payload, if any, of the event that the end of the stream left without its blank line."""
        return self._end_line() + self._end_event()

    def _end_line(self) -> list[bytes]:
        line = b"".join(self._line)
        self._line = []
        if self._at_start:
            line = line.removeprefix(BYTE_ORDER_MARK)
            self._at_start = False
        if not line:
            return self._end_event()
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
        return []

    def _end_event(self) -> list[bytes]:
        payloads = [b"\n".join(self._data)] if self._data else []
        self._data = []
        return payloads


def parse_events(body: bytes) -> list[bytes]:
    """The payloads of a whole stream, the last one whether or not its blank line came."""
    parser = EventParser()
    return parser.feed(body) + parser.close()
