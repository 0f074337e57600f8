"""`reconstruct`: replies -> graded token ids."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from kimi_helpers.bulk_encoding import EncoderMismatch
from kimi_helpers.bulk_reconstruction import ROWS_A_BATCH, BulkSettings, local_workers, reconstruct_many
from kimi_helpers.cluster import ClusterError, reconstruct_on_cluster
from kimi_helpers.commands.shared import (
    check_writable,
    format_option,
    load,
    new_run_folder,
    shown,
    tokenizer_option,
    unusable,
)
from kimi_helpers.formats import FORMATS, ModelFormat
from kimi_helpers.graded_rows import (
    GradedRow,
    describe_as_returned,
    grade_replies,
    grades_by_provider,
    grades_text,
    table_text,
    write_rows,
)
from kimi_helpers.journal import JournalError
from kimi_helpers.profile_choice import describe_profiles, profiles_of_batch
from kimi_helpers.profiles import ProfileError, ProviderProfile, read_profiles
from kimi_helpers.reply_sources import SourceError, find_sources, read_sources, read_tables
from kimi_helpers.serving_stacks import known_stacks
from kimi_helpers.vocabulary import UnknownSpecialToken, Vocabulary


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@tokenizer_option
@format_option
@click.option("--profile", type=click.Path(exists=True, dir_okay=False), help="What is known of hosts (TOML).")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, resolve_path=True, path_type=Path),
    help="JSON lines, or Parquet where it ends in .parquet.  [default: outputs/RUN/]",
)
@click.option("--workers", type=click.IntRange(min=1), help="Processes for Parquet.  [default: one a core]")
@click.option("--engine", type=click.Choice(["local", "ray"]), default="local", help="What runs them, for Parquet.")
@click.option("--address", help="Of a Ray cluster.  [default: one on this machine]")
def reconstruct(
    paths: tuple[Path, ...],
    tokenizer: str | None,
    format_name: str | None,
    profile: str | None,
    out: Path | None,
    workers: int | None,
    engine: str,
    address: str | None,
) -> None:
    """Turn recorded replies (.json, .sse), folders of them, or journals into graded token ids.

    Without --profile the known serving stacks are tried on all replies of each host; those that explain all of them
    stay open, and ids are called exact only where all of these agree and the replies are not few.

    To Parquet any number of replies go in flat memory; then only the grades are printed.
    """

    def vocabulary_of(layout: ModelFormat) -> Vocabulary:
        return load(tokenizer, layout)

    is_bulk = out is not None and out.suffix == ".parquet"
    if not is_bulk and (workers or address or engine != "local"):
        raise click.UsageError("--workers, --engine and --address are for Parquet; name an --out that ends in .parquet")
    if (engine == "ray" and workers) or (engine == "local" and address):
        raise click.UsageError("--workers goes with --engine local, and --address with --engine ray")
    try:
        sources = find_sources(paths)
        format = FORMATS[format_name] if format_name else None
        profiles = read_profiles(profile) if profile else {}
        unexplained: list[str] = []
        if not profile:
            batch = read_sources(sources)
            profiles, unexplained = profiles_of_batch(batch, vocabulary_of, known_stacks(), format)
        if is_bulk and out is not None:
            vocabulary_of(format or FORMATS["kimi-k2.5"])  # its faults are told before any process starts
            grades = _grade_to_parquet(
                sources, BulkSettings(profiles, tokenizer, format), out, workers, engine, address
            )
        else:
            rows = list(grade_replies(read_sources(sources), vocabulary_of, profiles, format))
            as_returned = grade_replies(read_sources(sources), vocabulary_of, {}, format)
            told = describe_as_returned(as_returned)
            grades = grades_by_provider(rows)
    except (ProfileError, SourceError, JournalError) as error:
        raise click.UsageError(str(error)) from None
    except UnknownSpecialToken as error:
        raise click.UsageError(f"{error}; give the tokenizer of the replies' model") from None
    except OSError as error:
        raise unusable(error, "read") from None
    target = out or new_run_folder() / "replies.jsonl"
    if is_bulk:
        click.echo(grades_text(grades))
    else:
        _write(target, rows, profiles)
        click.echo(f"{table_text(rows)}\n\n{told}")
    if not profile:
        click.echo(f"\n{describe_profiles(profiles, unexplained)}")
    click.echo(f"\nWrote {sum(sum(counts.values()) for counts in grades.values())} rows to {shown(target)}")
    sys.exit(any(counts["failed"] for counts in grades.values()))


def _grade_to_parquet(
    sources: Sequence[Path],
    settings: BulkSettings,
    out: Path,
    workers: int | None,
    engine: str,
    address: str | None,
) -> dict[str, dict[str, int]]:
    check_writable(out)
    try:
        if engine == "ray":
            return reconstruct_on_cluster(sources, settings, out, address)
        with local_workers(workers) as each:
            return reconstruct_many(read_tables(sources, ROWS_A_BATCH), settings, out, each)
    except ClusterError as error:
        raise click.UsageError(str(error)) from None
    except EncoderMismatch as error:
        raise click.ClickException(str(error)) from None


def _write(target: Path, rows: Sequence[GradedRow], profiles: Mapping[str, ProviderProfile]) -> None:
    check_writable(target)
    try:
        write_rows(target, rows, profiles)
    except OSError as error:
        raise click.UsageError(f"{target} cannot be written: {error.strerror}; name another --out") from None
