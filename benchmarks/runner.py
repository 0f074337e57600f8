"""What the runner costs beside bare papermill, how large the pages are, and how long Lab takes to be usable.

Run on a quiet machine: python benchmarks/runner.py
"""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import httpx
import nbformat
import papermill

from kimi_helpers.pipeline import known_pipeline
from kimi_helpers.runner import run_notebook
from kimi_helpers.workspace import NOTEBOOKS, ROOT

ROUNDS = 5


def small_notebook(folder: Path) -> Path:
    """Ten cells that take no time themselves."""
    cells = [nbformat.v4.new_markdown_cell("# Small")]
    cells.append(nbformat.v4.new_code_cell("n: int = 1  # a number", metadata={"tags": ["parameters"]}))
    cells += [nbformat.v4.new_code_cell(f"print(n + {place})") for place in range(10)]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    path = folder / "small.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)
    return path


def overhead(folder: Path) -> None:
    """Alternates the two, so that a slow moment of the machine meets both."""
    notebook = small_notebook(folder)
    seconds: dict[str, list[float]] = {"papermill": [], "runner": []}
    for round_number in range(ROUNDS):
        begun = time.perf_counter()
        papermill.execute_notebook(notebook, folder / f"{round_number}.ipynb", {"n": 2}, progress_bar=False)
        seconds["papermill"].append(time.perf_counter() - begun)
        begun = time.perf_counter()
        run_notebook(notebook, {"n": 2}, folder / f"run{round_number}")
        seconds["runner"].append(time.perf_counter() - begun)
    bare, ours = median(seconds["papermill"]), median(seconds["runner"])
    print(
        f"bare papermill {bare:.2f} s, runner with page and search {ours:.2f} s: {ours / bare:.2f} times, n = {ROUNDS}"
    )


def page_sizes(folder: Path) -> None:
    """Each notebook's page, from a run with its smallest parameters."""
    for notebook in sorted(NOTEBOOKS.glob("*.ipynb")):
        out = folder / notebook.stem
        given = {"out": str(out)} | known_pipeline().smallest.get(notebook.stem, {})
        run = run_notebook(notebook, given, out)
        sizes = ", ".join(f"{page.stat().st_size:,}" for page in out.glob(f"{notebook.stem}*.html"))
        print(f"{notebook.name}: {run.verdict}, {run.seconds:.1f} s, page(s) of {sizes} bytes")


def lab_start() -> None:
    """From `make launch` to a Lab that answers and to a kernel that has run a line."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = f"--no-browser --allow-root --ServerApp.ip=127.0.0.1 --IdentityProvider.token=t --ServerApp.port={port}"
    begun = time.perf_counter()
    process = subprocess.Popen(
        ["make", "launch", f"ARGS={options}"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        while True:
            try:
                httpx.get(f"http://127.0.0.1:{port}/lab/tree/notebooks?token=t", timeout=5).raise_for_status()
                break
            except httpx.HTTPError:
                if process.poll() is not None:
                    sys.exit("make launch ended by itself")
                time.sleep(0.05)
        print(f"make launch to a page of Lab: {time.perf_counter() - begun:.1f} s")
        kernel = httpx.post(f"http://127.0.0.1:{port}/api/kernels?token=t", json={"name": "python3"}, timeout=60).json()
        while kernel["execution_state"] == "starting":
            time.sleep(0.05)
            kernel = httpx.get(f"http://127.0.0.1:{port}/api/kernels/{kernel['id']}?token=t", timeout=60).json()
        print(f"make launch to an idle kernel: {time.perf_counter() - begun:.1f} s")
    finally:
        os.killpg(process.pid, signal.SIGTERM)


if __name__ == "__main__":
    with TemporaryDirectory() as made:
        overhead(Path(made))
        page_sizes(Path(made))
    lab_start()
