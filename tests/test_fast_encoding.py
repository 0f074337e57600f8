"""gigatoken held to tiktoken: characters of new Unicode versions, surrogates, and what no pattern matcher can take."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_helpers.fast_encoding import Encode, fast_encoder, find_disputes, reference_encoder, utf8
from kimi_helpers.vocabulary import Vocabulary, reference_ids

# letters, a mark and Han characters that came with Unicode 17
NEW = ("\u088f", "\u0c5c", "\u1acf", "\ua7d2", "\U00016ea0", "\U0002b73a", "\U000323b0", "\U00033479")


@pytest.fixture(scope="module")
def fast(kimi: Vocabulary) -> Encode:
    return fast_encoder(kimi)


def as_lists(encode: Encode, texts: Sequence[str]) -> list[list[int]]:
    ids, counts = encode([utf8(text) for text in texts])
    return [row.tolist() for row in np.split(ids, counts.cumsum()[:-1])]


def test_known_ids(fast: Encode) -> None:
    texts = ["don't", "", "中\n文", "<think>", "<|im_end|>"]
    rows = fast([text.encode() for text in texts])
    assert as_lists(fast, texts) == [[88709], [], [435, 198, 908], [27, 39964, 29], [27, 91, 348, 11129, 91, 29]]
    assert rows[0].dtype == np.int32
    assert rows[1].dtype == np.int64


@pytest.mark.parametrize("char", NEW)
@pytest.mark.parametrize("frame", ["{}'d", "1{}23", " {}", "A{}'LL b", "漢{}'s", "x {} \n{}"])
def test_a_new_character_is_read_as_tiktoken_reads_it(kimi: Vocabulary, fast: Encode, char: str, frame: str) -> None:
    texts = ["before", frame.replace("{}", char), "after"]
    assert as_lists(fast, texts) == [kimi.encode_unchunked(text) for text in texts]


def test_a_new_character_written_as_surrogates(kimi: Vocabulary, fast: Encode) -> None:
    texts = ["\ud888\udfb0'd"]
    assert texts[0].encode("utf-16", "surrogatepass").decode("utf-16") == "\U000323b0'd"
    assert as_lists(fast, texts) == [kimi.encode_unchunked("\U000323b0'd")]


@given(data=st.data(), before=st.text(), after=st.text())
def test_no_text_with_a_disputed_character_goes_unseen(
    fast: Encode, data: st.DataObject, before: str, after: str
) -> None:
    disputes = find_disputes()
    if not disputes.characters:
        pytest.skip("the installed gigatoken and tiktoken know the same Unicode")
    char = data.draw(st.sampled_from(sorted(disputes.characters)))
    texts = [utf8(text) for text in ("hello", before + char + after, "", "你好 🎉")]
    assert 1 in disputes.suspects(*fast(texts))


def test_ordinary_text_is_not_suspect(fast: Encode) -> None:
    texts = ["hello world", "你好，世界", "🎉 नमस्ते ไทย 한국어 ವನ್ నది 𝔄", ""]
    assert find_disputes().suspects(*fast([text.encode() for text in texts])) == []


@pytest.mark.parametrize(
    ("text", "repaired"),
    [("a\ud800b", "a\ufffdb"), ("\udc00", "\ufffd"), ("\ud83d\ude00 x", "😀 x"), ("\ud800\ud83d\ude00", "\ufffd😀")],
)
def test_surrogates(kimi: Vocabulary, fast: Encode, text: str, repaired: str) -> None:
    assert as_lists(fast, [text, "x"]) == [kimi.encode_unchunked(repaired), kimi.encode_unchunked("x")]


@pytest.mark.parametrize("blanks", [" " * 900_000, "\t \n" * 300_000])
def test_blanks_past_the_pattern_matcher_are_cut_as_officially(kimi: Vocabulary, fast: Encode, blanks: str) -> None:
    text = f"a{blanks}b"
    with pytest.raises(ValueError, match="blanks"):
        kimi.encode_unchunked(text)
    expected = [kimi.encode("x"), kimi.encode(text), kimi.encode("y")]
    assert as_lists(fast, ["x", text, "y"]) == expected
    assert as_lists(reference_encoder(kimi), ["x", text, "y"]) == expected


@pytest.mark.parametrize(
    "unit", ["a", "中", "\0", "\u0301", "7", ".", "\n", "👩‍👩‍👧", "\ud800", "don't ", "<|im_end|>"]
)
def test_a_million_of_one(kimi: Vocabulary, fast: Encode, unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    assert as_lists(fast, [text]) == [reference_ids(kimi, text)]


def test_a_document_that_is_split_among_threads(kimi: Vocabulary, fast: Encode) -> None:
    text = "It's 1234567 o'clock; <|im_end|> 中文 and   more\n\n" * 100_000
    assert as_lists(fast, [text]) == [kimi.encode_unchunked(text)]
