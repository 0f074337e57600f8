"""The bulk encoder: equal to tiktoken on wild text, checked on every batch, bounded in memory."""

import random
from collections.abc import Sequence
from itertools import count, pairwise

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from kimi_helpers import bulk_encoding
from kimi_helpers.bulk_encoding import BulkEncoder, EncoderMismatch
from kimi_helpers.fast_encoding import Encode, Rows, fast_encoder, reference_encoder
from kimi_helpers.vocabulary import Vocabulary, reference_ids

FRAGMENTS = (
    "<|im_end|>", "<|im_user|>", "<think>", "</think>", "[BOS]", "[EOS]", "<|tool_calls_section_begin|>", "<|im_",
    "<|reserved_token_163700|>", "'s", "'S", "'ſ", "'ll", "'LL", "'d", "'re", "'VE", "’s", "ſ", "K", "İ", "ß", "ǅ", "ʰ",
    "〇", "々", "中", "漢字", "あ", "한", "\u1100\u1161", "e\u0301", "\u0301", "\u094d", "ไทย", "شكرا", "🇨🇭", "👩‍👩‍👧",
    "\u200d", "\ufeff", "\u00a0", "\u3000", "\u2028", "\u0085", "\x1c", "\x00", "\r", "\n", "\r\n", " ", "  ", "\t",
    " \n ", "}\n///", "...", "$", "1", "1234", "½", "٣", "a", "aB", "AB", "Hello", "HTTPServer", "_", "\ud800",
    "\udc00", "\ud83d\ude00", "\ud888\udfb0", "\U000323b0", "\u0c5c", "\U0010ffff", "\ue000",
)  # fmt: skip
WILD = st.lists(
    st.one_of(
        st.sampled_from(FRAGMENTS),
        st.text(st.characters(), max_size=5),
        st.builds(str.__mul__, st.sampled_from(FRAGMENTS), st.integers(1, 300)),
    ),
    max_size=12,
).map("".join)


@pytest.fixture(scope="module")
def bulk(kimi: Vocabulary) -> BulkEncoder:
    return BulkEncoder(kimi)


def as_lists(ids: NDArray[np.int32], offsets: NDArray[np.int64]) -> list[list[int]]:
    return [ids[start:end].tolist() for start, end in pairwise(offsets)]


@given(texts=st.lists(WILD, max_size=20))
def test_equal_to_tiktoken_on_wild_text(kimi: Vocabulary, bulk: BulkEncoder, texts: list[str]) -> None:
    assert as_lists(*bulk.encode(texts)) == [kimi.encoding.encode_ordinary(text) for text in texts]


@given(texts=st.lists(st.text(), max_size=5))
def test_utf8_as_it_is(bulk: BulkEncoder, texts: list[str]) -> None:
    assert as_lists(*bulk.encode_utf8([text.encode() for text in texts])) == as_lists(*bulk.encode(texts))


def test_flat_ids_and_offsets(bulk: BulkEncoder) -> None:
    ids, offsets = bulk.encode(["don't", "", "中\n文"])
    assert (ids.tolist(), offsets.tolist()) == ([88709, 435, 198, 908], [0, 1, 1, 4])
    assert ids.dtype == np.int32
    assert offsets.dtype == np.int64


@pytest.mark.parametrize("texts", [[], [""], ["", ""]])
def test_nothing_to_encode(bulk: BulkEncoder, texts: list[str]) -> None:
    ids, offsets = bulk.encode(texts)
    assert (ids.tolist(), offsets.tolist()) == ([], [0] * (len(texts) + 1))
    assert ids.dtype == np.int32
    assert offsets.dtype == np.int64


def test_long_text_is_one_piece(kimi: Vocabulary, bulk: BulkEncoder) -> None:
    text = "ab" * 20_000 + " " * 30_000
    assert as_lists(*bulk.encode([text])) == [kimi.encode_unchunked(text)]
    assert kimi.encode(text) != kimi.encode_unchunked(text)


@given(texts=st.lists(WILD, max_size=20), size=st.integers(1, 50))
def test_slices_change_nothing(kimi: Vocabulary, bulk: BulkEncoder, texts: list[str], size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk_encoding, "SLICE_BYTES", size)
        assert as_lists(*bulk.encode(texts)) == [kimi.encode_unchunked(text) for text in texts]


@given(texts=st.lists(WILD, max_size=5))
def test_another_vocabulary(tiny: Vocabulary, texts: list[str]) -> None:
    assert as_lists(*BulkEncoder(tiny).encode(texts)) == [tiny.encode_unchunked(text) for text in texts]


def broken(encode: Encode, place: int) -> Encode:
    """`encode`, but the last id of the text at `place` is one too high."""

    def wrong(texts: Sequence[bytes]) -> Rows:
        ids, counts = encode(texts)
        ids = ids.copy()
        ids[counts.cumsum()[place] - 1] += 1
        return ids, counts

    return wrong


def test_a_wrong_id_stops_the_batch(kimi: Vocabulary) -> None:
    encoder = BulkEncoder(kimi, check_share=1, build=lambda: broken(fast_encoder(kimi), 1))
    with pytest.raises(EncoderMismatch) as caught:
        encoder.encode(["fine", "中\n\x1b文", "fine"])
    message = str(caught.value)
    assert kimi.encode("中\n\x1b文") == [435, 198, 215, 908]
    assert message.startswith("text 1 of the batch, token 3: the bulk encoder gives [909] and tiktoken [908], which is")
    assert r"'\u6587'" in message
    assert message.isascii()
    assert "\x1b" not in message


def test_missing_ids_stop_the_batch(kimi: Vocabulary) -> None:
    def short(texts: Sequence[bytes]) -> Rows:
        ids, counts = reference_encoder(kimi)(texts)
        return ids[:-1], counts - np.eye(len(counts), dtype=np.int64)[-1]

    with pytest.raises(EncoderMismatch, match=r"text 1 of the batch, token 1: the bulk encoder gives \[\] and"):
        BulkEncoder(kimi, check_share=1, build=lambda: short).encode(["fine", "hello world"])


def test_a_missing_row_stops_the_batch(kimi: Vocabulary) -> None:
    def without_last(texts: Sequence[bytes]) -> Rows:
        return reference_encoder(kimi)(texts[:-1])

    with pytest.raises(EncoderMismatch, match="gave 1 rows of 1 ids together for 2 texts"):
        BulkEncoder(kimi, build=lambda: without_last).encode(["fine", "fine"])


@pytest.mark.parametrize(("size", "checked"), [(1, 1), (99, 1), (100, 1), (101, 2), (1000, 10)])
def test_a_share_and_at_least_one_is_checked(
    bulk: BulkEncoder, monkeypatch: pytest.MonkeyPatch, size: int, checked: int
) -> None:
    seen: list[str] = []

    def recorded(vocabulary: Vocabulary, text: str) -> list[int]:
        seen.append(text)
        return reference_ids(vocabulary, text)

    monkeypatch.setattr(bulk_encoding, "reference_ids", recorded)
    texts = [f"text {place}" for place in range(size)]
    bulk.encode(texts)
    assert len(set(seen)) == len(seen) == checked


def test_the_check_draws_anew_and_the_same_in_every_run(kimi: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn() -> list[str]:
        seen: list[str] = []

        def recorded(vocabulary: Vocabulary, text: str) -> list[int]:
            seen.append(text)
            return reference_ids(vocabulary, text)

        monkeypatch.setattr(bulk_encoding, "reference_ids", recorded)
        encoder = BulkEncoder(kimi)
        for _ in range(8):
            encoder.encode([f"text {place}" for place in range(50)])
        return seen

    first = drawn()
    assert first == drawn()
    assert len(first) == 8
    assert len(set(first)) > 4


@pytest.mark.parametrize("share", [0, -0.1, 1.1, float("nan")])
def test_a_share_that_is_none(kimi: Vocabulary, share: float) -> None:
    with pytest.raises(ValueError, match="check_share"):
        BulkEncoder(kimi, check_share=share)


def new_words(megabytes: int) -> list[str]:
    """Texts of 8 kB of random letters, a blank in eight: nearly no word comes twice."""
    table = bytes(ord(" ") if value < 32 else ord("a") + value % 26 for value in range(256))
    rng = random.Random(0)
    return [rng.randbytes(8_000).translate(table).decode() for _ in range(megabytes * 125)]


def test_memory_is_bounded(kimi: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a bound these 60 MB of new words grow the process by half a gigabyte."""
    monkeypatch.setattr(bulk_encoding, "CACHE_BYTES", 100_000_000)
    monkeypatch.setattr(bulk_encoding, "SLICE_BYTES", 4_000_000)
    builds = count()

    def counted() -> Encode:
        next(builds)
        return fast_encoder(kimi)

    texts = new_words(60)
    encoder = BulkEncoder(kimi, build=counted)
    process = psutil.Process()
    start = process.memory_info().rss
    grown = []
    for first in range(0, len(texts), 500):
        encoder.encode(texts[first : first + 500])
        grown.append(process.memory_info().rss - start)
    assert next(builds) >= 3
    assert max(grown) < 350_000_000
