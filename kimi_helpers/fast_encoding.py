"""gigatoken made to agree with tiktoken under Kimi's ranks.

The two differ in one thing: each carries its own version of Unicode, so a character of the newest version is a
letter to one and unassigned to the other, and the split around it differs. Which characters these are is found by
asking both. A text that holds one is encoded by tiktoken.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import gigatoken
import numpy as np
from numpy.typing import NDArray

from kimi_helpers.rank_files import packaged_rank_path
from kimi_helpers.vocabulary import MATCHABLE_BLANKS, Vocabulary, has_endless_blanks, load_vocabulary, reference_ids

Rows = tuple[NDArray[np.int32], NDArray[np.int64]]
"""The ids of several texts, one behind the other, and how many are each text's."""
Encode = Callable[[Sequence[bytes]], Rows]
"""The ids of texts in UTF-8."""

_PLANES = (0, 1, 2, 3, 14)  # the others hold private characters or none
_BLOCK = 256


def reference_encoder(vocabulary: Vocabulary) -> Encode:
    """tiktoken, for any vocabulary."""
    return lambda texts: _joined([np.array(reference_ids(vocabulary, text.decode()), np.int32) for text in texts])


def fast_encoder(vocabulary: Vocabulary) -> Encode:
    """gigatoken, on all cores, for a vocabulary of Kimi's ranks.

    It always reads the special tokens that it is given, so it is given none: their spellings are ordinary text.

    Raises:
        VocabularyError: as `packaged_rank_file`.
    """
    disputes = find_disputes()
    bare = _bare_encoder()

    def encode(texts: Sequence[bytes]) -> Rows:
        ids, counts = bare(texts)
        long = [place for place, text in enumerate(texts) if len(text) >= MATCHABLE_BLANKS]
        slow = {
            *disputes.suspects(ids, counts),
            *(place for place in long if has_endless_blanks(texts[place].decode())),
        }
        return _replaced(ids, counts, {place: reference_ids(vocabulary, texts[place].decode()) for place in slow})

    return encode


@dataclass(frozen=True, eq=False)
class Disputes:
    """The characters that gigatoken and tiktoken do not read alike, and where they show in token ids.

    A vocabulary holds none of them whole, or few: they are newer. So tokens tell at once which texts can hold one:
    a token that ends in the first bytes of one, before a token that starts with its next byte.

    Attributes:
        characters: each of them.
        ends: for every id, whether the token can stand first in such a pair, shape [ranks].
        starts: the first byte of every token, shape [ranks].
        pairs: id * 256 + next byte of every such pair.
    """

    characters: frozenset[str]
    ends: NDArray[np.bool_]
    starts: NDArray[np.uint8]
    pairs: NDArray[np.int32]

    def suspects(self, ids: NDArray[np.int32], counts: NDArray[np.int64]) -> list[int]:
        """Places of the texts that can hold such a character; the others cannot."""
        at = np.flatnonzero(self.ends[ids])
        following = self.starts[ids[np.minimum(at + 1, len(ids) - 1)]]
        at = at[np.isin(ids[at] * 256 + following, self.pairs)]
        places: list[int] = np.unique(np.searchsorted(counts.cumsum(), at, side="right")).tolist()
        return places


@cache
def find_disputes() -> Disputes:
    """Ask both about every character; the answer is the same for every vocabulary of Kimi's ranks."""
    vocabulary = load_vocabulary()
    characters = _disputed_characters(vocabulary, _bare_encoder())
    following: dict[bytes, set[int]] = {}
    for data in map(str.encode, characters):
        for length in range(1, len(data)):
            following.setdefault(data[:length], set()).add(data[length])
    tokens = [vocabulary.token_bytes(id) for id in range(vocabulary.ranks)]
    pairs = set()
    for id, token in enumerate(tokens):
        if not characters.isdisjoint(token.decode(errors="ignore")):
            pairs |= {(id, byte) for byte in range(256)}
        for length in (1, 2, 3):
            pairs |= {(id, byte) for byte in following.get(token[-length:], ())}
    ends = np.zeros(len(tokens), np.bool_)
    ends[[id for id, _ in pairs]] = True
    starts = np.array([token[0] for token in tokens], np.uint8)
    return Disputes(characters, ends, starts, np.array([id * 256 + byte for id, byte in pairs], np.int32))


def _disputed_characters(vocabulary: Vocabulary, bare: Callable[[Sequence[bytes]], Rows]) -> frozenset[str]:
    """The characters around which the two encode differently, as a letter, a digit, a Han or any other character."""

    def differing(groups: Iterable[str]) -> list[str]:
        probes = {group: "".join(f"{char}'d\n1{char}23\n {char}\n" for char in group) for group in groups}
        ids, counts = bare([utf8(probe) for probe in probes.values()])
        rows = np.split(ids, counts.cumsum()[:-1])
        expected = map(vocabulary.encode_unchunked, probes.values())
        return [group for group, row, other in zip(probes, rows, expected, strict=True) if row.tolist() != other]

    starts = [start for plane in _PLANES for start in range(plane << 16, (plane + 1) << 16, _BLOCK)]
    blocks = differing("".join(map(chr, range(start, start + _BLOCK))) for start in starts)
    return frozenset(differing(char for block in blocks for char in block) if blocks else ())


def _bare_encoder() -> Callable[[Sequence[bytes]], Rows]:
    tokenizer = gigatoken.Tokenizer.from_tiktoken(packaged_rank_path(), "kimi", {})

    def encode(data: Sequence[bytes]) -> Rows:
        rows = tokenizer.encode_batch(list(data)).layout
        # the buffers themselves: awkward's own flatten and num take as long as the encoder does
        offsets, ids = np.asarray(rows.offsets), np.asarray(rows.content.data)
        return ids[offsets[0] : offsets[-1]].view(np.int32), np.diff(offsets).astype(np.int64, copy=False)

    return encode


def utf8(text: str) -> bytes:
    """A text in UTF-8, half a surrogate pair as U+FFFD."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        # tiktoken's own repair: a surrogate pair is one character, a lone surrogate is U+FFFD
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _replaced(ids: NDArray[np.int32], counts: NDArray[np.int64], others: Mapping[int, list[int]]) -> Rows:
    """The rows, with other ids at some places."""
    if not others:
        return ids, counts
    rows = np.split(ids, counts.cumsum()[:-1])
    for place, other in others.items():
        rows[place] = np.array(other, np.int32)
    return _joined(rows)


def _joined(rows: Sequence[NDArray[np.int32]]) -> Rows:
    return np.concatenate(rows), np.array([len(row) for row in rows], np.int64)
