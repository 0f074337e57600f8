"""`vocabulary`: where a vocabulary comes from."""

import click

from kimi_helpers import vocabulary_download
from kimi_helpers.commands.shared import unusable
from kimi_helpers.rank_files import VocabularyError
from kimi_helpers.vocabulary import load_vocabulary


@click.group()
def vocabulary() -> None:
    """Where a vocabulary comes from."""


@vocabulary.command()
@click.argument("hub_id")
@click.option("--revision", help="A full commit.  [default: the newest, which is printed]")
def download(hub_id: str, revision: str | None) -> None:
    """Fetch tiktoken.model and tokenizer_config.json of HUB_ID at one commit, and check them."""
    try:
        commit = revision or vocabulary_download.commit_of(hub_id)
        folder = vocabulary_download.download_vocabulary(hub_id, commit)
        loaded = load_vocabulary(folder)
    except VocabularyError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise unusable(error, "written") from None
    click.echo(f"{hub_id} at {commit}: {loaded.ranks} ranks, {len(loaded.named)} named special tokens\n{folder}")
