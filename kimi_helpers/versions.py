"""The versions that a result depends on."""

import platform
from importlib.metadata import version

import pandas as pd

WATCHED = ("kimi-helpers", "tiktoken", "splintr-rs", "transformers", "torch", "httpx", "pandas", "papermill")


def version_table() -> pd.DataFrame:
    """Python and the packages that ids, replies and figures depend on, a row each."""
    versions = {"python": platform.python_version()} | {name: version(name) for name in WATCHED}
    return pd.DataFrame({"version": versions})
