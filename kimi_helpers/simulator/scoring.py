"""Grades against the truth: how often ids that were called exact differ from what the model sampled."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

from kimi_helpers.graded_rows import GradedRow
from kimi_helpers.workspace import write_whole


@dataclass(frozen=True)
class Truth:
    """What the scripted model sampled.

    Attributes:
        token_ids: completion ids, shape [n].
        kind: `canonical`, or how its split differs from the tokenizer's: `longer`, `shorter`, `same_length`.
    """

    token_ids: tuple[int, ...]
    kind: str


@dataclass(frozen=True)
class HostScore:
    """The grades of one host's replies beside their truth.

    Attributes:
        provider: the host.
        replies: how many were graded.
        exact: how many were called exact.
        false_exact: of those, how many differ from the truth where a count could have told; anything but 0 is a fault.
        same_length: of those, how many differ only by another split into as many tokens, which no count can show.
        other_length: how many of all replies the model split into another number of tokens than the tokenizer.
        right: how many of all rows have the true ids, whatever their grade.
    """

    provider: str
    replies: int
    exact: int
    false_exact: int
    same_length: int
    other_length: int
    right: int


def truth_url(base_url: str) -> str:
    """Where a loopback server tells the truth: outside its API."""
    return base_url.removesuffix("/api/v1") + "/truth/"


def fetch_truth(base_url: str, generation_ids: Iterable[str]) -> dict[str, Truth]:
    """What the scripted model sampled, by generation id.

    Raises:
        LookupError: the server knows no such generation: it was another server's, which took its truth with it.
    """
    truth = {}
    with httpx.Client(trust_env=False) as client:
        for generation_id in generation_ids:
            answer = client.get(truth_url(base_url) + generation_id)
            if answer.status_code == httpx.codes.NOT_FOUND:
                raise LookupError(
                    f"no truth is known of {generation_id}, a reply of an earlier server; use a new folder."
                )
            told = answer.raise_for_status().json()
            truth[generation_id] = Truth(tuple(told["token_ids"]), told["kind"])
    return truth


def write_truth(path: Path, truth: Mapping[str, Truth]) -> None:
    """Write `{"generation_id", "token_ids", "kind"}` a line."""
    lines = (json.dumps({"generation_id": id} | asdict(told)) + "\n" for id, told in truth.items())
    write_whole(path, "".join(lines).encode())


def read_truth(path: Path) -> dict[str, Truth]:
    """What `write_truth` wrote."""
    rows = map(json.loads, path.read_bytes().splitlines())
    return {row["generation_id"]: Truth(tuple(row["token_ids"]), row["kind"]) for row in rows}


def score(rows: Iterable[GradedRow], truth: Mapping[str, Truth]) -> list[HostScore]:
    """Score each host, in the order of their first reply. A row without a known truth is an error.

    Raises:
        KeyError: a graded reply whose generation id the truth lacks.
    """
    hosts: dict[str, list[tuple[GradedRow, Truth]]] = {}
    for row in rows:
        if row.generation_id is not None:
            hosts.setdefault(row.host, []).append((row, truth[row.generation_id]))
    return [_score_host(host, graded) for host, graded in hosts.items()]


def _score_host(host: str, graded: Sequence[tuple[GradedRow, Truth]]) -> HostScore:
    right = [row.token_ids == told.token_ids for row, told in graded]
    wrong = [
        told.kind == "same_length" and len(row.token_ids) == len(told.token_ids)
        for (row, told), is_right in zip(graded, right, strict=True)
        if row.grade.is_exact and not is_right
    ]
    return HostScore(
        provider=host,
        replies=len(graded),
        exact=sum(row.grade.is_exact for row, _ in graded),
        false_exact=wrong.count(False),
        same_length=wrong.count(True),
        other_length=sum(told.kind in ("longer", "shorter") for _, told in graded),
        right=sum(right),
    )
