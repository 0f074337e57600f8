"""The card of a set: every number against the rows themselves, nothing of it can run, one set has one card."""

import hashlib
import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bs4 import BeautifulSoup
from hypothesis import given
from hypothesis import strategies as st

from kimi_helpers.data_cards import data_card
from kimi_helpers.merging import MANIFEST, build_set, shard_paths
from kimi_helpers.page_safety import faults_of_page, markdown_html
from kimi_helpers.selection import DatasetTerms, Policy
from kimi_helpers.set_cards import CARD, PAGE, plain, write_cards
from kimi_helpers.training_inputs import find_source, residual_of
from tests.training_samples import row, rows_table, write_rows

HOSTILE = "<script>alert(1)</script>|`x`[a](javascript:b)\n"
RESIDUAL = "of 50 replies whose ids the host returned, 2 are split so."
TERMS = {"d": DatasetTerms(licence="Apache-2.0", origin="https://example.org/d")}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sets")
    rows = [row(f"q{n} <b>", f"a{n} ``` </div><script>", name=str(n)) for n in range(12)]
    rows += [row("q0 <b>", "a0", provider=HOSTILE, name="h"), row("x", "y", grade="engine_ids", dataset="e", name="e")]
    rows += [row("z", "z", grade="exact_ambiguous", name="left")]
    source = write_rows(folder / "a.parquet", rows)
    table = pq.read_table(source)
    about = {"kimi_helpers": json.dumps({"residual": RESIDUAL})}
    pq.write_table(table.replace_schema_metadata(about), source)
    build_set([find_source(str(source))], Policy(evaluation=0.3, datasets=TERMS), folder / "set", 7)
    write_cards(folder / "set")
    return folder / "set"


def tables(html: str) -> dict[str, list[list[str]]]:
    """Heading of the first column -> rows of cells."""
    found = {}
    for table in BeautifulSoup(html, "html.parser").find_all("table"):
        head, *body = [[cell.text for cell in line.find_all(["th", "td"])] for line in table.find_all("tr")]
        found.setdefault(head[0], body)
    return found


def test_the_numbers_are_those_of_the_rows(made: Path) -> None:
    read = tables((made / PAGE).read_text())
    rows = [
        each
        for split in ("train", "evaluation")
        for p in shard_paths(made, split)
        for each in pq.read_table(p).to_pylist()
    ]
    grades = Counter(each["grade"] for each in rows)
    tokens = Counter[str]()
    for each in rows:
        tokens[each["grade"]] += sum(each["loss_mask"])
    assert read["grade"] == [[grade, str(number), str(tokens[grade])] for grade, number in grades.most_common()]
    assert [line[:3] for line in read["dataset"][:2]] == [
        ["d", "Apache-2.0", "https://example.org/d"],
        ["e", "not stated", "not stated"],
    ]
    assert sum(int(line[3]) + int(line[4]) for line in read["dataset"][:2]) == len(rows) == 14
    assert read["reason"] == [["grade exact_ambiguous", "1"]]
    digests = {line[0]: line[2] for line in read["file"]}
    assert digests.pop(MANIFEST) == hashlib.sha256((made / MANIFEST).read_bytes()).hexdigest()
    assert digests == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in made.glob("*.parquet")}


def test_what_counts_cannot_see_is_told(made: Path) -> None:
    text = (made / CARD).read_text()
    assert "13 rows rest on the billed count" in text
    assert RESIDUAL in text


def test_every_length_is_below_its_bound(made: Path) -> None:
    soup = BeautifulSoup((made / PAGE).read_text(), "html.parser")
    heading = next(each for each in soup.find_all("h2") if each.text.startswith("Lengths"))
    lines = [[cell.text for cell in line.find_all("td")] for line in heading.find_next("table").find_all("tr")[1:]]
    bounds = {name: [int(bound.replace(",", "")) for bound in bounds] for name, *bounds in lines}
    lengths: dict[str, list[int]] = {}
    for split in ("train", "evaluation"):
        for path in shard_paths(made, split):
            for each in pq.read_table(path).to_pylist():
                lengths.setdefault(each["dataset"], []).append(each["completion_length"])
    assert bounds.keys() == lengths.keys()
    for name, of_name in lengths.items():
        for share, bound in zip((0.5, 0.9, 0.99, 1.0), bounds[name], strict=True):
            assert sum(length < bound for length in of_name) >= share * len(of_name)
            assert bound <= 2 * max(of_name)


def test_the_page_can_be_shared_and_shows_the_mask(made: Path) -> None:
    assert faults_of_page(made / PAGE) == []
    soup = BeautifulSoup((made / PAGE).read_text(), "html.parser")
    assert "<script>alert(1)</script>" in soup.text
    views = soup.find_all("div", class_="tokens")
    assert len(views) == 5
    first = pq.read_table(shard_paths(made, "train")[0]).to_pylist()[0]
    boxes = views[0].find_all("span")
    assert ["prompt" not in box["class"] for box in boxes] == [bool(bit) for bit in first["loss_mask"]]


def test_the_site_shows_the_card_as_it_stands(made: Path) -> None:
    card = data_card(made / CARD, "set/card.md", {"bytes": 1, "sha256": "0"}, "05_training_set")
    soup = BeautifulSoup(card.text, "html.parser")
    assert not soup.find_all(["script", "a"], href=lambda href: bool(href) and "javascript" in href)
    assert soup.find("script") is None
    assert [line for line in tables(card.text)["provider"] if line[0].startswith("<script>")] != []


def test_the_same_set_has_the_same_card(made: Path) -> None:
    before = [(made / name).read_bytes() for name in (CARD, PAGE)]
    write_cards(made)
    assert [(made / name).read_bytes() for name in (CARD, PAGE)] == before


@given(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1))
def test_any_name_stands_for_itself(name: str) -> None:
    html = markdown_html(f"| a | b |\n| --- | --- |\n| {plain(name)} | {plain(None)} |")
    cells = [cell.text for cell in BeautifulSoup(html, "html.parser").find_all("td")]
    assert cells == [name, "not stated"]


def test_what_a_file_says_of_itself_is_read_or_nothing(tmp_path: Path) -> None:
    lines, table = tmp_path / "rows.jsonl", tmp_path / "rows.parquet"
    pq.write_table(rows_table([row("q", "a")]), table)
    assert residual_of(lines) == residual_of(table) == ""
    (tmp_path / "rows.about.json").write_text(json.dumps({"residual": "none"}))
    assert residual_of(lines) == "none"
    for damaged in ("[]", "{", "{}"):
        (tmp_path / "rows.about.json").write_text(damaged)
        assert residual_of(lines) == ""
    pq.write_table(pa.table({"a": [1]}).replace_schema_metadata({"kimi_helpers": '{"residual": "few"}'}), table)
    assert residual_of(table) == "few"
