"""`site`: all runs as pages to share."""

import sys

import click

from kimi_helpers import workspace
from kimi_helpers.commands.shared import shown, unusable
from kimi_helpers.site import build_site


@click.command()
def site() -> None:
    """Build outputs/site/ from all runs: an index, each run's pages, its figures and data cards.

    Exit code 1: a page is there that should not be shared; the fault is named.
    """
    target = workspace.OUTPUTS / "site"
    try:
        faults = build_site(workspace.OUTPUTS, target)
    except OSError as error:
        raise unusable(error, "written") from None
    pages = sorted(target.rglob("*.html"))
    click.echo(f"{len(pages)} page(s), the largest of {max(page.stat().st_size for page in pages):,} bytes")
    for fault in faults:
        click.echo(fault)
    click.echo(f"\nLook at {shown(target / 'index.html')}")
    sys.exit(1 if faults else 0)
