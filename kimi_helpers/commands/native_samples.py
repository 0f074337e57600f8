"""`native-samples`: an engine's token ids against the vocabulary."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from kimi_helpers.commands.shared import format_option, load, tokenizer_option
from kimi_helpers.dataset_rows import DatasetError
from kimi_helpers.formats import FORMATS
from kimi_helpers.native_samples import SUFFIXES, CheckedRow, EndOfTurnConflict, check_samples, summary
from kimi_helpers.vocabulary import UnknownSpecialToken, Vocabulary
from kimi_helpers.workspace import printable


@click.command("native-samples")
@click.argument("samples", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@tokenizer_option
@format_option
def native_samples(samples: Path, tokenizer: str | None, format_name: str | None) -> None:
    """Measure encode(decode(ids)) == ids over SAMPLES (.jsonl or .parquet of an engine's output).

    Prints each stretch that does not come back, then counts by kind. Stops at the first row that ends in another id
    than the end of turn and was not cut. Exit code 1: it stopped, or some rows could not be read.
    """
    if samples.suffix not in SUFFIXES:
        raise click.UsageError(f"{samples} is neither of {', '.join(SUFFIXES)}; write the ids as one of these")
    vocabulary = load(tokenizer, FORMATS[format_name or "kimi-k2.5"])
    try:
        counts = summary(_told(check_samples(samples, vocabulary), vocabulary))
    except (EndOfTurnConflict, DatasetError) as error:
        raise click.ClickException(printable(str(error))) from None
    except UnknownSpecialToken as error:
        raise click.UsageError(f"{error}; give the tokenizer of the engine's model") from None
    for name, kinds in counts.items():
        click.echo(f"{name}: {', '.join(f'{count:,} {kind}' for kind, count in sorted(kinds.items())) or 'none'}")
    sys.exit(counts["rows"]["bad"] > 0)


def _told(rows: Iterable[CheckedRow], vocabulary: Vocabulary) -> Iterator[CheckedRow]:
    """The rows as they come; what is wrong or different is printed as each passes."""
    for row in rows:
        if row.fault is not None:
            click.echo(f"{row.place}: {printable(row.fault)}", err=True)
        for found in row.differences:
            native, encoded = (f"{list(ids)} {vocabulary.decode_bytes(ids)!r}" for ids in (found.native, found.encoded))
            click.echo(f"{row.place}, id {found.start}, {found.kind}: native {native}, encoded {encoded}")
        yield row
