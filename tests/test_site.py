"""The site of all runs: whole, self-contained, and honest about what did not succeed."""

# mypy: disable-error-code="no-untyped-call"

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bs4 import BeautifulSoup
from click.testing import CliRunner

from kimi_helpers import __main__ as cli
from kimi_helpers import workspace
from kimi_helpers.page_safety import faults_of_page
from kimi_helpers.runner import run_pipeline
from kimi_helpers.site import build_site
from kimi_helpers.workspace import ROOT
from tests.test_runner import write_notebook

SCREENSHOTS = ROOT / "build" / "site"

FIGURE = (
    "import matplotlib.pyplot as plt\nfrom kimi_helpers.figures import show\n"
    "figure, axes = plt.subplots(figsize=(2, 1))\naxes.plot([1, 2])\nshow(figure, 'A line that <rises>')"
)
FINDINGS = "from IPython.display import Markdown\n" + (
    "Markdown('* 3 of 4 rows, `<script>alert(1)</script>` (n = 4).\\n* Second.')"
)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, one of them failed, and one that was killed."""
    folder = tmp_path_factory.mktemp("outputs")
    good_dir, bad_dir, killed = (folder / f"2026010{day}-000000" for day in (1, 2, 3))
    for made in (good_dir, bad_dir, killed):
        made.mkdir()
    pq.write_table(pa.table({"token_ids": [[1, 2]], "grade": ["x"]}), folder / "rows.parquet")
    make = f"import shutil\nshutil.copy({str(folder / 'rows.parquet')!r}, {str(good_dir)!r})"
    card = f"open({str(good_dir / 'card.md')!r}, 'w').write('# Card <script>')"
    good = write_notebook(folder / "src" / "01_good.ipynb", make, card, FIGURE, FINDINGS)
    run_pipeline([good], [{}], good_dir)
    bad = write_notebook(folder / "src" / "02_bad.ipynb", "raise ValueError('<img src=x onerror=alert(1)>')")
    run_pipeline([bad], [{}], bad_dir)
    record = json.loads((bad_dir / "run.json").read_text())
    waiting = [{"notebook": "01_good.ipynb", "verdict": None}]
    (killed / "run.json").write_text(json.dumps(record | {"verdict": None, "started": None, "notebooks": waiting}))
    return folder


@pytest.fixture(scope="module")
def site(outputs: Path) -> Path:
    assert build_site(outputs, outputs / "site") == []
    return outputs / "site"


def soup(page: Path) -> BeautifulSoup:
    return BeautifulSoup(page.read_text("utf-8"), "html.parser")


def test_the_index_tells_each_run_with_verdict_and_key_figures(site: Path) -> None:
    index = soup(site / "index.html")
    rows = [[cell.text.strip() for cell in row.find_all(["th", "td"])] for row in index.select("tr.run")]
    assert sorted((row[0], row[2], row[3]) for row in rows) == [
        ("20260101-000000", "succeeded", "01_good"),
        ("20260102-000000", "failed", "02_bad"),
        ("20260103-000000", "unfinished", "01_good"),
    ]
    key = {row[0]: row[4] for row in rows}
    assert key["20260101-000000"] == "3 of 4 rows, `<script>alert(1)</script>` (n = 4)."
    assert key["20260102-000000"] == "ValueError: <img src=x onerror=alert(1)>"


def test_filters_need_no_script(site: Path) -> None:
    index = soup(site / "index.html")
    sheet = "".join(style.text for style in index.find_all("style"))
    buttons = [str(button["id"]) for button in index.select("input[type=radio][id]")]
    assert len(buttons) == 3 + 2
    assert all(f"body:has(#{button}:checked) tr.run:not(.{button})" in sheet for button in buttons)
    for row in index.select("tr.run"):
        assert set(row["class"]) <= {"run", *buttons}


def test_every_page_can_be_shared_and_every_link_leads_to_one(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert {page.relative_to(site).as_posix() for page in pages} == {
        "index.html",
        "20260101-000000/index.html",
        "20260101-000000/01_good.html",
        "20260102-000000/index.html",
        "20260102-000000/02_bad.html",
        "20260103-000000/index.html",
    }
    for page in pages:
        assert faults_of_page(page) == []
        links = [str(link["href"]) for link in soup(page).find_all("a")]
        assert [link for link in links if not link.startswith("#") and not (page.parent / link).exists()] == []


def test_a_run_shows_its_figures_and_its_data(site: Path) -> None:
    page = soup(site / "20260101-000000" / "index.html")
    (picture,) = page.find_all("img")
    assert picture["alt"] == "A line that <rises>"
    assert str(picture["src"]).startswith("data:image/png;base64,")
    (heading,) = [heading for heading in page.find_all("h3") if heading.text == "rows.parquet"]
    table = heading.find_next("table")
    assert table is not None
    facts = {row.select("th")[0].text: row.select("td")[0].text for row in table.select("tbody tr")}
    assert facts["rows"] == "1"
    assert facts["columns"].startswith("token_ids (list<")
    assert facts["columns"].endswith(", grade (string)")
    assert facts["made by"] == "01_good.ipynb"
    assert "Card <script>" in page.text


def test_a_page_with_a_secret_is_left_out(outputs: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "3 of 4 rows")
    faults = build_site(outputs, site)
    assert "index.html: the value of SOME_API_KEY is in it; it was left out" in faults
    assert not (site / "index.html").exists()
    monkeypatch.delenv("SOME_API_KEY")
    assert build_site(outputs, site) == []


def test_the_command_builds_it_and_says_where(outputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "OUTPUTS", outputs)
    result = CliRunner().invoke(cli.main, ["site"])
    assert result.exit_code == 0, result.output
    assert result.output.startswith("6 page(s), the largest of ")
    assert result.output.rstrip().endswith("site/index.html")
    (outputs / "broken").mkdir()
    (outputs / "broken" / "run.json").write_text("{")
    result = CliRunner().invoke(cli.main, ["site"])
    assert (result.exit_code, "broken: run.json is no record of a run" in result.output) == (1, True)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no chromium here: apt install chromium")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_every_page_without_scrolling_aside_or_asking_anyone(
    site: Path, browser: Any, scheme: str
) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme=scheme)
    asked: list[str] = []
    said: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
    for path in sorted(site.rglob("*.html")):
        page.goto(path.as_uri())
        assert page.evaluate("document.scrollingElement.scrollWidth") <= 390, path
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", ground)[:3])) > 380) == (scheme == "light")
        page.screenshot(path=SCREENSHOTS / f"{path.parent.name}_{path.stem}_{scheme}.png", full_page=True)
    page.close()
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert said == []


def test_a_filter_leaves_the_runs_that_it_names(site: Path, browser: Any) -> None:
    page = browser.new_page()
    page.goto((site / "index.html").as_uri())
    assert page.locator("tr.run:visible").count() == 3
    page.get_by_label("failed").check()
    assert page.locator("tr.run:visible th").all_inner_texts() == ["20260102-000000"]
    page.close()
