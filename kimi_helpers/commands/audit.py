"""`audit`: every id of a vocabulary -> a page and JSON."""

from pathlib import Path

import click

from kimi_helpers.audit_report import PAGE, make_report, write_report
from kimi_helpers.commands.shared import check_writable, format_option, load, new_run_folder, shown, tokenizer_option
from kimi_helpers.formats import FORMATS
from kimi_helpers.real_texts import TextsError, sample_texts

TEXTS = 300


@click.command("audit")
@tokenizer_option
@format_option
@click.option("--texts", type=click.Path(path_type=Path), help="Folder or file of real texts.  [default: Python's own]")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder for the report.")
def audit(tokenizer: str | None, format_name: str | None, texts: Path | None, out: Path | None) -> None:
    """Look at every id of a vocabulary: classes, round trips, ids that no text gives, claims, boundaries."""
    vocabulary = load(tokenizer, FORMATS[format_name or "kimi-k2.5"])
    if out:
        check_writable(out / PAGE)
    try:
        sample = list(sample_texts(texts, TEXTS).values())
    except (TextsError, OSError) as error:
        raise click.UsageError(str(error)) from None
    report = make_report(vocabulary, sample)
    page, tables = write_report(report, out or new_run_folder())
    for name, count in report.found.counts().items():
        click.echo(f"{count:>9,}  {name}")
    click.echo(f"{len(report.found.unreachable):>9,}  ordinary ids that no text gives")
    for row in report.tables["Claims"].itertuples():
        click.echo(f"{row.verdict}: {row.claim}")
    click.echo(f"\nWritten: {shown(page)} and {shown(tables)}")
