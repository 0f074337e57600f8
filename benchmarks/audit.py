"""How long an audit takes, and its round trip of every id against the official class's own methods in one run.

    python benchmarks/audit.py                       the audit alone
    python benchmarks/audit.py --official FILE.py    beside the class of that file, which is executed: read it first

Ratios carry over to another machine, seconds do not.
"""

import importlib.util
from pathlib import Path
from time import perf_counter
from typing import Any

import click
from tokenizers import AddedToken

from kimi_helpers.quirks import audit, round_trips
from kimi_helpers.rank_files import packaged_rank_path
from kimi_helpers.vocabulary import Vocabulary, load_vocabulary


def official(file: Path, vocabulary: Vocabulary) -> Any:
    """The official class, from a file that the caller names and has read."""
    spec = importlib.util.spec_from_file_location("tokenization_kimi", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    added = {token.id: AddedToken(token.text, special=token.special) for token in vocabulary.named.values()}
    return module.TikTokenTokenizer(
        str(packaged_rank_path()), pad_token="[PAD]", unk_token="[UNK]", added_tokens_decoder=added
    )


@click.command(help=__doc__)
@click.option("--official", "file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
def main(file: Path | None) -> None:
    vocabulary = load_vocabulary()
    start = perf_counter()
    found = audit(vocabulary)
    print(f"audit of {vocabulary.size:,} ids: {perf_counter() - start:.2f} s")
    tokens = list(found.tokens["bytes"])
    start = perf_counter()
    round_trips(vocabulary, tokens)
    ours = perf_counter() - start
    print(f"round trip of every id: {ours:.3f} s")
    if file is None:
        print("no --official FILE: nothing to compare with")
        return
    tokenizer = official(file, vocabulary)
    start = perf_counter()
    for id in range(vocabulary.size):
        tokenizer.encode(tokenizer.decode([id]))
    theirs = perf_counter() - start
    print(f"official class, without keywords: {theirs:.3f} s, {theirs / ours:.1f} times ours")


if __name__ == "__main__":
    main()
