"""Which ordinary ids a text can produce, with a text that does; which none can, and the rule that hides each.

The split pattern cuts a text into pieces. tiktoken gives a piece that is a token by itself as that token, and else
merges its bytes, the lowest rank first. So an id can be hidden by UTF-8 (no text holds its bytes), by the pattern
(its bytes are never in one piece) or by merges (its bytes always merge otherwise).
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import islice, product

from kimi_helpers.split_pattern import SplitPattern
from kimi_helpers.token_classes import decode_whole
from kimi_helpers.vocabulary import Vocabulary

MOST_TEXTS = 20_000
_CONTINUATION = range(0x80, 0xC0)
_LEADS = {2: range(0xC2, 0xE0), 3: range(0xE0, 0xF0), 4: range(0xF0, 0xF5)}
_BEFORE = ("", "!", "a", "A", "1", " ", "\n", "中", " a")
_AFTER = ("", "a", "A", "d", "D", "1", "!", " ", "\n", "中", "'", "\u0301")

NOT_UTF8 = "UTF-8: no text holds these bytes"
MERGED_ON = "pattern and merges: of the characters that its last byte can begin, each is split off or merges with it"
NOT_FOUND = "no text found that gives it"


def merge_path(ranks: Mapping[bytes, int], data: bytes) -> list[list[bytes]]:
    """How one piece is merged: its parts at the start (single bytes) and after each merge.

    At each step the neighbours with the lowest rank become one, the leftmost of equals. A piece that is a token needs
    no merge in tiktoken; its path is how a tokenizer without that short cut would come to it.
    """
    parts = [data[place : place + 1] for place in range(len(data))]
    path = [list(parts)]
    while len(parts) > 1:
        rank, place = min((ranks.get(parts[i] + parts[i + 1], len(ranks)), i) for i in range(len(parts) - 1))
        if rank == len(ranks):
            break
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
        path.append(list(parts))
    return path


def rank_table(vocabulary: Vocabulary) -> dict[bytes, int]:
    """Bytes -> id of every ordinary token."""
    return {vocabulary.token_bytes(id): id for id in range(vocabulary.ranks)}


@dataclass(frozen=True)
class Reach:
    """What is known of one id.

    Attributes:
        witness: a text whose ids hold it, or None.
        rule: why there is none, or "".
        tried: how many texts were encoded to find out.
    """

    witness: str | None
    rule: str
    tried: int


@dataclass(frozen=True, eq=False)
class Reachability:
    """Looks for texts that produce an id of one vocabulary; in the same order each time.

    Attributes:
        vocabulary: whose ids.
        ranks: its `rank_table`.
    """

    vocabulary: Vocabulary
    ranks: Mapping[bytes, int]

    def find(self, id: int) -> Reach:
        """A text that produces an ordinary id, or the rule that hides it."""
        data = self.vocabulary.token_bytes(id)
        tried = 0
        for tried, text in enumerate(islice(candidate_texts(data), MOST_TEXTS), 1):
            if id in self.vocabulary.encoding.encode_ordinary(text):
                return Reach(text, "", tried)
        if not tried:
            return Reach(None, NOT_UTF8, 0)
        return Reach(None, MERGED_ON if self.is_merged_on(data) else NOT_FOUND, tried)

    def is_merged_on(self, data: bytes) -> bool:
        """Whether merges hide a token that ends in the first byte of a character of two bytes.

        The text goes on with that character's second byte. A character that the pattern splits off is never in one
        piece with the rest of the token. Of the others, the second byte merges with the first before the token arises,
        or with the token after it: both at a lower rank than any merge that the second byte could make to its right.
        """
        before = decode_whole(data[:-1])
        if not before or data[-1] not in _LEADS[2]:
            return False
        none = len(self.ranks)
        rank = self.ranks[data]
        for byte in map(bytes, zip(_CONTINUATION, strict=True)):
            character = (data[-1:] + byte).decode()
            if self._splits(before[-1], character):
                continue
            pair, longer = (self.ranks.get(start + byte, none) for start in (data[-1:], data))
            right = self._lowest_to_the_right(character)
            if not (pair < min(rank, right) or max(rank, longer) < right):
                return False
        return True

    def _lowest_to_the_right(self, character: str) -> int:
        """The lowest rank at which the last byte of a character can merge with what follows in one piece."""
        last = character.encode()[-1]
        for rank, after in self._starts.get(last, ()):
            following = after.decode("utf-8", errors="ignore")
            if not following or not self._splits(character, following[0]):
                return rank
        return len(self.ranks)

    @cached_property
    def _starts(self) -> dict[int, list[tuple[int, bytes]]]:
        """For each byte that ends a character the tokens that go on with another: rank and other bytes, by rank."""
        starts: dict[int, list[tuple[int, bytes]]] = {}
        for token, rank in sorted(self.ranks.items(), key=lambda item: item[1]):
            if len(token) > 1 and token[0] in _CONTINUATION and token[1] not in _CONTINUATION:
                starts.setdefault(token[0], []).append((rank, token[1:]))
        return starts

    def _splits(self, left: str, right: str) -> bool:
        """Whether the pattern puts a border between the two characters in every frame.

        In Kimi's pattern no branch lets an upper-case letter follow a lower-case one, so there frames change nothing.
        """
        pattern = SplitPattern(self.vocabulary.pattern)
        texts = ((before + left, right + after) for before in _BEFORE for after in _AFTER)
        return all(len(start) in pattern.borders(start + end) for start, end in texts)


def candidate_texts(data: bytes) -> Iterator[str]:
    """Texts that hold these bytes, completed to whole characters, alone and in frames. None: no UTF-8 holds them."""
    whole = decode_whole(data)
    for after in _AFTER:
        for before in _BEFORE:
            texts = _completed(data) if whole is None else [whole]
            yield from (before + text + after for text in texts)


def _completed(data: bytes) -> Iterator[str]:
    """The bytes made whole at both ends, in as many ways as are tried: drawn at random, always the same."""
    start = next((place for place, byte in enumerate(data) if byte not in _CONTINUATION), len(data))
    end = next((place for place in range(len(data), start, -1) if _is_cut(data[place - 1 :])), len(data) + 1) - 1
    if decode_whole(data[start:end]) is None:
        return
    heads, tails = _whole_before(data[:start]), _whole_after(data[end:])
    count = len(heads) * len(tails)
    rng = random.Random(0)
    places = rng.sample(range(count), count) if count <= MOST_TEXTS else (rng.randrange(count) for _ in range(count))
    for place in islice(places, MOST_TEXTS):
        yield heads[place // len(tails)] + data[start:end].decode() + tails[place % len(tails)]


def _size(lead: int) -> int:
    """Bytes of the character that a lead byte begins; 0 where none does."""
    return next((size for size, leads in _LEADS.items() if lead in leads), 0)


def _is_cut(data: bytes) -> bool:
    """Whether these are the first bytes of one character, and not all of them."""
    return len(data) < _size(data[0]) and all(byte in _CONTINUATION for byte in data[1:])


@cache
def _whole_before(end: bytes) -> list[str]:
    """The characters that end in these continuation bytes."""
    if not end:
        return [""]
    starts = (
        bytes((lead, *middle))
        for size, leads in _LEADS.items()
        if size > len(end)
        for lead in leads
        for middle in product(_CONTINUATION, repeat=size - 1 - len(end))
    )
    return [char for start in starts if (char := decode_whole(start + end)) is not None]


@cache
def _whole_after(start: bytes) -> list[str]:
    """The characters that begin with these bytes."""
    if not start:
        return [""]
    rests = product(_CONTINUATION, repeat=_size(start[0]) - len(start))
    return [char for rest in rests if (char := decode_whole(start + bytes(rest))) is not None]
