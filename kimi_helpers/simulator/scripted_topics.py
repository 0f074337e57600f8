"""What a topic of the scripted model is, and how the slots in its texts are filled.

A slot is `⟦kind⟧`; `⟦kind:a⟧` has the same value wherever it stands in one text. So a few hundred texts of the
project's own become more replies than any run asks for.
"""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Topic:
    """A subject the model can talk about.

    Attributes:
        name: what it covers.
        cue: a regular expression; a user message that it finds asks for this topic.
        reasoning: sentences that a line of thought is put together from.
        answers: whole answers, or paragraphs of one.
    """

    name: str
    cue: str
    reasoning: tuple[str, ...]
    answers: tuple[str, ...]


WORDS: Mapping[str, Sequence[str]] = {
    "name": ("Marta", "José", "Aoife", "Tomáš", "Ngozi", "Li Wei", "Zoë", "Björn", "Priya", "O'Brien", "Katarzyna"),
    "city": ("Bergen", "Lima", "Zürich", "São Paulo", "Kraków", "New Orleans", "Reykjavík", "Hội An", "Port-au-Prince"),
    "thing": ("lantern", "kettle", "ferry", "umbrella", "ladder", "quilt", "anchor", "violin", "notebook", "windmill"),
    "material": ("copper", "oak", "wool", "granite", "glass", "linen", "brass", "cork", "clay", "slate"),
    "adjective": ("quiet", "narrow", "half-empty", "old-fashioned", "bright", "stubborn", "well-kept", "crooked"),
    "verb": ("merge", "count", "sort", "filter", "parse", "split", "reverse", "flatten", "hash", "batch"),
    "noun": ("orders", "intervals", "rows", "tokens", "edges", "payments", "users", "chunks", "records", "nodes"),
    "variable": ("total", "seen", "left", "buffer", "maxLen", "rowCount", "tmp_path", "acc", "i2", "_cache", "nextId"),
    "language": ("Go", "Rust", "Kotlin", "C++17", "TypeScript", "OCaml", "SQL", "bash", "Perl 5", "Zig"),
    "unit": ("km", "kg", "°C", "m/s", "kWh", "%", "µm", "GiB", "Ω", "m²"),
    "emoji": ("🎉", "🙂", "🐔", "👋🏽", "🕯️", "🚲", "🧑‍🍳", "🇨🇭", "🏳️‍🌈", "🫖", "❤️‍🔥", "🦜"),
    "人": ("李雷", "王小明", "张伟", "欧阳娜", "陈思远", "赵敏"),
    "城": ("杭州", "成都", "哈尔滨", "西安", "厦门", "乌鲁木齐"),
    "物": ("茶叶", "自行车", "毛笔", "雨伞", "竹篮", "陶罐", "豆腐", "灯笼"),
    "成语": ("画蛇添足", "守株待兔", "亡羊补牢", "塞翁失马", "掩耳盗铃", "井底之蛙"),
    "数": ("三", "七", "十二", "二十四", "一百零五", "两千"),
    "русское": ("река", "письмо", "снег", "чайник", "окно", "звёздочка"),
    "日本": ("電車", "コーヒー", "ひまわり", "図書館", "おにぎり", "桜並木"),
    "한국": ("도서관", "자전거", "바람", "김치찌개", "우산", "편지"),
    "world": ("ευχαριστώ", "شكرا جزيلا", "धन्यवाद", "ขอบคุณมาก", "תודה רבה", "Đà Nẵng", "Łódź", "þorn", "𓂀", "𝔄"),
}

NUMBERS: Mapping[str, Callable[[random.Random], str]] = {
    "digit": lambda draw: str(draw.randint(0, 9)),
    "n": lambda draw: str(draw.randint(2, 10 ** draw.randint(1, 6))),
    "decimal": lambda draw: f"{draw.uniform(0, 10 ** draw.randint(0, 4)):.{draw.randint(1, 5)}f}",
    "year": lambda draw: str(draw.randint(1066, 2031)),
    "date": lambda draw: f"{draw.randint(1990, 2031)}-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}",
    "thousands": lambda draw: f"{draw.randint(1000, 99_999_999):,}",
    "hex": lambda draw: f"0x{draw.getrandbits(draw.choice((8, 16, 32))):X}",
    "blanks": lambda draw: " " * draw.randint(2, 70),
    "newlines": lambda draw: "\n" * draw.randint(2, 9),
}

_SLOT = re.compile(r"⟦(\w+)(:\w)?⟧")


def fill(text: str, draw: random.Random) -> str:
    """The text with a value in every slot.

    Raises:
        KeyError: there are no values of a slot's kind.
    """
    bound: dict[str, str] = {}

    def value(slot: re.Match[str]) -> str:
        kind, label = slot[1], slot[2]
        if label and slot[0] in bound:
            return bound[slot[0]]
        drawn = NUMBERS[kind](draw) if kind in NUMBERS else draw.choice(WORDS[kind])
        return bound.setdefault(slot[0], drawn) if label else drawn

    return _SLOT.sub(value, text)
