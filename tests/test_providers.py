"""Host reports and profiles: all loopback hosts, calibrated over HTTP, against how they are built."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from click.testing import CliRunner

from kimi_helpers.calibration import read_calibration
from kimi_helpers.calibration_run import CalibrationStopped, run_calibration
from kimi_helpers.commands.providers import providers
from kimi_helpers.formats import ModelFormat
from kimi_helpers.graded_rows import grade_replies
from kimi_helpers.profiles import ProviderProfile, read_profiles, write_profiles
from kimi_helpers.providers import HostReport, doubt_profiles, finding_rows, profile_of, report_hosts
from kimi_helpers.reply_sources import SourcedReply, read_sources
from kimi_helpers.serving_stacks import ServingStack, Side
from kimi_helpers.simulator.hosts import HOSTS
from kimi_helpers.simulator.scoring import fetch_truth, score
from kimi_helpers.simulator.server import running
from kimi_helpers.stack_space import stack_name
from kimi_helpers.vocabulary import Vocabulary, load_vocabulary

MODEL = "moonshotai/kimi-k2.5"
TODAY = date(2026, 12, 7)
ALL: frozenset[Side] = frozenset({"reasoning start", "reasoning end", "content start", "content end"})
FAITHFUL = ServingStack("", "")
AVIAN: frozenset[Side] = frozenset({"reasoning start"})
# SGLang strips the content only where no call follows it, which is the end of the whole text.
SGLANG: frozenset[Side] = frozenset({"text start", "text end", "content start"})

# How each host is built (simulator/hosts.py), in parts.
BUILT = dict.fromkeys((host.name for host in HOSTS), FAITHFUL) | {
    "Loopback Blanks": replace(FAITHFUL, blanks=True),
    "Loopback Think In Content": replace(FAITHFUL, parses_reasoning=False),
    "Loopback End Not Counted": replace(FAITHFUL, counts_end=False),
    "Loopback Stripped": replace(FAITHFUL, strips_json=ALL, strips_stream=ALL),
    "Loopback Compact Arguments": replace(FAITHFUL, arguments="compact"),
    "Loopback Spaced Arguments": replace(FAITHFUL, arguments="spaced"),
    "Loopback Call Ids": replace(FAITHFUL, arguments="compact", ids="replaced"),
    "Loopback Bare Ids": replace(FAITHFUL, ids="bare"),
    "Loopback Hex Ids": replace(FAITHFUL, ids="replaced", counts_end=False),
    "Loopback Short Forced": replace(FAITHFUL, counts_forced=False),
    "Loopback Avian Like": replace(
        FAITHFUL,
        blanks=True,
        cuts_at_call=True,
        strips_json=AVIAN,
        strips_stream=AVIAN,
        arguments="spaced",
        counts_end=False,
    ),
    "Loopback SGLang Old": replace(
        FAITHFUL, strips_json=SGLANG, strips_stream=frozenset({"reasoning end"}), strips_thinking_only=True
    ),
    "Loopback Trimmed Arguments": replace(FAITHFUL, blanks=True, trims_arguments=True),
}


def vocabulary_of(format: ModelFormat) -> Vocabulary:
    return load_vocabulary(format=format.name)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with running() as url:
        yield url


@pytest.fixture(scope="module")
def journal(server: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("calibration") / "calibration.sqlite"
    hosts = {host.tag: frozenset({"logprobs", "return_token_ids"} if host.evidence else ()) for host in HOSTS}
    done = run_calibration(read_calibration(), hosts, MODEL, path, budget=9, base_url=server)
    assert (done.finished, done.failed) == (70 * len(HOSTS), {})
    again = run_calibration(read_calibration(), hosts, MODEL, path, budget=9, base_url=server)
    assert (again.asked, again.already_finished) == (0, done.finished)
    return path


@pytest.fixture(scope="module")
def replies(journal: Path) -> list[SourcedReply]:
    return list(read_sources([journal]))


@pytest.fixture(scope="module")
def reports(replies: list[SourcedReply]) -> dict[str, HostReport]:
    return {report.host: report for report in report_hosts(replies, vocabulary_of)}


@pytest.fixture(scope="module")
def profiles(reports: dict[str, HostReport]) -> dict[str, ProviderProfile]:
    made = {host: profile_of(report, TODAY) for host, report in reports.items()}
    return {host: profile for host, profile in made.items() if profile}


@pytest.mark.parametrize("host", sorted(BUILT))
def test_the_stack_of_every_loopback_host_is_found(host: str, reports: dict[str, HostReport]) -> None:
    inference = reports[host].inference
    assert inference.leaves_open(BUILT[host])
    if host not in ("Loopback Stripped", "Loopback Leaky Tools", "Loopback Avian Like"):
        assert [stack_name(stack) for stack in inference.stacks()] == [stack_name(BUILT[host])]


def test_habits_beside_the_stack(reports: dict[str, HostReport]) -> None:
    def value(host: str, part: str) -> tuple[str, ...]:
        finding = reports[f"Loopback {host}"].finding(part)
        assert finding is not None
        return finding.values

    assert value("Faithful", "reasoning_tokens") == ("tokens up to and with </think>",)
    assert value("Avian Like", "reasoning_tokens") != ("tokens up to and with </think>",)
    assert value("Call Ids", "prompt") == ("the default system prompt 'You are a helpful assistant'",)
    assert value("Hex Ids", "prompt")[0].startswith("the default system prompt 'You are Kimi")
    assert value("Faithful", "prompt") == ("as the template has it",)
    assert value("Reasoning Content", "reasoning field") == ("reasoning_content",)
    assert value("Returns Ids", "token ids") == ("returned",)
    assert value("Returns Bytes", "logprobs") == ("bytes of every token",)
    assert value("Returns Content Bytes", "logprobs") != ("bytes of every token",)


def test_every_finding_has_its_n_and_confidence(reports: dict[str, HostReport]) -> None:
    table = finding_rows(reports.values(), read_calibration())
    settled = table[table["would tell"] == ""]
    assert (settled["confidence"] <= settled["agreeing"] / settled["n"].clip(lower=1)).all()
    still_open = table[(table["host"] == "Loopback Leaky Tools") & (table["part"] == "arguments")].iloc[0]
    assert still_open["would tell"].startswith("call-spaced")


def test_no_exact_row_is_wrong_under_the_learnt_profiles(
    server: str, replies: list[SourcedReply], profiles: dict[str, ProviderProfile]
) -> None:
    rows = list(grade_replies(replies, vocabulary_of, profiles))
    scores = score(rows, fetch_truth(server, [row.generation_id for row in rows if row.generation_id]))
    assert sum(each.false_exact for each in scores) == 0
    assert sum(each.exact for each in scores) > 900


def test_profiles_are_written_and_read(profiles: dict[str, ProviderProfile], tmp_path: Path) -> None:
    odd = replace(profiles["Loopback Faithful"], provider='a "b"\n\x7f', evidence="c\\d")
    write_profiles(tmp_path / "p.toml", [*profiles.values(), odd], "a heading\nof two lines")
    read = read_profiles(tmp_path / "p.toml")
    assert read == profiles | {odd.provider: odd}
    assert read["Loopback Blanks"].slug == "blanks/int4"
    assert read["Loopback Blanks"].quantization == "int4"
    assert read["Loopback Blanks"].dated == TODAY
    assert read["Loopback Blanks"].model == "moonshotai/kimi-k2.5-0127"


def test_profiles_are_doubted_where_they_are_old_or_contradicted(
    replies: list[SourcedReply], profiles: dict[str, ProviderProfile]
) -> None:
    assert doubt_profiles(profiles, replies, vocabulary_of, TODAY) == []
    wrong = replace(profiles["Loopback Blanks"], provider="Loopback Faithful", model="moonshotai/kimi-k2")
    doubts = doubt_profiles({"Loopback Faithful": wrong}, replies, vocabulary_of, date(2027, 2, 1))
    assert [doubt.kind for doubt in doubts] == ["stale", "other model", "contradicted"]


def test_the_budget_stops_a_calibration(server: str, tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    with pytest.raises(CalibrationStopped, match=r"budget of 0\.001 dollars is used up"):
        run_calibration(read_calibration(), {"faithful/int4": frozenset()}, MODEL, path, budget=0.001, base_url=server)
    assert 0 < len(list(read_sources([path]))) < 40


def test_the_verb_prints_hosts_and_writes_profiles(shared_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "profiles.toml"
    arguments = [str(shared_dir / "recorded"), "--out", str(out), "--findings", "--compare"]
    ran = CliRunner().invoke(providers, arguments)
    assert ran.exit_code == 0, ran.output
    assert "Chutes: more than 60 stacks are not told apart, the plainest: faithful (n = 3)" in ran.output
    assert "13 hosts; for 8 of them the one counted reply is too few." in ran.output
    assert "None:" in ran.output
