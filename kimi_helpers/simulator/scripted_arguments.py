"""Argument texts of the scripted model: values that fit a function's JSON Schema, in the model's own spacing."""

import json
import random
from collections.abc import Mapping
from typing import Any

from kimi_helpers.simulator.scripted_topics import fill

MAX_DEPTH = 5

STRINGS = (
    "⟦city⟧",
    "⟦name⟧, ⟦city⟧ ⟦n⟧",
    "⟦城⟧市⟦n⟧号",
    'a "⟦adjective⟧" ⟦thing⟧',
    "C:\\temp\\⟦noun⟧",
    "line ⟦digit⟧\nline two",
    "naïve café ⟦world⟧",
    "⟦date⟧",
    '{"nested": [⟦n⟧, 2]}',
    "⟦emoji⟧",
    "",
    "SELECT * FROM ⟦noun⟧ WHERE ⟦variable⟧ > ⟦n⟧;",
    "⟦城⟧ West Lake",
    "⟦decimal⟧",
)

Style = Mapping[str, Any]

COMPACT: Style = {"separators": (",", ":")}
SPACED: Style = {"separators": (", ", ": ")}
_STYLES: tuple[Style, ...] = (COMPACT, SPACED, {"separators": (", ", ":")}, {"indent": 2})
_STYLE_WEIGHTS = (49, 47, 2, 2)


def draw_style(draw: random.Random) -> Style:
    """How the calls of a turn are written: compact or spaced; of 50 turns one `{"a":1, "b":2}` and one indented."""
    return draw.choices(_STYLES, _STYLE_WEIGHTS)[0]


def argument_text(parameters: Any, draw: random.Random, style: Style = SPACED) -> str:
    """The arguments of one call as the model writes them: JSON, not escaped to ASCII.

    Args:
        parameters: the function's JSON Schema; whatever is no schema of an object gives `{}`.
        draw: where the choices come from.
        style: of `draw_style`.
    """
    return json.dumps(_object(parameters, draw, 0), ensure_ascii=False, **style)


def _object(schema: Any, draw: random.Random, depth: int) -> dict[str, Any]:
    """Every required property, and of the others some."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return {}
    required = _list(schema.get("required"))
    return {
        name: _value(properties[name], draw, depth + 1)
        for name in properties
        if name in required or draw.random() < 0.5
    }


def _value(schema: Any, draw: random.Random, depth: int) -> Any:
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return _scalar("string", draw)
    if choices := _list(schema.get("enum")):
        return draw.choice(choices)
    kind = schema.get("type")
    kind = str(draw.choice(kind) if isinstance(kind, list) and kind else kind)
    if kind == "object":
        return _object(schema, draw, depth)
    if kind == "array":
        return [_value(schema.get("items"), draw, depth + 1) for _ in range(draw.randint(0, 3))]
    return _scalar(kind, draw)


def _scalar(kind: str, draw: random.Random) -> Any:
    if kind == "integer":
        return draw.choice((0, 1, -7, draw.randint(-99, 99), draw.randint(0, 10**7)))
    if kind == "number":
        return draw.choice((0, 3.5, -12.25, draw.randint(0, 10**5), round(draw.uniform(-90, 900), draw.randint(1, 4))))
    if kind == "boolean":
        return draw.random() < 0.5
    return None if kind == "null" else fill(draw.choice(STRINGS), draw)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
