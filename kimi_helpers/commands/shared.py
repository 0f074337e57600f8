"""What several verbs need: options, a vocabulary loaded once, sentences for files that cannot be used."""

from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from kimi_helpers import workspace
from kimi_helpers.formats import FORMATS, ModelFormat
from kimi_helpers.rank_files import VocabularyError
from kimi_helpers.run_record import new_run_dir
from kimi_helpers.vocabulary import Vocabulary, load_vocabulary

tokenizer_option = click.option(
    "--tokenizer",
    metavar="DIR",
    help="Folder with tiktoken.model and tokenizer_config.json, or a downloaded hub id.  [default: Kimi's own]",
)
format_option = click.option("--format", "format_name", type=click.Choice(sorted(FORMATS)), help="Layout of the model.")


@cache
def load(tokenizer: str | None, format: ModelFormat) -> Vocabulary:
    """The vocabulary that --tokenizer names; loaded once."""
    try:
        return load_vocabulary(tokenizer, format.name)
    except VocabularyError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise unusable(error, "read") from None


def unusable(error: OSError, done: str) -> click.UsageError:
    """The sentence for a file that cannot be read or written."""
    return click.UsageError(f"{error.filename} cannot be {done}: {error.strerror}")


def new_run_folder() -> Path:
    """A new folder of outputs/."""
    try:
        return new_run_dir(workspace.OUTPUTS)
    except OSError as error:
        raise unusable(error, "written") from None


def shown(path: Path) -> str:
    """The path as the reader would type it here."""
    with suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)


def check_writable(target: Path) -> None:
    """Refuse an --out that could not be written, before the work is done."""
    try:
        if target.exists() and not target.is_file():
            raise click.UsageError(f"{target} is a device or a pipe, which the file would replace; name another --out")
        target.parent.mkdir(parents=True, exist_ok=True)
        TemporaryDirectory(dir=target.parent).cleanup()
    except OSError as error:
        raise click.UsageError(f"{target} cannot be written: {error.strerror}; name another --out") from None
