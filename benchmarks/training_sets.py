"""Rows and tokens a second of select, merge, shuffle and split, with peak memory, beside `datasets` in the same run.

    python benchmarks/training_sets.py [--rows 1000000] [--ten-million] [--workers 2]

Both read the same two Parquet files of short rows, some of them duplicates. Ours checks, selects, removes exact
duplicates, shuffles, splits and hashes; `datasets` concatenates, shuffles and saves to disk. Each runs in a process of
its own; memory is what the process and its children hold for themselves (USS), looked at ten times a second.
"""

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import click
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from kimi_helpers.bulk_reconstruction import local_workers
from kimi_helpers.formats import FORMATS, encode_segments
from kimi_helpers.merging import build_set
from kimi_helpers.selection import Policy
from kimi_helpers.training import SET_SCHEMA, Events, rows_of_native
from kimi_helpers.training_inputs import find_source
from kimi_helpers.vocabulary import load_vocabulary

DATASETS = ("a", "b")
PIECE = 100_000  # rows made and written at a time
ASKED, ANSWERED = 24, 72  # ordinary tokens of a row, on average
DUPLICATES = 0.02


def make_file(path: Path, rows: int, seed: int) -> int:
    """Write rows of random ordinary ids, laid out as K2.5 does; how many tokens they have."""
    drawn = np.random.default_rng(seed)
    tokens = 0
    with pq.ParquetWriter(path, SET_SCHEMA, compression="zstd") as writer:
        for start in range(0, rows, PIECE):
            table = piece(min(PIECE, rows - start), f"{path.stem}{start}", path.stem, drawn)
            tokens += int(table["prompt_length"].to_numpy().sum() + table["completion_length"].to_numpy().sum())
            writer.write_table(table, row_group_size=20_000)
    return tokens


def piece(rows: int, name: str, dataset: str, drawn: np.random.Generator) -> pa.Table:
    vocabulary, layout = load_vocabulary(), FORMATS["kimi-k2.5"]
    mark = vocabulary.encode("q")
    prompt = layout.prompt_ids(vocabulary, [{"role": "user", "content": "q"}])
    place = prompt.index(mark[0])
    head, tail = prompt[:place], prompt[place + 1 :]
    end = encode_segments(vocabulary, layout.completion_segments([], []))
    parts, lengths, prompts = [], np.empty(rows, np.int64), np.empty(rows, np.int64)
    for row in range(rows):
        if row and drawn.random() < DUPLICATES:
            parts.append(parts[-1])
            lengths[row], prompts[row] = lengths[row - 1], prompts[row - 1]
            continue
        asked, answered = drawn.integers(1, 2 * ASKED), drawn.integers(1, 2 * ANSWERED)
        text = drawn.integers(0, vocabulary.ranks, asked + answered, dtype=np.int32)
        parts.append(np.concatenate([head, text[:asked], tail, text[asked:], end]).astype(np.int32))
        lengths[row], prompts[row] = len(parts[-1]), len(head) + asked + len(tail)
    stated = {
        "model": pa.array(["moonshotai/kimi-k2.5"] * rows),
        "format": pa.array(["kimi-k2.5"] * rows),
        "provider": pa.array(["P"] * rows),
        "finish_reason": pa.array(["stop"] * rows),
        "source": pa.array(["made"] * rows),
    }
    events = Events([dataset] * rows, [None] * rows, [None] * rows, [f"{name}-{row}" for row in range(rows)])
    flat = np.concatenate(parts), np.concatenate([[0], np.cumsum(lengths)])
    return rows_of_native(flat, prompts, stated, events, None).select(SET_SCHEMA.names)


def ours(folder: Path, workers: int) -> int:
    sources = [find_source(str(folder / f"{name}.parquet")) for name in DATASETS]
    with local_workers(workers) as each:
        manifest = build_set(sources, Policy(), folder / "ours", 0, each=each)
    return sum(file["rows"] for file in manifest["files"])


def theirs(folder: Path, workers: int) -> int:
    from datasets import Dataset, concatenate_datasets  # noqa: PLC0415  (not part of our own start)

    parts = [
        Dataset.from_parquet(str(folder / f"{name}.parquet"), cache_dir=str(folder / "cache")) for name in DATASETS
    ]
    shuffled = concatenate_datasets(parts).shuffle(seed=0)
    shuffled.save_to_disk(str(folder / "theirs"), num_proc=workers)
    return len(shuffled)


def measured(work: Callable[[Path, int], int], folder: Path, workers: int) -> dict[str, float]:
    """How long the work takes and how much memory it and its children hold at most."""
    over, peak = threading.Event(), [0]

    def watch() -> None:
        me = psutil.Process()
        while not over.wait(0.1):
            held = 0
            for process in [me, *me.children(recursive=True)]:
                try:
                    held += process.memory_full_info().uss
                except psutil.Error:  # it ended meanwhile
                    continue
            peak[0] = max(peak[0], held)

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = perf_counter()
    try:
        rows = work(folder, workers)
    finally:
        seconds = perf_counter() - start
        over.set()
        watcher.join()
    return {"seconds": seconds, "rows_out": rows, "peak_bytes": peak[0]}


def compare(rows: int, workers: int) -> None:
    with TemporaryDirectory() as beside:
        folder = Path(beside)
        tokens = sum(make_file(folder / f"{name}.parquet", rows // 2, seed) for seed, name in enumerate(DATASETS))
        print(f"{rows:,} rows, {tokens:,} tokens, {workers} workers")
        seconds = {}
        for name in ("ours", "datasets"):
            command = [sys.executable, __file__, "--part", name, "--folder", str(folder), "--workers", str(workers)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
            told = json.loads(done.stdout.splitlines()[-1])
            seconds[name] = told["seconds"]
            print(
                f"{name:>9}: {told['seconds']:7.1f} s, {rows / told['seconds']:12,.0f} rows/s,"
                f" {tokens / told['seconds']:14,.0f} tokens/s, {told['peak_bytes'] / 2**20:7,.0f} MiB,"
                f" {told['rows_out']:,} rows out"
            )
            for made in ("ours", "theirs", "cache"):
                shutil.rmtree(folder / made, ignore_errors=True)
        print(f"ours takes {seconds['ours'] / seconds['datasets']:.2f} of the time of datasets")


@click.command(help=__doc__)
@click.option("--rows", default=1_000_000, show_default=True)
@click.option("--ten-million", is_flag=True, help="Also 10 million rows.")
@click.option("--workers", default=2, show_default=True)
@click.option("--part", type=click.Choice(["ours", "datasets"]), hidden=True)
@click.option("--folder", type=click.Path(path_type=Path), hidden=True)
def main(rows: int, ten_million: bool, workers: int, part: str | None, folder: Path | None) -> None:
    if part and folder:
        print(json.dumps(measured(ours if part == "ours" else theirs, folder, workers)))
        return
    for number in [rows, *([10_000_000] if ten_million else [])]:
        compare(number, workers)


if __name__ == "__main__":
    main()
