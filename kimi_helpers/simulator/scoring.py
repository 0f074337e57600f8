"""Grades against the truth: how often ids that were called exact differ from what the model sampled."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from kimi_helpers.graded_rows import GradedRow
from kimi_helpers.workspace import write_whole


@dataclass(frozen=True)
class HostScore:
    """The grades of one host's replies beside their truth.

    Attributes:
        provider: the host.
        replies: how many were graded.
        exact: how many were called exact.
        false_exact: of those, how many differ from the truth; anything but 0 is a fault.
        right: how many of all rows have the true ids, whatever their grade.
    """

    provider: str
    replies: int
    exact: int
    false_exact: int
    right: int


def truth_url(base_url: str) -> str:
    """Where a loopback server tells the truth: outside its API."""
    return base_url.removesuffix("/api/v1") + "/truth/"


def fetch_truth(base_url: str, generation_ids: Iterable[str]) -> dict[str, list[int]]:
    """The ids the scripted model sampled, by generation id.

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
            answer.raise_for_status()
            truth[generation_id] = answer.json()["token_ids"]
    return truth


def write_truth(path: Path, truth: Mapping[str, Sequence[int]]) -> None:
    """Write `{"generation_id", "token_ids"}` a line."""
    lines = (json.dumps({"generation_id": id, "token_ids": list(ids)}) + "\n" for id, ids in truth.items())
    write_whole(path, "".join(lines).encode())


def read_truth(path: Path) -> dict[str, tuple[int, ...]]:
    """What `write_truth` wrote."""
    rows = map(json.loads, path.read_bytes().splitlines())
    return {row["generation_id"]: tuple(row["token_ids"]) for row in rows}


def score(rows: Iterable[GradedRow], truth: Mapping[str, Sequence[int]]) -> list[HostScore]:
    """Score each host, in the order of their first reply. A row without a known truth is an error.

    Raises:
        KeyError: a graded reply whose generation id the truth lacks.
    """
    hosts: dict[str, list[tuple[bool, bool]]] = {}
    for row in rows:
        if row.generation_id is not None:
            right = row.token_ids == tuple(truth[row.generation_id])
            hosts.setdefault(row.provider or "", []).append((row.grade.is_exact, right))
    return [
        HostScore(
            provider=provider,
            replies=len(results),
            exact=sum(exact for exact, _ in results),
            false_exact=sum(exact and not right for exact, right in results),
            right=sum(right for _, right in results),
        )
        for provider, results in hosts.items()
    ]
