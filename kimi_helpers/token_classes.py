"""What kind of token an id is: by its bytes, its characters, their script and Unicode block."""

import unicodedata
from enum import StrEnum
from functools import cache

from fontTools.unicodedata import block, script, script_name

from kimi_helpers.vocabulary import Vocabulary

_EVERYWHERE = frozenset({"Zyyy", "Zinh"})  # Common and Inherited: punctuation, digits, emoji, marks
_BLANK_CONTROLS = frozenset("\t\n\v\f\r\x85")


class TokenClass(StrEnum):
    """The classes; each id has exactly one, the first that fits."""

    special_named = "special, named"
    special_reserved = "special, reserved"
    partial = "part of a character"
    whitespace = "blanks only"
    control = "holds a control or format character"
    digits = "ASCII digits only"
    punctuation = "no letter and no digit"
    ordinary = "text"


def decode_whole(data: bytes) -> str | None:
    """The text of `data`, or None where it is not whole characters."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def class_of(vocabulary: Vocabulary, id: int, data: bytes) -> TokenClass:
    """The class of one id, given its bytes."""
    if id in vocabulary.special_ids:
        named = data.decode() in vocabulary.named
        return TokenClass.special_named if named else TokenClass.special_reserved
    text = decode_whole(data)
    return TokenClass.partial if text is None else text_class(text)


def text_class(text: str) -> TokenClass:
    """The class of an ordinary token of whole characters."""
    if text.isspace():
        return TokenClass.whitespace
    if any(_is_control(char) for char in text):
        return TokenClass.control
    if text.isascii() and text.isdigit():
        return TokenClass.digits
    if not any(_is_word(char) for char in text):
        return TokenClass.punctuation
    return TokenClass.ordinary


@cache
def _is_control(char: str) -> bool:
    return unicodedata.category(char) in {"Cc", "Cf"} and char not in _BLANK_CONTROLS


@cache
def _is_word(char: str) -> bool:
    return unicodedata.category(char)[0] in "LN"


def script_of(text: str) -> str:
    """The one script of a text: `Latin`, `Han` ...; `Common` where it has none, `mixed` where it has several."""
    scripts = {name for char in text if (name := _script(char)) is not None}
    if len(scripts) > 1:
        return "mixed"
    return scripts.pop() if scripts else "Common"


@cache
def _script(char: str) -> str | None:
    code = script(char)
    return None if code in _EVERYWHERE else script_name(code)


def block_of(text: str) -> str:
    """The Unicode block of the first character that has a script of its own, else of the first that is no blank."""
    chars = [char for char in text if _script(char) is not None] or text.strip() or text
    return _block(chars[0]) if chars else ""


@cache
def _block(char: str) -> str:
    return str(block(char))
