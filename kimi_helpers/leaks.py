"""Secrets: which names announce one, and whether one got into a text.

A parameter is written twice in clear into an executed notebook (papermill: the injected cell and the metadata), and an
exception can print a key. So a secret is refused as a parameter, and what a run wrote is searched before it is kept.
"""

import os
import re

SECRET_WORDS = frozenset(
    {"apikey", "credential", "credentials", "key", "passphrase", "password", "passwd", "secret", "token"}
)
SECRET_VARIABLES = ("_API_KEY", "_TOKEN", "_SECRET")
SHORTEST_SECRET = 8

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_KEY_SHAPE = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"sk-or-v1-[A-Za-z0-9]{8,}"
    r"|sk-(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{16,}"
    r"|hf_[A-Za-z0-9]{16,})"
)


def is_secret_name(name: str) -> bool:
    """Whether a word of the name announces a secret: `api_key` and `hfToken` do, `max_tokens` does not."""
    return any(word.lower() in SECRET_WORDS for word in _WORD.findall(name))


def find_leak(text: str) -> str | None:
    """What secret the text holds, described without its value; None where it holds none.

    Searched are the values (of eight characters or more) of the environment variables named `*_API_KEY`, `*_TOKEN` and
    `*_SECRET`, and the shapes of OpenRouter, OpenAI and Hugging Face keys. Terminal colours do not hide one.
    """
    plain = _ANSI.sub("", text)
    for name, value in os.environ.items():
        if name.upper().endswith(SECRET_VARIABLES) and len(value) >= SHORTEST_SECRET and value in plain:
            return f"the value of {name}"
    return "a text shaped like an API key" if _KEY_SHAPE.search(plain) else None
