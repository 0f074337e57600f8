"""Where the official tokenizer class departs from plain tiktoken, each with a minimal example.

The class (`tokenization_kimi.py` in MoonshotAI's model repositories) is not loaded: it is code that comes with a model.
Its two rules are written out here and in `vocabulary.chunk_borders`, and held to what it was seen to do.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kimi_helpers.vocabulary import RUN_CHARS, SLICE_CHARS, Vocabulary


@dataclass(frozen=True)
class Quirk:
    """A departure with its smallest example.

    Attributes:
        name: what it is.
        example: the input, in words.
        plain: what plain tiktoken gives.
        official: what the official class gives.
    """

    name: str
    example: str
    plain: str
    official: str

    @property
    def is_seen(self) -> bool:
        """Whether the two differ on this vocabulary."""
        return self.plain != self.official


def spaced_decode(vocabulary: Vocabulary, ids: Sequence[int]) -> str:
    """What `decode` gives with any keyword argument in older transformers: blanks around named special tokens.

    The keyword leads to the slow path, which joins added tokens and the texts between them with blanks
    (vllm-project/vllm#33457; seen with transformers 4.57.6).
    """
    named = {token.id for token in vocabulary.named.values()}
    parts: list[list[int]] = []
    for id in ids:
        if id in named or not parts or parts[-1][-1] in named:
            parts.append([])
        parts[-1].append(id)
    return " ".join(map(vocabulary.decode, parts))


def skipped_decode(vocabulary: Vocabulary, ids: Sequence[int]) -> str:
    """What `skip_special_tokens=True` leaves: only named tokens marked special go (ai-dynamo/dynamo#9227)."""
    removed = {token.id for token in vocabulary.named.values() if token.special}
    return vocabulary.decode([id for id in ids if id not in removed])


def official_quirks(vocabulary: Vocabulary, end: str = "<|im_end|>") -> list[Quirk]:
    """The departures, shown on a vocabulary that names `end`.

    Raises:
        UnknownSpecialToken: it does not.
    """
    special = vocabulary.special_id(end)
    run = "a" * (RUN_CHARS - 1) + end
    slices = "a b " * (SLICE_CHARS // 4 - 1) + "a b" + end
    ids = [special, *vocabulary.encode("1"), special]
    return [
        Quirk(f"{end} in a long run", f"'a' * {RUN_CHARS - 1:,} + {end!r}", *_counts(vocabulary, run, special)),
        Quirk(f"{end} at a slice", f"{SLICE_CHARS - 1:,} characters + {end!r}", *_counts(vocabulary, slices, special)),
        Quirk("decode with a keyword", f"decode({ids})", vocabulary.decode(ids), spaced_decode(vocabulary, ids)),
        Quirk("merges in a long run", "'because' * 4,000", *_lengths(vocabulary, "because" * 4_000)),
    ]


def _counts(vocabulary: Vocabulary, text: str, special: int) -> tuple[str, str]:
    plain = vocabulary.encode_unchunked(text, specials=True).count(special)
    official = vocabulary.encode(text, specials=True).count(special)
    return f"{plain} times {special}", f"{official} times {special}"


def _lengths(vocabulary: Vocabulary, text: str) -> tuple[str, str]:
    return f"{len(vocabulary.encode_unchunked(text))} ids", f"{len(vocabulary.encode(text))} ids"
