"""Routing files as notebook 02 writes them, and files that are none."""

import json
from pathlib import Path

import pytest

from kimi_helpers.routing import RoutingError, read_routing


def test_a_file_of_notebook_02_names_model_and_providers(tmp_path: Path) -> None:
    path = tmp_path / "routing.json"
    path.write_text(json.dumps({"model": "moonshotai/kimi-k2.5", "providers": ["chutes/int4"]}))
    routing = read_routing(path)
    assert (routing.model, routing.providers) == ("moonshotai/kimi-k2.5", ["chutes/int4"])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "the file: Invalid JSON"),
        ("[]", "the file: "),
        ('{"model": "m"}', "providers: Field required"),
        ('{"model": "m", "providers": []}', "providers: List should have at least 1 item"),
        ('{"model": "", "providers": ["a"]}', "model: String should have at least 1 character"),
        ('{"model": "m", "providers": "a"}', "providers: Input should be a valid array"),
        ('{"model": "m", "providers": [7]}', r"providers\.0: Input should be a valid string"),
    ],
)
def test_a_file_that_names_no_endpoints_is_refused(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "routing.json"
    path.write_text(text)
    with pytest.raises(RoutingError, match=rf"is no routing\.json \({told}"):
        read_routing(path)


def test_an_absent_file_says_who_writes_it(tmp_path: Path) -> None:
    with pytest.raises(RoutingError, match=r"No such file .* run 02_provider_comparison"):
        read_routing(tmp_path / "routing.json")
