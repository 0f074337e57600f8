"""How notebooks feed each other, as `data/pipeline.toml` says: a new notebook is a line there, not a line of code."""

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from kimi_helpers.notebook_parameters import read_parameters
from kimi_helpers.run_stages import OUT
from kimi_helpers.workspace import DATA


class Feed(BaseModel):
    """A file of one notebook that is a parameter of another."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str = Field(alias="from")
    file: str
    to: str
    parameter: str
    when: dict[str, Any] = {}


class Pipeline(BaseModel):
    """The feeds, and the smallest parameters of each notebook."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    feed: tuple[Feed, ...] = ()
    smallest: dict[str, dict[str, Any]] = {}


@cache
def known_pipeline() -> Pipeline:
    """What `data/pipeline.toml` says."""
    return Pipeline.model_validate(tomllib.loads((DATA / "pipeline.toml").read_text("utf-8")))


def wiring(paths: Sequence[Path], folder: str, given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """For each notebook the values that it has where none is given: `out`, and the files of those before it.

    Args:
        paths: the notebooks of one run, in order.
        folder: of the run, from the workspace's root.
        given: parameters of the whole run, which win over these.
    """
    declared = {path.stem: read_parameters(path) for path in paths}
    values = {
        stem: {name: parameter.default for name, parameter in parameters.items()} | {OUT: folder} | dict(given)
        for stem, parameters in declared.items()
    }
    wired: dict[str, dict[str, Any]] = {
        stem: {OUT: folder} if OUT in parameters else {} for stem, parameters in declared.items()
    }
    for feed in known_pipeline().feed:
        feeds = feed.source in values and feed.parameter in declared.get(feed.to, {})
        if feeds and all(values[feed.source].get(name) == value for name, value in feed.when.items()):
            wired[feed.to][feed.parameter] = f"{values[feed.source][OUT]}/{feed.file}"
    return list(wired.values())
