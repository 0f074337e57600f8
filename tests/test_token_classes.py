"""Classes, scripts and blocks of tokens."""

import pytest

from kimi_helpers.token_classes import TokenClass, block_of, class_of, script_of, text_class
from kimi_helpers.vocabulary import Vocabulary


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the", TokenClass.ordinary),
        (" 中", TokenClass.ordinary),
        ("x1", TokenClass.ordinary),
        ("  \n", TokenClass.whitespace),
        ("\u3000", TokenClass.whitespace),
        ("\x00", TokenClass.control),
        ("\u200b", TokenClass.control),
        ("a\u202e", TokenClass.control),
        ("012", TokenClass.digits),
        ("٣", TokenClass.ordinary),
        ("});", TokenClass.punctuation),
        ("⭐️", TokenClass.punctuation),
    ],
)
def test_class_of_a_text(text: str, expected: TokenClass) -> None:
    assert text_class(text) is expected


def test_special_and_partial_tokens(tiny: Vocabulary) -> None:
    end = tiny.special_id("<|im_end|>")
    classes = [class_of(tiny, id, tiny.token_bytes(id)) for id in (end, end + 1, 0xE4, 257)]
    assert classes == [
        TokenClass.special_named,
        TokenClass.special_reserved,
        TokenClass.partial,
        TokenClass.ordinary,
    ]


@pytest.mark.parametrize(
    ("text", "script", "block"),
    [
        (" the", "Latin", "Basic Latin"),
        ("，中文", "Han", "CJK Unified Ideographs"),
        ("aб", "mixed", "Basic Latin"),
        ("...", "Common", "Basic Latin"),
        (" 🎉", "Common", "Miscellaneous Symbols and Pictographs"),
        ("", "Common", ""),
    ],
)
def test_script_and_block(text: str, script: str, block: str) -> None:
    assert (script_of(text), block_of(text)) == (script, block)
