"""The audit verb and its files."""

import json
from pathlib import Path

from bs4 import BeautifulSoup
from click.testing import CliRunner

from kimi_helpers.__main__ import main
from tests.conftest import tiny_rank_file, tiny_table, write_folder


def test_the_verb_writes_a_page_and_json(tmp_path: Path) -> None:
    table = tiny_table()
    folder = write_folder(tmp_path / "tok<b>", tiny_rank_file(), table)
    (tmp_path / "texts.txt").write_text("the thing\n\n<script>alert(1)</script>\n", "utf-8")
    out = tmp_path / "out"
    arguments = ["audit", "--tokenizer", str(folder), "--texts", str(tmp_path / "texts.txt"), "--out", str(out)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert "516  all ids" in result.output

    page = BeautifulSoup((out / "audit.html").read_text("utf-8"), "html.parser")
    assert page.find("script") is None
    assert page.h1 is not None
    assert page.h1.text == "Audit of tok<b>"
    assert {head["scope"] for head in page.select("th")} == {"col"}

    data = json.loads((out / "audit.json").read_text("utf-8"))
    columns, rows = data["tokens"]["columns"], data["tokens"]["data"]
    assert len(rows) == 516
    token = dict(zip(columns, rows[257], strict=True))
    assert (token["id"], token["bytes"], token["text"], token["round_trip"]) == (257, "746865", "the", "same")


def test_wrong_arguments_are_told(tmp_path: Path) -> None:
    for arguments in (["--tokenizer", str(tmp_path / "none")], ["--texts", str(tmp_path / "none")]):
        result = CliRunner().invoke(main, ["audit", *arguments])
        assert result.exit_code == 2
        assert "no such" in result.output
