"""The verb `generate`, and the estimate before it, against loopback hosts and by hand."""

import json
from pathlib import Path

from click.testing import CliRunner

from kimi_helpers.__main__ import main
from kimi_helpers.journal import read_totals
from tests.loopback import listed, serve
from tests.test_generation import greet


def test_a_dry_run_states_the_most_and_a_run_goes_on(tmp_path: Path) -> None:
    prompts, journal = tmp_path / "p.jsonl", tmp_path / "j.sqlite"
    prompts.write_text(
        "".join(json.dumps({"messages": [{"role": "user", "content": t}]}) + "\n" for t in "ab"), "utf-8"
    )
    with serve(greet, [listed("loop/int4")]) as (base_url, seen):
        call = ["generate", str(prompts), "--journal", str(journal), "--provider", "loop", "--base-url", base_url]
        dry = CliRunner().invoke(main, [*call, "--max-tokens", "1000", "--dry-run"])
        assert dry.exit_code == 0, dry.output
        assert not journal.exists()
        assert seen.bodies == []
        ran = CliRunner().invoke(main, [*call, "--max-tokens", "1000"])
        assert (ran.exit_code, read_totals(journal).finished) == (0, 2)
        bytes_asked = sum(map(len, seen.bodies))
        # a dollar a million prompt tokens, ten a million of the reply: `listed`
        most = bytes_asked * 1e-6 + 2 * 1000 * 1e-5
        assert f"At most 2 requests, {bytes_asked + 2000:,} tokens, {most:.2f} dollars; 0 replies" in dry.output
        again = CliRunner().invoke(main, [*call, "--max-tokens", "1000"])
        assert "2 were there already" in again.output
        refused = CliRunner().invoke(main, [*call, "--max-tokens", "999"])
        assert refused.exit_code == 2
        assert "begun with max_tokens = 1000" in refused.output
