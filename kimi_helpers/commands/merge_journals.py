"""`merge-journals`: several journals into one."""

from pathlib import Path

import click

from kimi_helpers.commands.shared import shown
from kimi_helpers.journal import JournalError
from kimi_helpers.journal_merging import merge_journals as merge

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("journals", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--into", required=True, type=_FILE, help="The journal to write; it is begun where it does not exist.")
def merge_journals(journals: tuple[Path, ...], into: Path) -> None:
    """Write the attempts of JOURNALS, of this layout or an earlier one, into one journal. They are left as they are."""
    try:
        written = merge(journals, into)
    except JournalError as error:
        raise click.UsageError(str(error)) from None
    click.echo(f"Wrote {written} attempts to {shown(into)}")
