"""An audit as files: a page that needs no script, and JSON with every id."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from kimi_helpers.official_class import official_quirks
from kimi_helpers.quirks import Audit, audit, impostors, special_slots
from kimi_helpers.rendering import TEMPLATES
from kimi_helpers.token_boundaries import boundary_rates, probe_texts
from kimi_helpers.token_view import visible
from kimi_helpers.tokenizer_claims import check_claims, claims_table
from kimi_helpers.vocabulary import Vocabulary
from kimi_helpers.workspace import write_whole

PAGE, TABLES = "audit.html", "audit.json"
CUTS = 3_000


@dataclass(frozen=True, eq=False)
class Report:
    """What `audit` writes.

    Attributes:
        found: the audit of all ids.
        tables: title -> table, in the order of the page.
    """

    found: Audit
    tables: dict[str, pd.DataFrame]


def make_report(vocabulary: Vocabulary, texts: list[str]) -> Report:
    """Audit a vocabulary, and test claims and boundaries on real texts."""
    found = audit(vocabulary)
    counts = found.counts()
    quirks = official_quirks(vocabulary) if "<|im_end|>" in vocabulary.named else []
    tables = {
        "Classes": pd.DataFrame({"class": list(counts), "ids": list(counts.values())}),
        "Round trip of each id alone": found.round_trip_counts().reset_index(),
        "Ids that change alone, and a text that gives them": _shown(found.changed, "witness"),
        "Ids that no text gives": _shown(found.unreachable, "rule"),
        "Claims": claims_table(check_claims(vocabulary, texts)),
        "Where the official class departs from plain tiktoken": pd.DataFrame(
            [(q.name, q.example, q.plain, q.official) for q in quirks if q.is_seen],
            columns=["what", "example", "plain tiktoken", "official class"],
        ),
        "Special tokens": special_slots(vocabulary).query("named").drop(columns=["named", "gap"]).reset_index(),
        "Texts that only look like special tokens": impostors(vocabulary),
        f"Cuts of real text (n = {CUTS:,})": boundary_rates(probe_texts(vocabulary, texts, CUTS)).reset_index(),
    }
    return Report(found, tables)


def _shown(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    table = rows[["bytes", column]].reset_index()
    table["bytes"] = [visible(data) for data in table["bytes"]]
    return table


def write_report(report: Report, folder: Path) -> tuple[Path, Path]:
    """Write the page and the JSON file, each whole or not at all; their paths."""
    page, tables = folder / PAGE, folder / TABLES
    write_whole(page, _page(report).encode("utf-8", "backslashreplace"))
    write_whole(tables, json.dumps(_json(report), ensure_ascii=True).encode())
    return page, tables


def _page(report: Report) -> str:
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
    return environment.get_template("audit.html").render(
        vocabulary=report.found.vocabulary, tables={title: _cells(table) for title, table in report.tables.items()}
    )


def _cells(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    rows = [[f"{v:.3f}" if isinstance(v, float) else str(v) for v in row] for row in table.itertuples(index=False)]
    return [str(name) for name in table.columns], rows


def _json(report: Report) -> dict[str, Any]:
    tokens = report.found.tokens
    plain = tokens.assign(bytes=[data.hex() for data in tokens["bytes"]]).reset_index()
    vocabulary = report.found.vocabulary
    return {
        "source": vocabulary.source,
        "sha256": vocabulary.sha256,
        "is_kimi": vocabulary.is_kimi,
        "tables": {title: json.loads(table.to_json(orient="records")) for title, table in report.tables.items()},
        "tokens": json.loads(plain.to_json(orient="split", index=False)),
    }
