"""Where the workspace keeps its own small data and what it may cache."""

from pathlib import Path

import platformdirs

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "data"
NOTEBOOKS = ROOT / "notebooks"
OUTPUTS = ROOT / "outputs"


def cache_folder() -> Path:
    """The user's cache folder of this package: everything in it can be made again."""
    return platformdirs.user_cache_path("kimi-helpers")
