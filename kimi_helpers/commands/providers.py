"""`providers`: replies -> what each host does, its profile, and the hosts compared."""

import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from kimi_helpers.calibration import read_calibration
from kimi_helpers.commands.shared import check_writable, format_option, load, shown, tokenizer_option, unusable
from kimi_helpers.comparison import compare_hosts, compared_rows, comparison_table
from kimi_helpers.formats import FORMATS, ModelFormat
from kimi_helpers.graded_rows import grade_replies
from kimi_helpers.journal import JournalError
from kimi_helpers.profiles import ProfileError, read_profiles, write_profiles
from kimi_helpers.providers import describe_host, doubt_profiles, finding_rows, profile_of, report_hosts
from kimi_helpers.recommendation import RULE, recommend
from kimi_helpers.reply_sources import SourceError, find_sources, read_sources
from kimi_helpers.vocabulary import Vocabulary


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@tokenizer_option
@format_option
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the profiles learnt (TOML).")
@click.option("--check", type=click.Path(exists=True, dir_okay=False), help="Profiles to hold against the replies.")
@click.option("--findings", is_flag=True, help="Print every finding, part by part.")
@click.option("--compare", is_flag=True, help="Print the comparison of the hosts and the recommendation.")
def providers(
    paths: tuple[Path, ...],
    tokenizer: str | None,
    format_name: str | None,
    out: Path | None,
    check: str | None,
    findings: bool,
    compare: bool,
) -> None:
    """Learn from replies (a calibration's journal, any other, recorded bodies) what each host does to text and count.

    The exit code is 1 where no combination of the parts explains a host, or a profile given to --check is doubted.
    """

    def vocabulary_of(layout: ModelFormat) -> Vocabulary:
        return load(tokenizer, layout)

    try:
        sources = find_sources(paths)
        layout = FORMATS[format_name] if format_name else None
        replies = list(read_sources(sources))
        known = read_profiles(check) if check else {}
    except (SourceError, JournalError, ProfileError) as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise unusable(error, "read") from None
    reports = report_hosts(replies, vocabulary_of, layout)
    for report in reports:
        click.echo(describe_host(report))
    few = sum(report.inference.counted == 1 and report.is_too_few for report in reports)
    click.echo(f"\n{len(reports)} hosts; for {few} of them the one counted reply is too few.")
    if findings:
        click.echo("\n" + finding_rows(reports, read_calibration()).to_string(index=False))
    today = datetime.now(UTC).date()
    learnt = [profile for report in reports if (profile := profile_of(report, today))]
    if out:
        check_writable(out)
        write_profiles(out, learnt, f"Learnt from replies on {today.isoformat()}; hosts change.")
        click.echo(f"\nWrote {len(learnt)} profiles to {shown(out)}")
    if compare:
        by_host = known or {profile.provider: profile for profile in learnt}
        rows = compared_rows(replies, grade_replies(replies, vocabulary_of, by_host, layout))
        hosts = compare_hosts(rows)
        click.echo(f"\n{comparison_table(hosts).T.to_string()}\n\n{RULE}\n{recommend(hosts, rows).reason}")
    doubts = doubt_profiles(known, replies, vocabulary_of, today)
    for doubt in doubts:
        click.echo(f"{doubt.kind}: {doubt.message}", err=True)
    sys.exit(bool(doubts) or any(not report.inference.open for report in reports))
