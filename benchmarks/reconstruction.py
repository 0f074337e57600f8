"""How fast replies become graded token ids, reading and writing Parquet included, beside what only encodes them.

    python benchmarks/reconstruction.py             a table: each way on the same replies, in one run
    python benchmarks/reconstruction.py --memory    peak memory at 10,000 and at 100,000 replies
    python benchmarks/reconstruction.py --cluster   Ray Data on one node and on two, beside local processes

Ratios carry over to another machine, seconds do not. Replies are JSON bodies of 8 kB of text in the mean, reasoning
and answer; one in 100 spells special tokens. "Parsed" is the second input form, whose fields were parsed before
(`parse_many`). With --requests each reply has its request, and its prompt is rendered and checked as well, which no
other way does.
"""

import json
import os
import random
import resource
import sys
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import click
import gigatoken
import numpy as np
import psutil
import pyarrow.parquet as pq
from encoding import replies

from kimi_helpers.bulk_encoding import BulkEncoder
from kimi_helpers.bulk_reconstruction import (
    ROWS_A_BATCH,
    BulkSettings,
    OrderedMap,
    local_workers,
    parse_many,
    reconstruct_many,
)
from kimi_helpers.formats import FORMATS
from kimi_helpers.profiles import read_profiles
from kimi_helpers.rank_files import packaged_rank_path
from kimi_helpers.reply_sources import read_tables
from kimi_helpers.reply_tables import RawReply, raw_table
from kimi_helpers.vocabulary import RUN_CHARS, SLICE_CHARS, Vocabulary, load_vocabulary
from kimi_helpers.workspace import DATA

HOST = "Loopback Faithful"
MODEL = "moonshotai/kimi-k2.5-0127"
SPELLING_SHARE = 0.01
MEAN_MEGABYTES = 0.008
MEMORY_SIZES = (10_000, 100_000)
DISTINCT = 2_000
SETTINGS = BulkSettings(read_profiles(DATA / "profiles" / "loopback.toml"))


def fields_of(number: int, vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """Reasoning and content of some replies."""
    rng = random.Random(0)
    pairs = []
    for text in replies(number * MEAN_MEGABYTES):
        said = text if rng.random() < SPELLING_SHARE else vocabulary.spelling.sub("(token)", text)
        border = int(len(said) * rng.uniform(0.3, 0.8))
        pairs.append((f" {said[:border]}", said[border:]))
    return pairs


def exchanges(pairs: Sequence[tuple[str, str]], encoder: BulkEncoder, has_requests: bool) -> list[RawReply]:
    """Each pair as a faithful host returns it."""
    messages = [{"role": "user", "content": "Explain how a cache decides what to forget, with an example."}]
    request = {"model": MODEL, "messages": messages}
    prompt = len(FORMATS["kimi-k2.5"].prompt_ids(load_vocabulary(), messages))
    _, offsets = encoder.encode([text for pair in pairs for text in pair])
    counts = np.diff(offsets).reshape(-1, 2).tolist()
    return [
        RawReply(
            f"reply {place}",
            json.dumps(request).encode() if has_requests else None,
            200,
            _body(place, pair, (reasoned + 1, said + 1), prompt),
        )
        for place, (pair, (reasoned, said)) in enumerate(zip(pairs, counts, strict=True))
    ]


def _body(place: int, pair: tuple[str, str], counts: tuple[int, int], prompt: int) -> bytes:
    message = {"role": "assistant", "reasoning": pair[0], "content": pair[1]}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "native_finish_reason": "stop"}
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": sum(counts),
        "completion_tokens_details": {"reasoning_tokens": counts[0]},
    }
    body = {"id": f"gen-{place}", "provider": HOST, "model": MODEL, "choices": [choice], "usage": usage}
    return json.dumps(body, ensure_ascii=False).encode()


def official_pieces(text: str) -> Iterator[str]:
    """The published class's cuts, found as it finds them: by a loop over the characters of each slice."""
    for slice_start in range(0, len(text), SLICE_CHARS):
        part = text[slice_start : slice_start + SLICE_CHARS]
        start, length, in_blanks = 0, 0, part[0].isspace()
        for place, character in enumerate(part):
            is_blank = character.isspace()
            if is_blank != in_blanks:
                length, in_blanks = 1, is_blank
                continue
            length += 1
            if length > RUN_CHARS:
                yield part[start:place]
                start, length = place, 1
        yield part[start:]


def encode_officially(vocabulary: Vocabulary, text: str) -> list[int]:
    """A segment by the published class with a keyword, which is how templates and engines call it."""
    ids: list[int] = []
    for piece in official_pieces(text):
        ids += vocabulary.encoding.encode(piece, allowed_special="all")
    return ids


def compare(number: int, rounds: int, has_requests: bool) -> None:
    """Print a row a way: the best of some rounds, and its ratios."""
    vocabulary = load_vocabulary()
    pairs = fields_of(number, vocabulary)
    segments = [text for pair in pairs for text in pair]
    size = sum(len(text.encode()) for text in segments)
    bare = gigatoken.Tokenizer.from_tiktoken(packaged_rank_path(), "kimi", {})
    print(
        f"{len(pairs):,} replies, {size / 1e6:.0f} MB of text, {size / len(pairs) / 1e3:.1f} kB in the mean;", end=" "
    )
    print(f"best of {rounds}; requests {'kept' if has_requests else 'not kept'}\n")
    with TemporaryDirectory() as folder:
        raw, parsed = Path(folder, "raw.parquet"), Path(folder, "parsed.parquet")
        pq.write_table(raw_table(exchanges(pairs, BulkEncoder(vocabulary), has_requests)), raw, compression="zstd")
        parse_many(read_tables([raw], ROWS_A_BATCH), parsed)

        def bulk(source: Path, each: OrderedMap) -> Callable[[], object]:
            tables = Path(folder, "graded.parquet")
            return lambda: reconstruct_many(read_tables([source], ROWS_A_BATCH), SETTINGS, tables, each)

        with local_workers(1) as one, local_workers(2) as two:
            started = _timed(bulk(parsed, two))
            bulk(parsed, one)()
            ways = {
                "official class, a segment a call": lambda: [encode_officially(vocabulary, text) for text in segments],
                "tiktoken encode_ordinary": lambda: [vocabulary.encoding.encode_ordinary(text) for text in segments],
                "gigatoken encode_batch, bare": lambda: bare.encode_batch(segments),
                "bodies to graded Parquet, 1 process": bulk(raw, one),
                "bodies to graded Parquet, 2 processes": bulk(raw, two),
                "parsed to graded Parquet, 1 process": bulk(parsed, one),
                "parsed to graded Parquet, 2 processes": bulk(parsed, two),
            }
            taken = [[_timed(way) for way in ways.values()] for _ in range(rounds)]
    best = dict(zip(ways, map(min, zip(*taken, strict=True)), strict=True))
    best["the same with the start of 2 processes"] = started
    official, tiktoken, fast, *_ = (seconds for seconds, _ in best.values())
    print("wall and processor time a reply; the ratios are of wall time\n")
    print(f"{'':<40}{'MB/s':>8}{'wall us':>9}{'CPU us':>8}{'x official':>12}{'x tiktoken':>12}{'x gigatoken':>13}")
    for name, (wall, used) in best.items():
        times = f"{wall / len(pairs) * 1e6:>9.0f}{used / len(pairs) * 1e6:>8.0f}"
        ratios = f"{official / wall:>12.1f}{tiktoken / wall:>12.1f}{fast / wall:>13.2f}"
        print(f"{name:<40}{size / wall / 1e6:>8.1f}{times}{ratios}")
    print(f"\npeak memory: {_peak_megabytes(resource.RUSAGE_SELF):.0f} MB, all texts of the comparison included")


def _timed(way: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the wall clock, and of the processor in this process and its workers."""
    start, used = perf_counter(), _processor_seconds()
    way()
    return perf_counter() - start, _processor_seconds() - used


def _processor_seconds() -> float:
    own = psutil.Process()
    times = [process.cpu_times() for process in (own, *own.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def _peak_megabytes(whose: int) -> float:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(whose).ru_maxrss * unit / 1e6


def memory() -> None:
    """Print the peak memory of a whole run, a new process each."""
    vocabulary = load_vocabulary()
    table = raw_table(exchanges(fields_of(DISTINCT, vocabulary), BulkEncoder(vocabulary), False))
    print(f"{DISTINCT:,} distinct bodies again and again; 2 workers\n")
    print(f"{'replies':>10}{'file MB':>10}{'this process MB':>18}{'largest worker MB':>20}")
    with TemporaryDirectory() as folder:
        for number in MEMORY_SIZES:
            source = Path(folder, f"{number}.parquet")
            with pq.ParquetWriter(source, table.schema, compression="zstd") as writer:
                for _ in range(number // len(table) + 1):
                    writer.write_table(table)
            process = get_context("spawn").Process(target=_peaks, args=(source, Path(folder, "graded.parquet")))
            process.start()
            process.join()


def _peaks(source: Path, out: Path) -> None:
    with local_workers(2) as workers:
        counts = reconstruct_many(read_tables([source], ROWS_A_BATCH), SETTINGS, out, workers)
    own, largest = map(_peak_megabytes, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    number = sum(sum(of_host.values()) for of_host in counts.values())
    print(f"{number:>10,}{source.stat().st_size / 1e6:>10.0f}{own:>18.0f}{largest:>20.0f}", flush=True)


def scale(number: int) -> None:
    """Print the same reconstruction on clusters of one and of two nodes of this machine, a core each."""
    import ray  # noqa: PLC0415  (an extra)
    from ray.cluster_utils import Cluster  # noqa: PLC0415

    from kimi_helpers.cluster import reconstruct_on_cluster  # noqa: PLC0415

    vocabulary = load_vocabulary()
    table = raw_table(exchanges(fields_of(number, vocabulary), BulkEncoder(vocabulary), False))
    print(f"{len(table):,} replies on a machine of {os.cpu_count()} cores; nodes of a core each share them, so this")
    print("shows what Ray adds and that nodes are used, not how a network or a third node scales.\n")
    print(f"{'':<28}{'seconds':>9}{'us/reply':>10}")

    def row(name: str, seconds: float) -> None:
        print(f"{name:<28}{seconds:>9.1f}{seconds / len(table) * 1e6:>10.0f}", flush=True)

    with TemporaryDirectory() as folder:
        source, out = Path(folder, "raw.parquet"), Path(folder, "graded.parquet")
        pq.write_table(table, source, compression="zstd", row_group_size=ROWS_A_BATCH)
        for workers in (1, 2):
            with local_workers(workers) as each:
                reconstruct_many(read_tables([source], ROWS_A_BATCH), SETTINGS, out, each)  # processes start
                row(
                    f"local, {workers} process(es)",
                    _timed(lambda: reconstruct_many(read_tables([source], ROWS_A_BATCH), SETTINGS, out, each))[0],
                )
        for nodes in (1, 2):
            cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
            for _ in range(nodes - 1):
                cluster.add_node(num_cpus=1)
            try:
                ray.init(cluster.address, log_to_driver=False)
                for name in ("first run", "again"):
                    seconds, _ = _timed(lambda: reconstruct_on_cluster([source], SETTINGS, out))
                    row(f"Ray, {nodes} node(s), {name}", seconds)
            finally:
                ray.shutdown()
                cluster.shutdown()


@click.command(help=__doc__)
@click.option("--replies", "number", default=4_000, show_default=True, help="About how many.")
@click.option("--rounds", default=3, show_default=True, help="How often each way runs; the best counts.")
@click.option("--requests", is_flag=True, help="Keep requests, so that prompts are checked too.")
@click.option("--memory", "is_memory", is_flag=True, help="Show peak memory instead of speed.")
@click.option("--cluster", "is_cluster", is_flag=True, help="Show Ray Data instead.")
def main(number: int, rounds: int, requests: bool, is_memory: bool, is_cluster: bool) -> None:
    if is_memory:
        memory()
    elif is_cluster:
        scale(number)
    else:
        compare(number, rounds, requests)


if __name__ == "__main__":
    main()
