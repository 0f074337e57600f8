"""Which choices of a layout make the billed count: the search that the count decides.

Ids are kept as bytes, four to an id (little-endian int32): small, comparable, and joined without a loop.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kimi_helpers.formats import BEGIN_SECTION, END_THINK, Special
from kimi_helpers.readings import EndToken, Layout, Slot
from kimi_helpers.vocabulary import Vocabulary, reference_ids

MOST_READINGS = 8
ID_BYTES = 4

Encode = Callable[[str], bytes]
Ids = npt.NDArray[np.int32]

# A blank between two ASCII letters starts a piece of the split pattern whatever stands around it.
_CERTAIN_BORDER = re.compile(r"(?<=[A-Za-z]) (?=[A-Za-z])")
_END_CHARACTERS = 400


def packed(ids: Sequence[int]) -> bytes:
    """Ids as bytes."""
    return np.asarray(ids, dtype="<i4").tobytes()


def unpacked(data: bytes) -> Ids:
    """Bytes as ids, shape [n]."""
    return np.frombuffer(data, dtype="<i4")


def encoder_of(vocabulary: Vocabulary) -> Encode:
    """The vocabulary's own encoder of ordinary text. A completion is not cut into chunks, as prompts are.

    Only runs of blanks that are too long for one piece are cut: no model samples those.
    """
    return lambda text: packed(reference_ids(vocabulary, text))


@dataclass(frozen=True)
class Reading:
    """A layout with every choice made.

    Attributes:
        data: what the model sampled, the end-of-turn token included where it was sampled; packed ids.
        billed: the `completion_tokens` that the host states for it.
        end_token: whether the end-of-turn token was counted; `absent` where the reply was cut before it.
    """

    data: bytes
    billed: int
    end_token: EndToken

    @property
    def token_ids(self) -> Ids:
        """The ids, shape [n]."""
        return unpacked(self.data)


class _Chosen(NamedTuple):
    """A choice and those before it."""

    ids: bytes
    before: "_Chosen | None"


def _unlinked(chosen: _Chosen | None) -> list[bytes]:
    ids = []
    while chosen:
        ids.append(chosen.ids)
        chosen = chosen.before
    return ids[::-1]


@dataclass(frozen=True)
class Choices:
    """A layout in token ids.

    Attributes:
        parts: for each part its alternatives, packed ids, plainest first; a special token has one.
        layout: where they come from.
    """

    parts: tuple[tuple[bytes, ...], ...]
    layout: Layout

    @property
    def end_uncounted(self) -> int:
        """1 where the end-of-turn token was sampled and not billed."""
        return self.layout.end_token == "not counted"

    @property
    def _has_no_choice(self) -> bool:
        return all(len(alternatives) == 1 for alternatives in self.parts)

    def plain(self) -> Reading:
        """The reading that takes the plainest source everywhere."""
        return self._reading([alternatives[0] for alternatives in self.parts])

    def fewest(self) -> int:
        """The smallest count that any reading makes."""
        fewest = [min(self._counted(place, ids) for ids in each) for place, each in enumerate(self.parts)]
        return sum(fewest) - self.end_uncounted

    def makes(self, billed: int) -> bool:
        """Whether some reading makes a count."""
        wanted = billed + self.end_uncounted
        if self._has_no_choice:
            return self._plain_count() == wanted
        return wanted >= 0 and bool(self._reachable(None)[0] >> wanted & 1)

    def fitting(self, billed: int, reasoned: int | None = None) -> Iterator[Reading]:
        """All readings that make the billed count, plainest first.

        Args:
            billed: `completion_tokens`.
            reasoned: the count of the reasoning that they have to make too (see `_reasoning_parts`); None for any.
        """
        if self._has_no_choice:
            yield from self._plain_if(billed, reasoned)
            return
        wanted = billed + self.end_uncounted
        behind = None if reasoned is None else wanted - reasoned
        most = sum(max(self._counted(place, ids) for ids in each) for place, each in enumerate(self.parts))
        if 0 <= wanted <= most and (behind is None or 0 <= behind <= most):
            for chosen in self._choose(wanted, behind):
                yield self._reading(chosen)

    def _plain_if(self, billed: int, reasoned: int | None) -> Iterator[Reading]:
        """The one reading of a layout without choices, if it makes the counts."""
        if self._plain_count() - self.end_uncounted == billed and (reasoned is None or self._thought() == reasoned):
            yield self.plain()

    def _plain_count(self) -> int:
        return sum(self._counted(place, each[0]) for place, each in enumerate(self.parts))

    def _thought(self) -> int:
        before = self._reasoning_parts()
        return sum(self._counted(place, each[0]) for place, each in enumerate(self.parts[:before]))

    def _reasoning_parts(self) -> int:
        """How many parts there are up to and with `</think>`, or up to a tool section, or all: most hosts call their
        tokens reasoning tokens."""
        for place, part in enumerate(self.layout.parts):
            if part in (Special(END_THINK), Special(BEGIN_SECTION)):
                return place + (part == Special(END_THINK))
        return len(self.parts)

    def _reachable(self, behind: int | None) -> list[int]:
        """For each place, how many counted tokens the parts from there on can make: bit n is set where n.

        Args:
            behind: how many those behind the reasoning have to make; None for any number.
        """
        border = self._reasoning_parts()
        reachable: list[int] = []
        for place in range(len(self.parts), -1, -1):
            here = 0 if reachable else 1
            for size in {self._counted(place, ids) for ids in self.parts[place]} if reachable else ():
                here |= reachable[-1] << size
            reachable.append(here & 1 << behind if behind is not None and place == border else here)
        return reachable[::-1]

    def _counted(self, place: int, ids: bytes) -> int:
        return 0 if place in self.layout.uncounted else len(ids) // ID_BYTES

    def _choose(self, wanted: int, behind: int | None) -> Iterator[list[bytes]]:
        """One alternative of each part, `wanted` counted tokens together; depth first, without recursion."""
        reachable = self._reachable(behind)
        # what is left to make, the place, and the choices up to there, last first, as links: lists would be copied
        pending: list[tuple[int, int, _Chosen | None]] = [(wanted, 0, None)]
        while pending:
            left, place, chosen = pending.pop()
            if left < 0 or not reachable[place] >> left & 1:
                continue
            if place == len(self.parts):
                yield _unlinked(chosen)
                continue
            pending += [
                (left - self._counted(place, ids), place + 1, _Chosen(ids, chosen))
                for ids in reversed(self.parts[place])
            ]

    def _reading(self, chosen: Sequence[bytes]) -> Reading:
        counted = sum(self._counted(place, ids) for place, ids in enumerate(chosen))
        return Reading(b"".join(chosen), counted - self.end_uncounted, self.layout.end_token)


def in_ids(layout: Layout, vocabulary: Vocabulary, encode: Encode) -> Choices:
    """A layout with its sources encoded, each on its own."""
    return Choices(tuple(_alternatives(part, vocabulary, encode) for part in layout.parts), layout)


def _alternatives(part: Special | Slot, vocabulary: Vocabulary, encode: Encode) -> tuple[bytes, ...]:
    if isinstance(part, Special):
        return (vocabulary.special_id(part.text).to_bytes(ID_BYTES, "little"),)
    if len(part.sources) == 1:
        return (encode(part.sources[0]),)
    pieces = [source_pieces(source, part) for source in part.sources]
    return tuple(dict.fromkeys(b"".join(map(encode, of_source)) for of_source in pieces))


def source_pieces(source: str, slot: Slot) -> tuple[str, ...]:
    """What is to be encoded for a source: all of it; start, middle and end where the slot has other sources too.

    The sources of a slot differ at their ends, so an encoder that remembers encodes the middle once.
    """
    if len(slot.sources) == 1:
        return (source,)
    first = _CERTAIN_BORDER.search(source)
    last = [match.start() for match in _CERTAIN_BORDER.finditer(source, max(0, len(source) - _END_CHARACTERS))]
    if first is None or not last or last[-1] <= first.start():
        return (source,)
    return (source[: first.start()], source[first.start() : last[-1]], source[last[-1] :])
