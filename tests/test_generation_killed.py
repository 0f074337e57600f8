"""A run that is killed again and again ends in the journal of a run that nobody disturbed."""

import random
import subprocess
import sys
import time
from pathlib import Path

from kimi_helpers.generation import run_generation
from kimi_helpers.journal import JournalError, read_journal
from tests.loopback import listed, serve
from tests.test_generation import SETTINGS, greet, prompts

KILLS = 20
PROMPTS = 400
PROGRAM = """
import sys
from tests.test_generation import SETTINGS, prompts, run_generation
run_generation(prompts(*map(str, range(int(sys.argv[3])))), ["loop"], SETTINGS, sys.argv[1], base_url=sys.argv[2])
"""


def finished(path: Path) -> list[tuple[str, bytes, bytes]]:
    try:
        rows = [each for each in read_journal(path) if each.failure is None]
    except JournalError:
        return []  # killed before the file was laid out
    return sorted((each.key, each.transfer.request, each.transfer.body) for each in rows)


def test_twenty_kills_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    killed, calm = tmp_path / "killed.sqlite", tmp_path / "calm.sqlite"
    rng = random.Random(7)
    grown = []
    with serve(greet, [listed("loop")]) as (base_url, _):
        for _ in range(KILLS):
            before = len(finished(killed)) if killed.exists() else 0
            command = [sys.executable, "-c", PROGRAM, str(killed), base_url, str(PROMPTS)]
            with subprocess.Popen(command, cwd=Path(__file__).parents[1], stderr=subprocess.DEVNULL) as process:
                while process.poll() is None and not killed.exists():
                    time.sleep(0.01)
                time.sleep(rng.uniform(0, 0.6))
                process.kill()
            if killed.exists():
                grown.append(len(finished(killed)) - before)
        assert min(grown) >= 0
        for path in (killed, calm):
            run_generation(prompts(*map(str, range(PROMPTS))), ["loop"], SETTINGS, path, base_url=base_url)
    assert finished(killed) == finished(calm)
    assert len({key for key, _, _ in finished(killed)}) == len(finished(killed)) == PROMPTS
