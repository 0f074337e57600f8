"""Argument texts of the scripted model: values that fit a function's JSON Schema, in the model's own spacing."""

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

MAX_DEPTH = 5

STRINGS = (
    "Florence",
    "北京市海淀区",
    'a "quoted" word',
    "C:\\temp\\new",
    "line one\nline two",
    "naïve café",
    "2024-02-29",
    '{"nested": [1, 2]}',
    "🙂",
    "",
    "SELECT * FROM t WHERE a > 1;",
    "杭州 West Lake",
)
NUMBERS = (0, 1, -7, 3.5, 42, 1000000, 0.001, -12.25)

_STYLES: tuple[Mapping[str, Any], ...] = (
    {"separators": (",", ":")},
    {"separators": (", ", ": ")},
    {"separators": (", ", ":")},
    {"indent": 2},
)
_SCALARS: Mapping[str, Sequence[Any]] = {
    "number": NUMBERS,
    "integer": [int(number) for number in NUMBERS],
    "boolean": (True, False),
    "null": (None,),
}


def argument_text(parameters: Any, draw: random.Random) -> str:
    """The arguments of one call as the model writes them: compact, spaced or indented JSON, not escaped to ASCII.

    Args:
        parameters: the function's JSON Schema; whatever is no schema of an object gives `{}`.
        draw: where the choices come from.
    """
    return json.dumps(_object(parameters, draw, 0), ensure_ascii=False, **draw.choice(_STYLES))


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
        return draw.choice(STRINGS)
    if choices := _list(schema.get("enum")):
        return draw.choice(choices)
    kind = schema.get("type")
    kind = str(draw.choice(kind) if isinstance(kind, list) and kind else kind)
    if kind == "object":
        return _object(schema, draw, depth)
    if kind == "array":
        return [_value(schema.get("items"), draw, depth + 1) for _ in range(draw.randint(0, 3))]
    return draw.choice(_SCALARS.get(kind, STRINGS))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
