"""Where a text may be cut: does `encode(a) + encode(b)` equal `encode(a + b)`? Rates by class of character."""

import random
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

import pandas as pd

from kimi_helpers.split_pattern import SplitPattern
from kimi_helpers.token_classes import script_of
from kimi_helpers.vocabulary import Vocabulary, chunk_borders

WINDOW = 400


class Cut(StrEnum):
    """What a cut does to the ids."""

    kept = "same ids"
    inside = "inside a piece: merges are stopped"
    moved = "at a border of the pattern that the cut moves"


@dataclass(frozen=True)
class BoundaryProbe:
    """One cut of one text.

    Attributes:
        left: class of the character before the cut.
        right: class of the one behind it.
        result: what the cut does.
    """

    left: str
    right: str
    result: Cut


@cache
def character_class(char: str) -> str:
    """A coarse class of a character: what the split pattern looks at."""
    if char in "\r\n":
        return "line break"
    if char.isspace():
        return "blank"
    if script_of(char) == "Han":
        return "Han"
    category = unicodedata.category(char)
    if category[0] == "L" or category[0] == "M":
        return {"Lu": "upper case", "Lt": "upper case", "Ll": "lower case"}.get(category, "other letter")
    return "digit" if category[0] == "N" else "other"


def probe(vocabulary: Vocabulary, before: str, after: str) -> BoundaryProbe:
    """Cut a text between `before` and `after`, neither of them empty."""
    whole = vocabulary.encode(before + after)
    left, right = character_class(before[-1]), character_class(after[0])
    if whole == vocabulary.encode(before) + vocabulary.encode(after):
        return BoundaryProbe(left, right, Cut.kept)
    at_border = len(before) in SplitPattern(vocabulary.pattern).borders(before + after)
    return BoundaryProbe(left, right, Cut.moved if at_border else Cut.inside)


def probe_texts(vocabulary: Vocabulary, texts: Sequence[str], count: int, seed: int = 0) -> list[BoundaryProbe]:
    """Cuts at random places of real texts, each with up to 400 characters on both sides."""
    rng = random.Random(seed)
    long_enough = [text for text in texts if len(text) > 1]
    probes = []
    for _ in range(count if long_enough else 0):
        text = rng.choice(long_enough)
        place = rng.randrange(1, len(text))
        probes.append(probe(vocabulary, text[max(0, place - WINDOW) : place], text[place : place + WINDOW]))
    return probes


def boundary_rates(probes: Sequence[BoundaryProbe]) -> pd.DataFrame:
    """A row for each pair of classes: cuts, changed ids, their rate with a 95 % interval (Wilson), and the reasons."""
    rows = pd.DataFrame([(p.left, p.right, p.result.value) for p in probes], columns=["left", "right", "result"])
    counts = rows.groupby(["left", "right", "result"]).size().unstack(fill_value=0)
    counts = counts.reindex(columns=[cut.value for cut in Cut], fill_value=0)
    n = counts.sum(axis=1)
    changed = n - counts[Cut.kept.value]
    table = pd.DataFrame({"cuts": n, "changed": changed, "rate": changed / n})
    table["from"], table["to"] = zip(*map(wilson, changed, n), strict=True) if len(table) else ([], [])
    table[Cut.inside.value], table[Cut.moved.value] = counts[Cut.inside.value], counts[Cut.moved.value]
    return table.sort_values("cuts", ascending=False)


def wilson(hits: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a rate (Wilson's score)."""
    rate, spread = hits / n, z * z / n
    middle, half = rate + spread / 2, z * ((rate * (1 - rate) + spread / 4) / n) ** 0.5
    return (max(0.0, (middle - half) / (1 + spread)), min(1.0, (middle + half) / (1 + spread)))


def is_clean_border(vocabulary: Vocabulary, before: str, special: str, after: str) -> bool:
    """Whether a special token between two texts keeps the ids of both as they are alone.

    It always does where the text is not cut into chunks: special tokens are taken out before the pattern sees a text
    (tiktoken's `encode`), so each side is matched and merged by itself. A chunk border can break the token's spelling.
    """
    ids = [*vocabulary.encode(before), vocabulary.special_id(special), *vocabulary.encode(after)]
    return vocabulary.encode(before + special + after, specials=True) == ids


def is_chunked(before: str, special: str, after: str) -> bool:
    """Whether the official class cuts this text into chunks, the one exception to a clean border."""
    return bool(chunk_borders(before + special + after))
