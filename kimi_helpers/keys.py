"""Secrets of this machine: from the environment, else from `.env` at the workspace's root, and masked."""

import os

from dotenv import dotenv_values
from pydantic import SecretStr

from kimi_helpers import workspace

SECRET_VARIABLES = ("_API_KEY", "_TOKEN", "_SECRET", "_PASSWORD")


def get_key(name: str) -> SecretStr:
    """The value of a variable, in a class that shows it nowhere: of the environment, else of `.env`.

    Raises:
        LookupError: it is set in neither.
    """
    key = find_key(name)
    if key is None:
        raise LookupError(f"{name} is not set: export it, or copy .env.example to .env and fill in its line.")
    return key


def find_key(name: str) -> SecretStr | None:
    """As `get_key`; None where it is set in neither."""
    value = (os.environ.get(name) or _dotenv().get(name) or "").strip()
    return SecretStr(value) if value else None


def known_secrets() -> dict[str, SecretStr]:
    """Every variable, of the environment and of `.env`, whose name ends as those of secrets do."""
    everything = _dotenv() | dict(os.environ)
    return {
        name: SecretStr(value)
        for name, value in everything.items()
        if name.upper().endswith(SECRET_VARIABLES) and value
    }


def _dotenv() -> dict[str, str]:
    """What `.env` sets; nothing without one."""
    path = workspace.ROOT / ".env"
    values = dotenv_values(path, interpolate=False) if path.is_file() else {}
    return {name: value for name, value in values.items() if value}
