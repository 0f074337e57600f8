"""Two tokenisations of the same bytes, side by side: where both have a border, and what lies between."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Tokens = Sequence[tuple[int, bytes]]
"""Ids, each with the bytes of its token."""


@dataclass(frozen=True)
class Span:
    """Bytes between two borders that both tokenisations have, with no such border inside.

    Attributes:
        start: offset of the first byte.
        end: offset behind the last byte.
        first: the ids that the first tokenisation has there.
        second: the ids of the second.
    """

    start: int
    end: int
    first: tuple[int, ...]
    second: tuple[int, ...]

    @property
    def is_equal(self) -> bool:
        """Whether both have the same ids there."""
        return self.first == self.second


def common_spans(first: Tokens, second: Tokens) -> Iterator[Span]:
    """The shortest spans that both tokenisations cover with whole tokens, in order.

    Raises:
        ValueError: the two do not spell the same bytes; the message names the first byte that differs.
    """
    _check_same_bytes(b"".join(data for _, data in first), b"".join(data for _, data in second))
    places, ends, start = [0, 0], [0, 0], 0
    ids: tuple[list[int], list[int]] = ([], [])
    while places[0] < len(first) or places[1] < len(second):
        side = 0 if places[1] == len(second) or (places[0] < len(first) and ends[0] <= ends[1]) else 1
        id, data = (first, second)[side][places[side]]
        ids[side].append(id)
        places[side] += 1
        ends[side] += len(data)
        if ends[0] == ends[1]:
            yield Span(start, ends[0], tuple(ids[0]), tuple(ids[1]))
            start, ids = ends[0], ([], [])


def _check_same_bytes(first: bytes, second: bytes) -> None:
    if first != second:
        pairs = zip(first, second, strict=False)
        place = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))
        raise ValueError(f"the two tokenisations spell different texts: they differ from byte {place} on")
