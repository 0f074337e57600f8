"""JupyterLab as `make launch` starts it, used in a real browser: Debian's chromium, driven by playwright.

Screenshots are kept in build/lab/.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import nbformat
import pytest

from kimi_helpers.workspace import NOTEBOOKS, ROOT

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium")
SCREENSHOTS = ROOT / "build" / "lab"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PLOT = """\
import matplotlib.pyplot as plt
from kimi_helpers.figures import show
from tqdm import tqdm
for _ in tqdm(range(3), desc="counting"): pass
figure, axes = plt.subplots()
axes.plot(range(points))
show(figure, f"A line of {points} points")
"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here: apt install chromium")


@dataclass(frozen=True)
class Lab:
    """A running JupyterLab.

    Attributes:
        url: of its root, with the token.
        folder: a copy of the workspace's notebooks, with one small notebook more.
    """

    url: str
    folder: Path

    def address(self, notebook: str) -> str:
        """Where a notebook opens alone in a fresh workspace."""
        base, _, token = self.url.partition("?")
        return f"{base}lab/workspaces/{notebook[:2]}/tree/notebooks/{notebook}?{token}&reset"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("workspace")
    for name in ("kimi_helpers", "data", "notebooks"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    cells = [
        nbformat.v4.new_markdown_cell("# Small"),  # type: ignore[no-untyped-call]
        nbformat.v4.new_code_cell("points: int = 5  # how many", metadata={"tags": ["parameters"]}),  # type: ignore[no-untyped-call]
        nbformat.v4.new_code_cell(PLOT),  # type: ignore[no-untyped-call]
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    small = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})  # type: ignore[no-untyped-call]
    nbformat.write(small, folder / "notebooks" / "99_small.ipynb")  # type: ignore[no-untyped-call]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    recipe = subprocess.run(
        [
            *("make", "--no-print-directory", "-n", "-o", "environment", "launch"),
            "ARGS=--no-browser --allow-root --ServerApp.ip=127.0.0.1 --IdentityProvider.token=t "
            f"--ServerApp.port={port} --ServerApp.port_retries=0 --ServerApp.root_dir={folder}",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    environment = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_TOKEN"))}
    process = subprocess.Popen(
        ["sh", "-c", recipe.stdout],
        cwd=ROOT,
        env=environment | {"PYTHONPATH": str(folder), "JUPYTER_CONFIG_DIR": str(folder / "config")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    url = f"http://127.0.0.1:{port}/?token=t"
    try:
        for _ in range(300):
            try:
                httpx.get(f"http://127.0.0.1:{port}/api/status?token=t", timeout=2).raise_for_status()
                break
            except httpx.HTTPError:
                assert process.poll() is None, "JupyterLab did not start"
                time.sleep(0.2)
        yield Lab(url, folder)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=30)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    opened = browser.new_page(viewport={"width": 1300, "height": 900})
    asked: list[str] = []
    opened.on("request", lambda request: asked.append(request.url))
    yield opened
    opened.close()
    # nothing is asked of any other host
    assert [url for url in asked if not url.startswith(("http://127.0.0.1", "ws://127.0.0.1", "data:", "blob:"))] == []


def open_notebook(page: Any, lab: Lab, name: str) -> None:
    page.goto(lab.address(name))
    page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=60_000)
    wait_until_idle(page)


def wait_until_idle(page: Any) -> None:
    page.wait_for_function(
        "() => /Python 3 .*\\| Idle/.test("
        "document.querySelector('#jp-main-statusbar')?.innerText.replace(/\\n/g, ' '))",
        timeout=240_000,
    )


def run_all(page: Any, last: int) -> None:
    """Run > Run All Cells; waits until all code cells have their number, the last one `last`."""
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    page.wait_for_function(
        "last => [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')]"
        ".some(prompt => prompt.innerText.trim() === `[${last}]:`)",
        arg=last,
        timeout=240_000,
    )
    wait_until_idle(page)


def test_a_notebook_runs_shows_its_figure_and_runs_again_with_another_parameter(page: Any, lab: Lab) -> None:
    open_notebook(page, lab, "99_small.ipynb")
    run_all(page, 2)
    image = page.locator(".jp-OutputArea img").first
    image.wait_for()
    assert image.evaluate("image => image.naturalWidth > 100")
    assert page.get_by_text("counting: 100%").count() == 1
    page.screenshot(path=SCREENSHOTS / "small_run.png")

    page.locator(".jp-CodeCell .cm-content").first.click()
    page.keyboard.press("Control+a")
    page.keyboard.type("points: int = 9  # how many")
    before = image.get_attribute("src")
    run_all(page, 4)
    assert page.locator(".jp-OutputArea img").first.get_attribute("src") != before
    page.screenshot(path=SCREENSHOTS / "small_run_again.png")


@pytest.mark.parametrize("name", [path.name for path in sorted(NOTEBOOKS.glob("*.ipynb"))])
def test_every_notebook_runs_top_to_bottom_without_a_key(page: Any, lab: Lab, name: str) -> None:
    open_notebook(page, lab, name)
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)  # type: ignore[no-untyped-call]
    count = sum(cell.cell_type == "code" for cell in notebook.cells)
    run_all(page, count)
    assert page.locator('.jp-OutputArea [data-mime-type="application/vnd.jupyter.error"]').count() == 0
    page.screenshot(path=SCREENSHOTS / f"{Path(name).stem}.png")
    page.locator(".jp-WindowedPanel-outer").first.evaluate("panel => panel.scrollTo(0, panel.scrollHeight)")
    page.screenshot(path=SCREENSHOTS / f"{Path(name).stem}_end.png")


def test_lab_opens_with_the_notebooks(page: Any, lab: Lab) -> None:
    base, _, token = lab.url.partition("?")
    page.goto(f"{base}?{token}")
    page.wait_for_selector(".jp-DirListing-item", timeout=60_000)
    names = page.locator(".jp-DirListing-itemText").all_inner_texts()
    assert {path.name for path in NOTEBOOKS.glob("*.ipynb")} <= set(names)
    assert page.get_by_text("Would you like to").count() == 0
