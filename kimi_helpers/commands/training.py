"""`training`: graded replies -> training sets -> the formats of trainers."""

from contextlib import AbstractContextManager
from pathlib import Path

import click

from kimi_helpers.bulk_reconstruction import OrderedMap, local_workers
from kimi_helpers.cluster import ClusterError, cluster_workers
from kimi_helpers.commands.shared import format_option, new_run_folder, shown, tokenizer_option
from kimi_helpers.decontamination import BenchmarkError
from kimi_helpers.exports.conversations import Exported
from kimi_helpers.exports.hugging_face import export_hugging_face
from kimi_helpers.exports.model_optimizer import export_model_optimizer
from kimi_helpers.exports.specforge import export_specforge, export_specforge_conversations
from kimi_helpers.exports.speculators import export_speculators
from kimi_helpers.journal import JournalError
from kimi_helpers.merging import MergeError, build_set
from kimi_helpers.profiles import ProfileError
from kimi_helpers.rank_files import VocabularyError
from kimi_helpers.selection import PolicyError, read_policy
from kimi_helpers.set_cards import CARD, PAGE, write_cards
from kimi_helpers.set_tasks import SPLITS, Fields, added
from kimi_helpers.training_inputs import InputSettings, TrainingInputError, find_source
from kimi_helpers.workspace import DATA, printable

FAULTS = (
    BenchmarkError,
    ClusterError,
    JournalError,
    MergeError,
    PolicyError,
    ProfileError,
    TrainingInputError,
    VocabularyError,
)
TRAINERS = ("specforge", "specforge-conversations", "speculators", "model-optimizer", "datasets")


@click.group()
def training() -> None:
    """Make training sets, and export them to trainers."""


@training.command()
@click.argument("inputs", nargs=-1, required=True, metavar="[DATASET=]FILE...")
@click.option("--policy", type=click.Path(path_type=Path), default=DATA / "policies" / "exact.toml", help="TOML.")
@click.option("--seed", default=0, show_default=True, help="Of order, choice and split.")
@click.option("--size", type=click.IntRange(min=0), default=0, help="How many rows at most; 0: all.")
@click.option("--journal", "journals", multiple=True, type=click.Path(exists=True), help="Where a journal lies now.")
@click.option("--out", type=click.Path(resolve_path=True, path_type=Path), help="Folder.  [default: outputs/RUN/set]")
@click.option("--workers", type=click.IntRange(min=1), help="Processes.  [default: one a core]")
@click.option("--engine", type=click.Choice(["local", "ray"]), default="local", help="What runs them.")
@click.option("--address", help="Of a Ray cluster.  [default: one on this machine]")
@tokenizer_option
@format_option
def build(
    inputs: tuple[str, ...],
    policy: Path,
    seed: int,
    size: int,
    journals: tuple[str, ...],
    out: Path | None,
    workers: int | None,
    engine: str,
    address: str | None,
    tokenizer: str | None,
    format_name: str | None,
) -> None:
    """Select, merge, shuffle and split INPUTS: graded replies, training rows, or ids of an engine (JSONL, Parquet)."""
    if (engine == "ray" and workers) or (engine == "local" and address):
        raise click.UsageError("--workers goes with --engine local, and --address with --engine ray")
    settings = InputSettings({Path(path).name: path for path in journals}, tokenizer, format_name or "kimi-k2.5")
    mapped: AbstractContextManager[OrderedMap] = cluster_workers(address) if engine == "ray" else local_workers(workers)
    try:
        sources = [find_source(given) for given in inputs]
        target = out or new_run_folder() / "set"
        with mapped as each:
            manifest = build_set(sources, read_policy(policy), target, seed, size, settings, each)
        write_cards(target, tokenizer)
    except FAULTS as error:
        raise click.UsageError(printable(str(error))) from None
    except OSError as error:
        raise click.UsageError(f"{error.filename} cannot be used: {error.strerror}") from None
    click.echo(f"{_summary(manifest)}\n\nWrote {shown(target)}; {CARD} and {PAGE} in it say what it is")


def _summary(manifest: Fields) -> str:
    lines = [f"{manifest['rows_read']} rows read"]
    lines += [
        f"{number:>10} left out: {printable(reason)}"
        for reason, number in added(list(manifest["rejected"].values())).items()
        if number
    ]
    for split in SPLITS:
        groups = manifest["groups"][split]
        rows, tokens = (sum(group[name] for group in groups) for name in ("rows", "completion_tokens"))
        lines.append(f"{rows:>10} in {split}, {tokens} sampled tokens")
    return "\n".join(lines)


@training.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--to", "trainer", type=click.Choice(TRAINERS), required=True)
@click.option("--out", type=click.Path(resolve_path=True, path_type=Path), required=True, help="A new folder.")
@click.option("--draft-vocabulary", "size", type=click.IntRange(min=1), default=32_000, show_default=True)
@tokenizer_option
def export(folder: Path, trainer: str, out: Path, size: int, tokenizer: str | None) -> None:
    """Write the training set FOLDER in a trainer's format."""
    try:
        told = _export(folder, trainer, out, size, tokenizer)
    except (MergeError, VocabularyError, ValueError, FileExistsError) as error:
        raise click.UsageError(printable(str(error))) from None
    click.echo("\n".join([*told, f"Wrote {shown(out)}"]))


def _export(folder: Path, trainer: str, out: Path, size: int, tokenizer: str | None) -> list[str]:
    """What is to be told of the export, a line each."""
    if trainer == "specforge":
        export_specforge(folder, out, size)
    elif trainer == "speculators":
        export_speculators(folder, out, size)
    elif trainer == "datasets":
        export_hugging_face(folder, out)
    elif trainer == "specforge-conversations":
        return _told(export_specforge_conversations(folder, out, size, tokenizer))
    else:
        return _told(export_model_optimizer(folder, out, tokenizer))
    return []


def _told(exported: Exported) -> list[str]:
    lines = [f"{exported.rows:>10} conversations"]
    return [*lines, *(f"{number:>10} left out: {reason}" for reason, number in exported.left_out.items())]
