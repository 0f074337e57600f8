"""What write-ups claim of Kimi's tokenizer, each claim tested on the vocabulary that is loaded."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pandas as pd

from kimi_helpers.token_boundaries import is_clean_border
from kimi_helpers.vocabulary import RUN_CHARS, Vocabulary
from kimi_helpers.workspace import DATA


class Verdict(StrEnum):
    """What a test of a claim says."""

    holds = "holds"
    exception = "holds with an exception"
    refuted = "refuted"
    untested = "not testable here"


@dataclass(frozen=True)
class Tested:
    """A claim with its verdict and what was seen."""

    statement: str
    verdict: Verdict
    evidence: str


Test = Callable[[Vocabulary, Mapping[str, Any], Sequence[str]], tuple[Verdict, str]]


def check_claims(vocabulary: Vocabulary, texts: Sequence[str]) -> list[Tested]:
    """Every claim of `data/tokenizer_claims.json`, tested.

    Args:
        vocabulary: the one that is claimed to behave so.
        texts: real texts, for the claims about text in general.
    """
    claims = json.loads((DATA / "tokenizer_claims.json").read_text("utf-8"))["claims"]
    return [_tested(vocabulary, claim, texts) for claim in claims]


def claims_table(tested: Sequence[Tested]) -> pd.DataFrame:
    """A row a claim."""
    rows = [(row.statement, row.verdict.value, row.evidence) for row in tested]
    return pd.DataFrame(rows, columns=["claim", "verdict", "evidence"])


def _tested(vocabulary: Vocabulary, claim: Mapping[str, Any], texts: Sequence[str]) -> Tested:
    needed = [*claim.get("ids", {}), *(claim[key] for key in ("end", "special") if key in claim)]
    missing = [text for text in needed if text not in vocabulary.named]
    if missing and claim["test"] != "special_ids":
        evidence = f"this table does not name {', '.join(missing)}"
        return Tested(claim["statement"], Verdict.untested, evidence)
    return Tested(claim["statement"], *_TESTS[claim["test"]](vocabulary, claim, texts))


def _special_ids(vocabulary: Vocabulary, claim: Mapping[str, Any], _: Sequence[str]) -> tuple[Verdict, str]:
    claimed = claim["ids"]
    wrong = [
        f"{text} is {vocabulary.named[text].id if text in vocabulary.named else 'not named'}, not {id}"
        for text, id in claimed.items()
        if text not in vocabulary.named or vocabulary.special_id(text) != id
    ]
    right = len(claimed) - len(wrong)
    if not wrong:
        return Verdict.holds, f"all {right} of {right} ids are as claimed"
    return (Verdict.exception if right else Verdict.refuted), f"{right} of {len(claimed)} are as claimed; " + "; ".join(
        wrong
    )


def _end_token_is(vocabulary: Vocabulary, claim: Mapping[str, Any], _: Sequence[str]) -> tuple[Verdict, str]:
    id, end = claim["id"], claim["end"]
    right = vocabulary.special_id(end)
    if id == right:
        return Verdict.holds, f"{end} has id {id}"
    if id >= vocabulary.size:
        return Verdict.refuted, f"{id} is outside this vocabulary; {end} has id {right}"
    kind = "a special token" if id in vocabulary.special_ids else "an ordinary token of text"
    return Verdict.refuted, f"{id} spells {vocabulary.decode([id])!r} and is {kind}; {end} has id {right}"


def _encodes_to_another(vocabulary: Vocabulary, claim: Mapping[str, Any], _: Sequence[str]) -> tuple[Verdict, str]:
    end = claim["end"]
    found, right = vocabulary.encode(end, specials=True), vocabulary.special_id(end)
    if found == [right]:
        return (
            Verdict.refuted,
            f"encode gives {found}, and {right} is the end token's own id: decode gives {end!r} back",
        )
    return Verdict.holds, f"encode gives {found}; the end token's id is {right}"


def _clean_boundary(vocabulary: Vocabulary, claim: Mapping[str, Any], texts: Sequence[str]) -> tuple[Verdict, str]:
    special = claim["special"]
    halves = [(text[: len(text) // 2], text[len(text) // 2 :]) for text in texts]
    broken = sum(not is_clean_border(vocabulary, before, special, after) for before, after in halves)
    if broken:
        return Verdict.refuted, f"{broken} of {len(halves)} texts get other ids around {special}"
    run = "a" * (RUN_CHARS - 1)
    if is_clean_border(vocabulary, run, special, "b"):
        return (
            Verdict.holds,
            f"on {len(halves)} of {len(halves)} texts, and behind a run of {RUN_CHARS - 1:,} characters",
        )
    return Verdict.exception, (
        f"on {len(halves)} of {len(halves)} texts; not where the official class cuts a long text into chunks:"
        f" behind a run of {RUN_CHARS - 1:,} characters without a blank, {special} becomes ordinary text"
    )


def _tool_tokens_survive(vocabulary: Vocabulary, claim: Mapping[str, Any], _: Sequence[str]) -> tuple[Verdict, str]:
    tokens = [token for token in vocabulary.named.values() if token.text.startswith(claim["prefix"])]
    if not tokens:
        return Verdict.untested, "this table names no such token"
    lost = [token.text for token in tokens if vocabulary.encode(token.text, specials=True) != [token.id]]
    if lost:
        return Verdict.refuted, f"{', '.join(lost)} do not encode to their own ids"
    spelled = len(vocabulary.encode(tokens[0].text))
    return Verdict.exception, (
        f"all {len(tokens)} do where special tokens are recognised; where they are not, as untrusted text must be read,"
        f" {tokens[0].text} makes {spelled} ordinary ids; and a chunk border inside one breaks it"
    )


def _round_trip(vocabulary: Vocabulary, _: Mapping[str, Any], texts: Sequence[str]) -> tuple[Verdict, str]:
    rows = [vocabulary.encode(text) for text in texts]
    changed = sum(vocabulary.encode(vocabulary.decode(ids)) != ids for ids in rows)
    if changed:
        return Verdict.refuted, f"{changed} of {len(rows)} texts come back with other ids"
    word = next(token for token in map(vocabulary.token_bytes, range(vocabulary.ranks - 1, -1, -1)) if token.isalpha())
    split = [id for byte in word for id in vocabulary.encode(chr(byte))]
    back = vocabulary.encode(vocabulary.decode(split))
    return Verdict.exception, (
        f"on {len(rows)} of {len(rows)} texts that this tokenizer encoded; not where the model samples another split:"
        f" {split} spells {word.decode()!r}, which encodes to {back}; nor where a reply is cut inside a character"
    )


def _end_token_lost(vocabulary: Vocabulary, claim: Mapping[str, Any], texts: Sequence[str]) -> tuple[Verdict, str]:
    end = vocabulary.special_id(claim["end"])
    rows = [[*vocabulary.encode(text), end] for text in texts]
    kept = sum(vocabulary.encode(vocabulary.decode(ids), specials=True)[-1:] == [end] for ids in rows)
    evidence = f"{kept} of {len(rows)} rows that end in {end} end in it after decode and encode with special tokens"
    return (Verdict.refuted if kept else Verdict.holds), evidence


def _rows_ended_with(vocabulary: Vocabulary, claim: Mapping[str, Any], _: Sequence[str]) -> tuple[Verdict, str]:
    if claim["id"] == vocabulary.special_id(claim["end"]):
        return Verdict.holds, f"{claim['id']} is {claim['end']}"
    if claim["id"] >= vocabulary.size:
        return Verdict.refuted, f"{claim['id']} is outside this vocabulary"
    row = ended_row(vocabulary, "The answer is 42.", claim["id"])
    return Verdict.refuted, (
        f"the row reads {row.text!r}: it never ends, and its last token teaches the model to go on writing;"
        f" its text encodes to {row.encoded_again}, not to the row's {row.ids}"
    )


@dataclass(frozen=True)
class EndedRow:
    """A reply's row to which an id was appended as its end.

    Attributes:
        ids: the row.
        text: what it spells.
        encoded_again: the ids of that text, special tokens recognised.
        has_end: whether the row ends in a special token.
    """

    ids: list[int]
    text: str
    encoded_again: list[int]
    has_end: bool


def ended_row(vocabulary: Vocabulary, reply: str, end: int) -> EndedRow:
    """What appending an id as the end does to a reply's row."""
    ids = [*vocabulary.encode(reply), end]
    text = vocabulary.decode(ids)
    return EndedRow(ids, text, vocabulary.encode(text, specials=True), end in vocabulary.special_ids)


_TESTS: Mapping[str, Test] = {
    "special_ids": _special_ids,
    "end_token_is": _end_token_is,
    "encodes_to_another": _encodes_to_another,
    "clean_boundary": _clean_boundary,
    "tool_tokens_survive": _tool_tokens_survive,
    "round_trip": _round_trip,
    "end_token_lost": _end_token_lost,
    "rows_ended_with": _rows_ended_with,
}
