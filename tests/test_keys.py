"""Keys come from the environment, else from `.env`, and show themselves nowhere."""

from pathlib import Path

import pytest

from kimi_helpers import workspace
from kimi_helpers.keys import get_key, known_secrets


@pytest.fixture
def dotenv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(workspace, "ROOT", tmp_path)
    path = tmp_path / ".env"
    path.write_text(
        "# a comment\nONE_API_KEY='of the file $HOME'\nexport TWO_TOKEN=second\nPLAIN=no secret\nEMPTY_TOKEN=\n"
    )
    return path


def test_a_key_is_masked_wherever_it_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE_API_KEY", " correct horse ")
    key = get_key("ONE_API_KEY")
    assert key.get_secret_value() == "correct horse"
    assert "horse" not in f"{key} {key!r} {[key]}"


def test_the_environment_wins_over_the_file(dotenv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert dotenv.exists()
    assert get_key("ONE_API_KEY").get_secret_value() == "of the file $HOME"
    assert get_key("TWO_TOKEN").get_secret_value() == "second"
    monkeypatch.setenv("ONE_API_KEY", "of the environment")
    assert get_key("ONE_API_KEY").get_secret_value() == "of the environment"


@pytest.mark.usefixtures("dotenv")
def test_a_key_that_is_set_nowhere_is_asked_for() -> None:
    for name in ("EMPTY_TOKEN", "NO_SUCH_API_KEY"):
        with pytest.raises(LookupError, match=rf"{name} is not set: export it, or copy .env.example to .env"):
            get_key(name)


@pytest.mark.usefixtures("dotenv")
def test_what_is_secret_is_known_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THREE_SECRET", "third")
    secrets = known_secrets()
    assert {"ONE_API_KEY", "TWO_TOKEN", "THREE_SECRET"} <= set(secrets)
    assert {"PLAIN", "EMPTY_TOKEN", "HOME"}.isdisjoint(secrets)
    assert "third" not in repr(secrets)
