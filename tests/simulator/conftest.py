"""A server that the tests of one module share."""

from collections.abc import Iterator

import httpx
import pytest

from kimi_helpers.simulator.server import running


@pytest.fixture(scope="module")
def api() -> Iterator[httpx.Client]:
    """A client of a loopback OpenRouter."""
    with running() as url, httpx.Client(base_url=url, timeout=30) as client:
        yield client
