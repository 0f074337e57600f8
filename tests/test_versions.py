"""The table of versions names what is installed."""

import platform
from importlib.metadata import PackageNotFoundError

import httpx
import pandas as pd
import pytest
import tiktoken

from kimi_helpers import versions


def test_python_and_each_package_with_the_version_it_states_itself() -> None:
    table = versions.version_table()
    assert list(table.columns) == ["version"]
    assert table.index.tolist() == ["python", *versions.WATCHED]
    stated = {
        "python": platform.python_version(),
        "httpx": httpx.__version__,
        "pandas": pd.__version__,
        "tiktoken": tiktoken.__version__,
    }
    assert table["version"][list(stated)].to_dict() == stated
    assert table["version"].str.match(r"\d+\.\d+").all()


def test_a_package_that_is_not_installed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "WATCHED", ("no-such-package-here",))
    with pytest.raises(PackageNotFoundError):
        versions.version_table()
