"""How fast texts become ids, and how much memory the bulk encoder takes for very much text.

    python benchmarks/encoding.py                  a table: each way on the same replies, in one run
    python benchmarks/encoding.py --bound          memory while 1 GB of words never seen before is encoded

Ratios carry over to another machine, seconds do not.
"""

import random
import resource
import sys
from collections.abc import Callable, Iterator
from itertools import count
from time import perf_counter

import awkward as ak
import click
import gigatoken
import numpy as np
import psutil

from kimi_helpers import bulk_encoding
from kimi_helpers.bulk_encoding import BulkEncoder
from kimi_helpers.fast_encoding import Encode, fast_encoder
from kimi_helpers.rank_files import packaged_rank_path
from kimi_helpers.simulator.scripted_texts import TOPICS
from kimi_helpers.vocabulary import load_vocabulary

MEAN_BYTES = 8_000
LEXICON = 200_000
BATCH_BYTES = 16_000_000
SYLLABLES = [head + vowel + tail for head in "bcdfghklmnprstvw" for vowel in "aeiou" for tail in ("", "n", "r", "st")]


def replies(megabytes: float, seed: int = 0) -> list[str]:
    """Replies of 8 kB in the mean: the scripted model's texts, with prose between them whose words follow Zipf's law.

    Without the prose a cache would know every text after the first few.
    """
    rng = random.Random(seed)
    lexicon = ["".join(rng.choices(SYLLABLES, k=rng.randint(1, 4))) for _ in range(LEXICON)]
    said = [text for topic in TOPICS for text in (*topic.reasoning, *topic.answers)]
    texts, size = [], 0
    while size < megabytes * 1e6:
        text, length = "", rng.lognormvariate(0, 1) * MEAN_BYTES / np.exp(0.5)
        while len(text.encode()) < length:
            text += f"{rng.choice(said)}\n\n{_prose(rng, lexicon)}\n\n"
        texts.append(text)
        size += len(text.encode())
    return texts


def _prose(rng: random.Random, lexicon: list[str]) -> str:
    """Three sentences; the word of rank r comes about as often as 1 / r."""
    words = [lexicon[int(LEXICON ** rng.random()) - 1] for _ in range(36)]
    sentences = (" ".join(words[start : start + 12]).capitalize() for start in (0, 12, 24))
    return f"{'. '.join(sentences)}, {rng.randrange(10**6)}."


def new_words(kind: str, size: int, rng: np.random.Generator) -> list[str]:
    """Texts of 8 kB, `size` bytes together, of words drawn at random: nearly none comes twice.

    `short` ones have 3 to 9 letters, `long` ones 30, `accented` ones 3 letters of 2 bytes.
    """
    if kind == "accented":
        letters = np.full((size // 7, 4), ord(" "), np.uint32)
        letters[:, :3] = rng.integers(0xC0, 0x250, (len(letters), 3))
        text = letters.tobytes().decode("utf-32-le")
        return [text[start : start + 4_600] for start in range(0, len(text), 4_600)]
    lengths = np.full(size // 31, 31) if kind == "long" else rng.integers(4, 11, size // 7)
    ascii_letters = rng.integers(ord("a"), ord("z") + 1, lengths.sum(), np.uint8)
    ascii_letters[lengths.cumsum() - 1] = ord(" ")
    text = ascii_letters.tobytes().decode("ascii")
    return [text[start : start + 8_000] for start in range(0, len(text), 8_000)]


def compare(megabytes: float, rounds: int) -> None:
    """Print a row a way: the best of some rounds on the same texts, and its ratio to the others."""
    texts = replies(megabytes)
    size = sum(len(text.encode()) for text in texts)
    vocabulary = load_vocabulary()
    bulk = BulkEncoder(vocabulary)
    bare = gigatoken.Tokenizer.from_tiktoken(packaged_rank_path(), "kimi", {})
    ways: dict[str, Callable[[], object]] = {
        "official way: Vocabulary.encode, a text a call": lambda: [vocabulary.encode(text) for text in texts],
        "tiktoken encode_ordinary, a text a call": lambda: [vocabulary.encoding.encode_ordinary(t) for t in texts],
        "gigatoken encode_batch, bare": lambda: bare.encode_batch(texts),
        "BulkEncoder, 1 % checked": lambda: bulk.encode(texts),
    }
    ids, offsets = bulk.encode(texts)
    rows = bare.encode_batch(texts)
    if not (np.array_equal(ids, ak.to_numpy(ak.flatten(rows))) and np.array_equal(np.diff(offsets), ak.num(rows))):
        raise SystemExit("BulkEncoder and gigatoken differ.")
    taken = [[_timed(way) for way in ways.values()] for _ in range(rounds)]
    seconds = dict(zip(ways, map(min, zip(*taken, strict=True)), strict=True))
    official, tiktoken, fast, _ = seconds.values()
    print(f"{len(texts):,} replies, {size / 1e6:.0f} MB, {size / len(texts) / 1e3:.1f} kB in the mean;", end=" ")
    print(f"{len(ids):,} ids; best of {rounds}\n")
    print(f"{'':<48}{'MB/s':>8}{'x official':>12}{'x tiktoken':>12}{'x gigatoken':>13}")
    for name, best in seconds.items():
        ratios = f"{official / best:>12.1f}{tiktoken / best:>12.1f}{fast / best:>13.2f}"
        print(f"{name:<48}{size / best / 1e6:>8.1f}{ratios}")


def _timed(way: Callable[[], object]) -> float:
    start = perf_counter()
    way()
    return perf_counter() - start


def bound(megabytes: float) -> None:
    """Print the process's memory while texts of ever new words are encoded, the kind changing every batch."""
    vocabulary, builds = load_vocabulary(), count()

    def counted() -> Encode:
        next(builds)
        return fast_encoder(vocabulary)

    encoder = BulkEncoder(vocabulary, build=counted)
    process = psutil.Process()
    start = process.memory_info().rss
    done, print_at = 0, 0.0
    print(f"at the start {start / 1e6:.0f} MB; the cache is thrown away past {bulk_encoding.CACHE_BYTES / 1e6:.0f} MB")
    print(f"{'MB encoded':>12}{'resident MB':>14}{'peak MB':>10}")
    for texts in _batches(megabytes * 1e6):
        encoder.encode(texts)
        done += sum(len(text.encode()) for text in texts)
        if done >= print_at:
            print(
                f"{done / 1e6:>12.0f}{process.memory_info().rss / 1e6:>14.0f}{_peak_bytes() / 1e6:>10.0f}", flush=True
            )
            print_at += megabytes * 1e6 / 40
    print(f"grown by at most {(_peak_bytes() - start) / 1e6:.0f} MB; built {next(builds)} times")


def _peak_bytes() -> int:
    """The most that was ever resident, within calls too."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _batches(size: float) -> Iterator[list[str]]:
    rng = np.random.default_rng(0)
    kinds = ("short", "long", "accented")
    for place in range(max(1, round(size / BATCH_BYTES))):
        yield new_words(kinds[place % len(kinds)], min(BATCH_BYTES, int(size)), rng)


@click.command(help=__doc__)
@click.option("--bound", "is_bound", is_flag=True, help="Show the memory instead of the speed.")
@click.option("--megabytes", type=float, help="How much text: 40 by default, 1000 with --bound.")
@click.option("--rounds", default=3, show_default=True, help="How often each way runs; the best counts.")
def main(is_bound: bool, megabytes: float | None, rounds: int) -> None:
    if is_bound:
        bound(megabytes or 1000)
    else:
        compare(megabytes or 40, rounds)


if __name__ == "__main__":
    main()
