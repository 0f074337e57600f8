"""The audit of a vocabulary: every id's class, its round trip through text, whether a text can produce it at all."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from kimi_helpers.reachability import Reachability, rank_table
from kimi_helpers.token_classes import block_of, class_of, decode_whole, script_of
from kimi_helpers.vocabulary import Vocabulary

SAME, OTHER, SEVERAL = "same", "other", "several"


def round_trip(vocabulary: Vocabulary, id: int, text: str) -> str:
    """What becomes of an id that is decoded to `text` and encoded again: itself, one other id, or several.

    The spelling of a special token is recognised, as the official class does by default; ordinary ids are encoded as
    ordinary text.
    """
    if id in vocabulary.special_ids:
        ids = vocabulary.encode(text, specials=True)
    else:
        ids = vocabulary.encoding.encode_ordinary(text)
    return SAME if ids == [id] else OTHER if len(ids) == 1 else SEVERAL


def round_trips(vocabulary: Vocabulary, tokens: Sequence[bytes]) -> list[str]:
    """`round_trip` of every id.

    Args:
        tokens: the bytes of each id, shape [size].
    """
    return [round_trip(vocabulary, id, data.decode("utf-8", "replace")) for id, data in enumerate(tokens)]


@dataclass(frozen=True, eq=False)
class Audit:
    """What an audit found.

    Attributes:
        vocabulary: the one audited.
        tokens: a row an id: `bytes`, `text` (None: not whole characters), `length` in bytes, `class`, `script`,
            `block`, `round_trip`, `witness` (a text that produces the id), `rule` (what hides it, or "").
    """

    vocabulary: Vocabulary
    tokens: pd.DataFrame

    @cached_property
    def ordinary(self) -> pd.DataFrame:
        """The rows of the ranks, without the special slots."""
        return self.tokens.iloc[: self.vocabulary.ranks]

    @property
    def unreachable(self) -> pd.DataFrame:
        """The ordinary ids that no text gives, each with its rule."""
        return self.ordinary[self.ordinary["rule"] != ""]

    @property
    def changed(self) -> pd.DataFrame:
        """Whole-character ordinary ids that do not survive decode and encode alone, with a text that gives them."""
        return self.ordinary[(self.ordinary["round_trip"] != SAME) & self.ordinary["text"].notna()]

    def counts(self) -> dict[str, int]:
        """How many ids are of each class; the classes share no id. Then figures that overlap with them."""
        lengths = self.ordinary["length"]
        return {
            **{str(name): int(count) for name, count in self.tokens["class"].value_counts().items()},
            "all ids": len(self.tokens),
            "single bytes": int((lengths == 1).sum()),
            "numbers 0 to 999 that are one token": sum(
                len(self.vocabulary.encode(str(number))) == 1 for number in range(1000)
            ),
            "longest token in bytes": int(lengths.max()),
        }

    def round_trip_counts(self) -> pd.DataFrame:
        """How many ids of each class come back the same, as another id, as several."""
        return pd.crosstab(self.tokens["class"], self.tokens["round_trip"])


def audit(vocabulary: Vocabulary) -> Audit:
    """Look at every id of a vocabulary; some seconds for Kimi's."""
    tokens = [vocabulary.token_bytes(id) for id in range(vocabulary.size)]
    texts = [decode_whole(data) for data in tokens]
    trips = round_trips(vocabulary, tokens)
    reach = Reachability(vocabulary, rank_table(vocabulary))
    hidden = [
        reach.find(id) if trip != SAME or text is None else None
        for id, (trip, text) in enumerate(zip(trips[: vocabulary.ranks], texts, strict=False))
    ]
    hidden += [None] * (vocabulary.size - vocabulary.ranks)
    table = {
        "bytes": tokens,
        "text": pd.Series(texts, dtype=object),
        "length": [len(data) for data in tokens],
        "class": [class_of(vocabulary, id, data).value for id, data in enumerate(tokens)],
        "script": [script_of(text) if text is not None else "" for text in texts],
        "block": [block_of(text) if text is not None else "" for text in texts],
        "round_trip": trips,
        "witness": [text if found is None else found.witness for text, found in zip(texts, hidden, strict=True)],
        "rule": ["" if found is None else found.rule for found in hidden],
    }
    return Audit(vocabulary, pd.DataFrame(table).rename_axis("id"))


def special_slots(vocabulary: Vocabulary) -> pd.DataFrame:
    """The special table, a row a slot.

    `removed` says what `skip_special_tokens` takes away in the official class: named tokens marked special, and no
    others. `survives` says whether the token's spelling encodes to its id and decodes back; `as_text` how many ids the
    spelling makes where it is ordinary text. A slot without a name that lies between named ones is a `gap`.
    """
    by_id = {token.id: token for token in vocabulary.named.values()}
    rows = []
    for id in sorted(vocabulary.special_ids):
        text, token = vocabulary.decode([id]), by_id.get(id)
        rows.append(
            {
                "id": id,
                "text": text,
                "named": token is not None,
                "special": token.special if token else None,
                "removed": token is not None and token.special,
                "survives": vocabulary.encode(text, specials=True) == [id],
                "as_text": len(vocabulary.encode(text)),
                "gap": token is None and min(by_id, default=id) < id < max(by_id, default=id),
            }
        )
    return pd.DataFrame(rows).set_index("id")


def impostors(vocabulary: Vocabulary) -> pd.DataFrame:
    """Texts that look like a special token and are ordinary text: a row each, with the token it resembles.

    Singular section markers are written by models and people (MoonshotAI/Kimi-K2#89); full-width bars are DeepSeek's.
    """
    rows = [
        (form, token, len(vocabulary.encode(form, specials=True)))
        for token in vocabulary.named
        for form in sorted(_look_alikes(token))
        if vocabulary.special_ids.isdisjoint(vocabulary.encode(form, specials=True))
    ]
    return pd.DataFrame(rows, columns=["text", "resembles", "ids"])


def _look_alikes(token: str) -> set[str]:
    forms = {
        token.replace("|", "｜"),
        token.replace("tool_calls_section", "tool_call_section"),
        token.replace("_", "▁").replace("|", "｜"),
        token.upper(),
        re.sub(r"(\w)(\W+)$", r"\1 \2", token),
    }
    return forms - {token}
