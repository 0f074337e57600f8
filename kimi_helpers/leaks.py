"""Secrets: which names announce one, and whether one got into a text or a file.

A parameter is written twice in clear into an executed notebook (papermill: the injected cell and the metadata), and an
exception can print a key. So a secret is refused as a parameter, and what a run wrote is searched before it is kept.
"""

import html
import json
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from kimi_helpers.keys import known_secrets

SECRET_WORDS = frozenset(
    {"apikey", "credential", "credentials", "key", "passphrase", "password", "passwd", "secret", "token"}
)
SHORTEST_SECRET = 8
# Replies and rows hold the words of a model, which may look like a key: only true values are looked for in them.
DATA_SUFFIXES = frozenset({".jsonl", ".parquet", ".sqlite", ".safetensors", ".npy", ".npz", ".pt", ".arrow", ".model"})
BLOCK = 1 << 24
ZSTD = b"\x28\xb5\x2f\xfd"  # how its frames begin

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

    Searched are the values (of eight characters or more) of the variables of the environment and of `.env` named
    `*_API_KEY`, `*_TOKEN`, `*_SECRET` and `*_PASSWORD`, as they are and as JSON, HTML and addresses spell them; and
    texts shaped like keys of OpenRouter, OpenAI and Hugging Face. Terminal colours do not hide one.
    """
    return _find(text, _spellings(), shapes=True)


def find_leak_in_file(path: Path) -> str | None:
    """What secret the file holds; compressed columns of Parquet and cells of SQLite are read, other files as bytes."""
    spellings, shapes = _spellings(), path.suffix not in DATA_SUFFIXES
    return next((leak for text in _texts(path) if (leak := _find(text, spellings, shapes))), None)


def _spellings() -> dict[str, str]:
    """How a known secret may be spelled -> the name of its variable."""
    values = {name: secret.get_secret_value() for name, secret in known_secrets().items()}
    return {
        spelling: name
        for name, value in values.items()
        if len(value) >= SHORTEST_SECRET
        for spelling in (value, json.dumps(value)[1:-1], html.escape(value), quote(value, safe=""))
    }


def _find(text: str, spellings: Mapping[str, str], shapes: bool) -> str | None:
    plain = _ANSI.sub("", text)
    for spelling, name in spellings.items():
        if spelling in plain:
            return f"the value of {name}"
    return "a text shaped like an API key" if shapes and _KEY_SHAPE.search(plain) else None


def _texts(path: Path) -> Iterator[str]:
    readers = {".parquet": _parquet_texts, ".sqlite": _sqlite_texts}
    try:
        yield from readers.get(path.suffix, _plain_texts)(path)
    except (pa.ArrowException, sqlite3.Error):  # it has the suffix alone
        yield from _plain_texts(path)


def _plain_texts(path: Path) -> Iterator[str]:
    """Blocks of the file that overlap, so that no value is cut by a border."""
    overlap = max(map(len, _spellings()), default=0) + 1024
    kept = b""
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            yield (kept + block).decode("utf-8", errors="replace")
            kept = (kept + block)[-overlap:]


def _parquet_texts(path: Path) -> Iterator[str]:
    with pq.ParquetFile(path) as file:
        yield str(file.schema_arrow.metadata)
        names = [field.name for field in file.schema_arrow if _holds_text(field.type)]
        for batch in file.iter_batches(batch_size=1024, columns=names):
            yield json.dumps(batch.to_pylist(), default=_as_text, ensure_ascii=False)


def _holds_text(kind: pa.DataType) -> bool:
    return any(name in str(kind) for name in ("string", "binary"))


def _sqlite_texts(path: Path) -> Iterator[str]:
    with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for row in database.execute(f'SELECT * FROM "{table}"'):
                yield "\n".join(_as_text(value) for value in row)


def _as_text(value: Any) -> str:
    if isinstance(value, bytes) and value.startswith(ZSTD):
        value = pa.CompressedInputStream(pa.BufferReader(value), "zstd").read()
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value)
