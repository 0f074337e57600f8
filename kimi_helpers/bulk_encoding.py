"""Very many texts -> token ids: fast, in flat arrays, in bounded memory, held to tiktoken by a sample of every batch.

Every text is encoded as one piece, as `Vocabulary.encode_unchunked` does. These are replies: an engine decoded them
from ids that the model sampled one after another, and nothing cut them on the way. The cuts of the official class
belong to what is encoded for a model to read, the prompt.
"""

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import psutil
from numpy.typing import NDArray

from kimi_helpers.fast_encoding import Encode, Rows, fast_encoder, reference_encoder, utf8
from kimi_helpers.vocabulary import Vocabulary, reference_ids

SLICE_BYTES = 1 << 24
CACHE_BYTES = 1 << 29


class EncoderMismatch(RuntimeError):
    """The bulk encoder gives a text other ids than tiktoken, so none of its ids can be trusted."""


class BulkEncoder:
    """Texts to ids as `Vocabulary.encode_unchunked` gives them: the spelling of a special token is ordinary text.

    Only a text whose run of blanks is too long for tiktoken's pattern matcher is cut as the official class cuts it.

    The fast encoder's cache grows with every new word. It is thrown away and built anew once the process has grown
    by `CACHE_BYTES` since, which is looked at every `SLICE_BYTES`; what one slice adds comes on top
    (`benchmarks/encoding.py --bound` measures both). Only Kimi's own ranks take the fast way; under any other
    vocabulary tiktoken encodes.

    An object is for one thread; a process that was forked needs its own.
    """

    def __init__(
        self, vocabulary: Vocabulary, check_share: float = 0.01, build: Callable[[], Encode] | None = None
    ) -> None:
        """Build the encoder.

        Args:
            vocabulary: whose ids.
            check_share: of every batch this share of texts, and at least one, is encoded by tiktoken too. Which
                ones is drawn from a fixed seed, so a run can be repeated. A small batch is checked dearly.
            build: makes the encoder that is checked; by default the fast one where the vocabulary allows it.

        Raises:
            ValueError: `check_share` is not above 0 and at most 1.
        """
        if not 0 < check_share <= 1:
            raise ValueError(f"check_share is {check_share}, not above 0 and at most 1.")
        self._vocabulary = vocabulary
        self._check_share = check_share
        self._build = build or partial(fast_encoder if vocabulary.is_kimi else reference_encoder, vocabulary)
        self._encode = self._build()
        self._floor = _resident_bytes()
        self._sampler = random.Random(0)

    def encode(self, texts: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Token ids of a batch; the larger the batch, the smaller the part that the check takes.

        Args:
            texts: any texts; a lone surrogate is encoded as U+FFFD, as tiktoken does.

        Returns:
            ids: those of all texts, one behind the other, shape [n].
            offsets: `ids[offsets[i] : offsets[i + 1]]` are those of text i, shape [len(texts) + 1].

        Raises:
            EncoderMismatch: a checked text has other ids under tiktoken. Nothing is returned then.
        """
        return self.encode_utf8([utf8(text) for text in texts])

    def encode_utf8(self, texts: Sequence[bytes]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """`encode` of texts that are UTF-8 already, as files and columns hold them; it has to be valid."""
        ids, counts = [np.empty(0, np.int32)], [np.zeros(1, np.int64)]
        for part in _slices(texts):
            part_ids, part_counts = self._encode_slice(part)
            ids.append(part_ids)
            counts.append(part_counts)
        flat, offsets = np.concatenate(ids), np.concatenate(counts).cumsum()
        self._check(texts, flat, offsets)
        return flat, offsets

    def _encode_slice(self, texts: Sequence[bytes]) -> Rows:
        used = _resident_bytes()
        self._floor = min(self._floor, used)
        if used - self._floor > CACHE_BYTES:
            del self._encode  # before the next one takes memory
            self._encode = self._build()
            self._floor = _resident_bytes()
        return self._encode(texts)

    def _check(self, texts: Sequence[bytes], ids: NDArray[np.int32], offsets: NDArray[np.int64]) -> None:
        if len(offsets) != len(texts) + 1 or offsets[-1] != len(ids):
            raise EncoderMismatch(
                f"the bulk encoder gave {len(offsets) - 1} rows of {offsets[-1]} ids together for {len(texts)} texts"
                f" and {len(ids)} ids."
            )
        size = math.ceil(self._check_share * len(texts))
        for place in sorted(self._sampler.sample(range(len(texts)), size)):
            found = ids[offsets[place] : offsets[place + 1]].tolist()
            expected = reference_ids(self._vocabulary, texts[place].decode())
            if found != expected:
                raise EncoderMismatch(self._difference(place, found, expected))

    def _difference(self, place: int, found: list[int], expected: list[int]) -> str:
        pairs = enumerate(zip(found, expected, strict=False))
        first = next((i for i, (one, other) in pairs if one != other), min(len(found), len(expected)))
        part = slice(first, first + 6)
        return (
            f"text {place} of the batch, token {first}: the bulk encoder gives {found[part]} and tiktoken"
            f" {expected[part]}, which is {self._vocabulary.decode(expected[part])!a}. Trust no ids of this"
            " encoder; install the gigatoken that pyproject.toml names, or encode with Vocabulary.encode_unchunked."
        )


def _slices(texts: Iterable[bytes]) -> Iterator[list[bytes]]:
    """`texts` in order, a list of them about every `SLICE_BYTES`."""
    part: list[bytes] = []
    size = 0
    for text in texts:
        part.append(text)
        size += len(text)
        if size >= SLICE_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def _resident_bytes() -> int:
    return psutil.Process().memory_info().rss
