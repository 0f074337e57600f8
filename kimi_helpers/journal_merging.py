"""Several journals into one: of machines that shared a job, or of an earlier layout."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from kimi_helpers.attempt_verdicts import judge
from kimi_helpers.journal import Exchange, Journal, JournalError, read_journal, read_runs, read_settings

ROWS_A_TRANSACTION = 1000


def merge_journals(sources: Sequence[Path], target: Path) -> int:
    """Write the attempts of journals into another, which is begun where it does not exist. The sources stay.

    Of a key that several have finished the first reply counts. An attempt that the target holds already is left out, so
    that a merge that broke off can be made again. What a row of an earlier layout was billed is read from its body.

    Returns:
        How many attempts were written.

    Raises:
        JournalError: a journal cannot be used, or the settings of two of them differ.
    """
    settings = _shared_settings([*sources, *([target] if target.is_file() else [])])
    written = 0
    with Journal.open(target, settings) as journal:
        for source in sources:
            rows = _billed(_new_rows(source, target))
            while batch := list(islice(rows, ROWS_A_TRANSACTION)):
                written += sum(journal.add_many(batch))
            known = read_runs(target)
            for run in read_runs(source):
                if run not in known:
                    journal.begin_run(run)
    return written


def _shared_settings(paths: Sequence[Path]) -> dict[str, Any]:
    """What all of them were begun with; a setting that a layout did not have yet is taken from those that have it."""
    shared: dict[str, Any] = {}
    origin: dict[str, Path] = {}
    for path in paths:
        for name, value in read_settings(path).items():
            if name in shared and shared[name] != value:
                raise JournalError(
                    f"{path} was begun with {name} = {json.dumps(value)}, {origin[name]} with "
                    f"{json.dumps(shared[name])}: replies of different settings stay in different journals."
                )
            shared[name], origin[name] = value, origin.get(name, path)
    return shared


def _new_rows(source: Path, target: Path) -> Iterator[Exchange]:
    """The source's attempts that the target lacks: failed ones are known by their key and their start."""
    kept = {(each.key, each.transfer.started) for each in read_journal(target) if each.failure is not None}
    rows = read_journal(source)
    return (each for each in rows if each.failure is None or (each.key, each.transfer.started) not in kept)


def _billed(rows: Iterator[Exchange]) -> Iterator[Exchange]:
    for each in rows:
        if (each.prompt_tokens, each.completion_tokens, each.cost) == (None, None, None):
            usage = judge(each.transfer).usage
            if usage:
                yield replace(
                    each,
                    prompt_tokens=usage.prompt_tokens,
                    completion_tokens=usage.completion_tokens,
                    cost=usage.cost,
                )
                continue
        yield each
