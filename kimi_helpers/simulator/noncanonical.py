"""Splits of a text into tokens that are not the tokenizer's own, as models sample them now and then.

Two kinds: a token replaced by several that spell the same bytes, which makes the reply longer; and two neighbours
split anew into two others, which leaves its length as it was, so that no billed count can show it.
"""

import random
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Literal

from kimi_helpers.formats import BEGIN_ARGUMENTS, BEGIN_CALL
from kimi_helpers.simulator.serving_stack import token_bytes
from kimi_helpers.vocabulary import Vocabulary

SplitKind = Literal["canonical", "longer", "same_length", "shorter"]

SAME_LENGTH_SHARE = 0.25
THREE_TOKENS_SHARE = 0.25


def split_anew(ids: Sequence[int], vocabulary: Vocabulary, draw: random.Random) -> list[int]:
    """The ids with one place of ordinary text split otherwise: every fourth time into as many tokens.

    Tool ids stay whole. Ids in which no place allows it come back unchanged.
    """
    places = list(_ordinary_places(ids, vocabulary))
    draw.shuffle(places)
    ordinary = frozenset(places)
    if draw.random() < SAME_LENGTH_SHARE:
        for place in places:
            if place + 1 in ordinary and (new := _two_tokens(vocabulary, (ids[place], ids[place + 1]), draw)):
                return [*ids[:place], *new, *ids[place + 2 :]]
    for place in places:
        if new := _two_tokens(vocabulary, (ids[place],), draw):
            first = draw.random() < THREE_TOKENS_SHARE and _two_tokens(vocabulary, new[:1], draw)
            return [*ids[:place], *(first or new[:1]), *new[1:], *ids[place + 1 :]]
    return list(ids)


def _ordinary_places(ids: Sequence[int], vocabulary: Vocabulary) -> Iterator[int]:
    begin, end = vocabulary.special_id(BEGIN_CALL), vocabulary.special_id(BEGIN_ARGUMENTS)
    in_tool_id = False
    for place, id in enumerate(ids):
        in_tool_id = id == begin or (in_tool_id and id != end)
        if not in_tool_id and id not in vocabulary.special_ids:
            yield place


def _two_tokens(vocabulary: Vocabulary, old: tuple[int, ...], draw: random.Random) -> tuple[int, int] | None:
    """Two other tokens with the bytes of `old`, or None where there are none."""
    data = b"".join(token_bytes(vocabulary, id) for id in old)
    cuts = list(range(1, len(data)))
    draw.shuffle(cuts)
    for cut in cuts:
        left, right = (_ordinary_token(vocabulary, part) for part in (data[:cut], data[cut:]))
        if left is not None and right is not None and (left, right) != old:
            return left, right
    return None


def _ordinary_token(vocabulary: Vocabulary, data: bytes) -> int | None:
    id = vocabulary.id_of_bytes(data)
    return None if id in vocabulary.special_ids else id


def split_kind(ids: Sequence[int], vocabulary: Vocabulary) -> SplitKind:
    """How ids differ from the tokenizer's own split of the text between their special tokens.

    A character that the end of the reply cuts is left out of the comparison, with the tokens it has bytes in. Only
    a cut can make ids `shorter`: the text in front of it may end where the tokenizer would have merged otherwise.
    """
    given = canonical = 0
    same = True
    for special, group in groupby(ids, key=vocabulary.special_ids.__contains__):
        if not special:
            run = _whole_characters(list(group), vocabulary)
            own = vocabulary.encode(b"".join(token_bytes(vocabulary, id) for id in run).decode())
            given, canonical, same = given + len(run), canonical + len(own), same and run == own
    if same:
        return "canonical"
    if given == canonical:
        return "same_length"
    return "longer" if given > canonical else "shorter"


def _whole_characters(run: list[int], vocabulary: Vocabulary) -> list[int]:
    """The run without tokens at its end that belong to an unfinished character."""
    data = b"".join(token_bytes(vocabulary, id) for id in run)
    left = len(data) - len(data.decode("utf-8", "ignore").encode())
    while left > 0:
        left -= len(token_bytes(vocabulary, run.pop()))
    return run if left == 0 else _whole_characters(run, vocabulary)
