"""The grades of very many loopback replies beside the truth, by host: `python benchmarks/loopback_grades.py`.

The hosts are those of `kimi_helpers/simulator`, the profiles those of `data/profiles/loopback.toml`. A share of
the replies is cut by its length, and of a share the model splits one place otherwise than the tokenizer. False exact
must be 0; exact rows that differ only by another split into as many tokens are counted apart.
"""

import argparse
import dataclasses
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import pandas as pd

from kimi_helpers.formats import END_TURN, FORMATS
from kimi_helpers.generation import Settings, run_generation
from kimi_helpers.graded_rows import GradedRow, grade_replies
from kimi_helpers.profiles import read_profiles
from kimi_helpers.prompts import read_prompts
from kimi_helpers.reply_sources import SourcedReply, read_sources
from kimi_helpers.request_terms import read_request, thinking_asked
from kimi_helpers.simulator.completions import Completion
from kimi_helpers.simulator.hosts import HOSTS
from kimi_helpers.simulator.scoring import HostScore, Truth, fetch_truth, score
from kimi_helpers.simulator.server import running
from kimi_helpers.simulator.witnesses import find_witness
from kimi_helpers.vocabulary import load_vocabulary
from kimi_helpers.workspace import DATA

WHOLE = 16_384
SETTLEABLE = "no other ids are known that would have"
# model, max_tokens, streamed, better evidence asked for, share of the samples
RUNS = (
    ("kimi-k2.5", WHOLE, True, False, 12),
    ("kimi-k2.5", WHOLE, False, False, 8),
    ("kimi-k2.5", WHOLE, True, True, 4),
    ("kimi-k2.6", WHOLE, True, False, 6),
    ("kimi-k2-thinking", WHOLE, True, False, 6),
    ("kimi-k2", WHOLE, True, False, 4),
    ("kimi-k2.5", 40, True, False, 1),
    ("kimi-k2.5", 90, False, False, 1),
    ("kimi-k2.5", 151, True, False, 1),
    ("kimi-k2-thinking", 77, False, False, 1),
)


def graded_runs(samples: int, rate: float) -> Iterator[tuple[list[SourcedReply], list[GradedRow], dict[str, Truth]]]:
    """The replies of each run, their rows, and the truth behind them."""
    prompts = read_prompts(DATA / "prompts/loopback.jsonl")
    profiles = read_profiles(DATA / "profiles/loopback.toml")
    hosts = [host.slug for host in HOSTS]
    for place, (model, limit, stream, evidence, share) in enumerate(RUNS):
        settings = Settings(
            "loopback", f"moonshotai/{model}", limit, 1.0, 0.95, 1000 * place, stream, evidence, evidence, system=""
        )
        with TemporaryDirectory() as folder, running(noncanonical_rate=rate) as url:
            journal = Path(folder, "journal.sqlite")
            run_generation(prompts, hosts, settings, journal, base_url=url, samples=samples * share)
            replies = list(read_sources([journal]))
            rows = list(grade_replies(replies, lambda format: load_vocabulary(format=format.name), profiles))
            yield replies, rows, fetch_truth(url, [row.generation_id for row in rows if row.generation_id])


def why_unsettled(sourced: SourcedReply, row: GradedRow, truth: Truth) -> str:
    """Of a reply that was not called exact: what kept the evidence from settling it, or that nothing is known to."""
    layout = FORMATS[row.format or ""]
    vocabulary, request = load_vocabulary(format=layout.name), sourced.request or {}
    if truth.kind in ("longer", "shorter"):
        return "split into another number of tokens"
    if "U+FFFD" in row.reason and vocabulary.decode_bytes(truth.token_ids).decode(errors="ignore") != vocabulary.decode(
        truth.token_ids
    ):
        return "cut inside a character"
    thinks = layout.opening_think == "model" or (layout.opening_think == "prompt" and thinking_asked(request))
    ended = truth.token_ids[-1:] == (vocabulary.special_id(END_TURN),)
    completion = Completion((), truth.token_ids, thinks, ended, read_request(request).forced_call)
    host = next(host for host in HOSTS if host.name == row.host)
    witness = find_witness(host, vocabulary, completion, row.transport == "sse")
    return SETTLEABLE if witness is None else "other ids would have come back the same"


def main() -> None:
    """Run, grade, score, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=1, help="1 makes about 20,000 replies")
    parser.add_argument("--rate", type=float, default=0.02, help="share of non-canonical replies")
    given = parser.parse_args()
    started, scores, reasons = perf_counter(), list[HostScore](), list[str]()
    unsettled = Counter[tuple[str, str]]()
    for replies, rows, truth in graded_runs(given.samples, given.rate):
        scores += score(rows, truth)
        for reply, row in zip(replies, rows, strict=True):
            if row.generation_id and not row.grade.is_exact:
                unsettled[row.host, why_unsettled(reply, row, truth[row.generation_id])] += 1
        reasons += [f"{row.grade.value}: {''.join(c for c in row.reason if not c.isdigit())[:90]}" for row in rows]
    table = pd.DataFrame(map(dataclasses.asdict, scores)).groupby("provider", sort=False).sum()
    table.loc["all"] = table.sum()
    print(table.to_string())
    print(pd.Series(reasons).value_counts().head(25).to_string())
    kinds = pd.Series(unsettled).unstack(fill_value=0)
    print(kinds.to_string())
    left = kinds.get(SETTLEABLE, pd.Series(dtype=int)).sum()
    exact = table.loc["all", "exact"]
    print(f"of the replies that the evidence can settle, {100 * exact / (exact + left):.2f} % are exact, at least")
    rate = table.loc["all", "same_length"] / table.loc["all", "exact"]
    print(f"another split into as many tokens: {100 * rate:.3f} % of exact rows; {perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
