"""What a file of a run is, in a few facts that a reader can check."""

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from kimi_helpers.page_safety import markdown_html

MOST_COLUMNS = 40


@dataclass(frozen=True)
class DataCard:
    """A file that a run made.

    Attributes:
        name: from the run's folder.
        facts: what it holds, as names and values.
        text: HTML of a card that the run itself wrote, harmless; empty for any other file.
    """

    name: str
    facts: tuple[tuple[str, str], ...]
    text: str = ""


def data_card(path: Path, name: str, made: dict[str, Any], maker: str) -> DataCard:
    """The card of a file that lies at `path`, of which the run's record says `made` (bytes and SHA-256)."""
    facts = [("made by", maker), ("bytes", f"{made['bytes']:,}"), ("SHA-256", str(made["sha256"]))]
    text = ""
    if path.is_file():
        facts += _facts(path)
        text = markdown_html(path.read_text("utf-8", errors="replace")) if path.suffix == ".md" else ""
    else:
        facts.append(("state", "the file is not there any more"))
    return DataCard(name, tuple(facts), text)


def _facts(path: Path) -> list[tuple[str, str]]:
    readers = {".parquet": _of_parquet, ".jsonl": _of_lines, ".sqlite": _of_sqlite, ".json": _of_json}
    try:
        return readers[path.suffix](path) if path.suffix in readers else []
    except (ValueError, OSError, sqlite3.Error, pa.ArrowException) as error:
        return [("state", f"cannot be read: {type(error).__name__}")]


def _of_parquet(path: Path) -> list[tuple[str, str]]:
    with pq.ParquetFile(path) as file:
        columns = [f"{field.name} ({field.type})" for field in file.schema_arrow]
        return [("rows", f"{file.metadata.num_rows:,}"), ("columns", _listed(columns))]


def _of_lines(path: Path) -> list[tuple[str, str]]:
    count, names = 0, []
    with path.open("rb") as lines:
        for line in lines:
            if not count:
                first = json.loads(line)
                names = list(first) if isinstance(first, dict) else []
            count += 1
    return [("rows", f"{count:,}"), ("fields of the first", _listed(names))]


def _of_sqlite(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        counts = [database.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0] for table in tables]
    return [(f"rows of {table}", f"{count:,}") for table, count in zip(tables, counts, strict=True)]


def _of_json(path: Path) -> list[tuple[str, str]]:
    content = json.loads(path.read_bytes())
    if isinstance(content, list):
        return [("entries", f"{len(content):,}")]
    return [("fields", _listed(list(content)))] if isinstance(content, dict) else []


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MOST_COLUMNS} more" if len(names) > MOST_COLUMNS else ""
    return ", ".join(names[:MOST_COLUMNS]) + more
