"""The bar in a log: whole lines, seldom, and the last one at the end."""

import io
import sys

import pytest

from kimi_helpers.progress import SECONDS_IN_A_LOG, open_bar


def test_a_log_gets_whole_lines_and_no_carriage_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    with open_bar("B1", 1000) as bar:
        for _ in range(1000):
            bar.update()
        bar.set_postfix_str("0 failed", refresh=False)
    text = log.getvalue()
    assert "\r" not in text
    lines = text.splitlines()
    assert len(lines) == 2  # the first and the last: a thousand replies took less than half a minute
    assert lines[0].startswith("B1:   0%")
    assert "1000/1000" in lines[-1]
    assert lines[-1].endswith("0 failed]")
    assert bar.mininterval == SECONDS_IN_A_LOG


def test_a_terminal_gets_one_line_that_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with open_bar("B1", None) as bar:
        bar.update(3)
    assert terminal.getvalue().count("\n") == 1
    assert "\r" in terminal.getvalue()
    assert "3reply" in terminal.getvalue()
