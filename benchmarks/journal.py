"""How long a journal of a million replies takes to write and to go on with, and in how much memory.

    python benchmarks/journal.py [--rows 1000000] [--body 4000]

To go on, a run asks the journal, 64 keys at a time, which requests it holds. The peer, in the same run, is what a plain
script would do: all keys into one set.
"""

import random
import tempfile
from pathlib import Path
from time import perf_counter

import click
import psutil

from kimi_helpers.journal import Exchange, Journal, exchange_key
from kimi_helpers.openrouter import Transfer

ROWS_A_TRANSACTION = 1000
KEYS_A_LOOK = 64
MEGABYTE = 1 << 20


def replies(start: int, stop: int, body: int) -> list[Exchange]:
    """Exchanges whose streams are unlike each other, a third of them text that repeats."""
    made = []
    for number in range(start, stop):
        rng = random.Random(number)
        request = b'{"model":"moonshotai/kimi-k2.5","messages":[{"role":"user","content":"%d"}]}' % number
        stream = rng.randbytes(body // 3).hex().encode() + b"data: " * (body // 18)
        chunks = ((len(stream), 200_000),)
        transfer = Transfer(request, 200, {}, stream, chunks, "2026-12-07T12:00:00+00:00", 0.2, None)
        key = exchange_key("bench", str(number), 0, request)
        made.append(Exchange(key, "bench", str(number), "loop/int4", "m", 0, None, transfer, 10, 20, 0.001))
    return made


@click.command()
@click.option("--rows", default=1_000_000, show_default=True)
@click.option("--body", default=4_000, show_default=True, help="Bytes of a reply before compression.")
def main(rows: int, body: int) -> None:
    """Write, close, open again, look through."""
    process = psutil.Process()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "journal.sqlite")
        start = perf_counter()
        with Journal.open(path, {"dataset": "bench"}) as journal:
            for first in range(0, rows, ROWS_A_TRANSACTION):
                journal.add_many(replies(first, min(first + ROWS_A_TRANSACTION, rows), body))
        seconds = perf_counter() - start
        click.echo(f"written: {rows:,} rows, {path.stat().st_size / MEGABYTE:,.0f} MB, {seconds:.0f} s")
        some = [key for first in range(0, rows, max(1, rows // 20)) for key in _keys(first, min(first + 5000, rows))]
        before = process.memory_info().rss
        start = perf_counter()
        journal = Journal.open(path, {"dataset": "bench"})
        opened = perf_counter() - start
        found = 0
        start = perf_counter()
        for first in range(0, len(some), KEYS_A_LOOK):
            found += len(journal.finished_among(some[first : first + KEYS_A_LOOK]))
        looked = (perf_counter() - start) * rows / len(some)
        grown = process.memory_info().rss - before
        assert found == len(some)
        click.echo(
            f"to go on: {opened:.3f} s to open, {looked:.1f} s to look up all {rows:,}; {grown / MEGABYTE:.0f} MB"
        )
        start = perf_counter()
        everything = journal.finished_keys()
        click.echo(
            f"the peer: {perf_counter() - start:.1f} s for a set of {len(everything):,} keys; "
            f"{(process.memory_info().rss - before) / MEGABYTE:.0f} MB"
        )
        journal.close()


def _keys(first: int, stop: int) -> list[str]:
    return [each.key for each in replies(first, stop, 18)]


if __name__ == "__main__":
    main()
