"""How Kimi K2.5 and K2.6 write tools into a prompt: as TypeScript, or as JSON where that fails.

The rules are those of the public tokenizer class of K2.5 and its `tool_declaration_ts.py` (MoonshotAI). That
writer checks little and stops at its first error of any kind; the prompt then holds the tools as JSON.
Schemas come from users and have any shape: here too Python's own errors stand for "cannot be declared".
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_INDENT = "  "

# What a schema that cannot be declared raises: it lacks a key, has a value of another type, or is too deep.
_SCHEMA_ERRORS = (AttributeError, KeyError, RecursionError, TypeError, ValueError)

_BOUNDS = {
    "array": ("maxItems", "minItems"),
    "integer": ("maximum", "minimum"),
    "number": ("maximum", "minimum"),
    "string": ("maxLength", "minLength", "pattern"),
}

_LISTED_TYPES = {
    "array": "Array<any>",
    "boolean": "boolean",
    "integer": "number",
    "null": "null",
    "number": "number",
    "object": "{}",
    "string": "string",
}

_ENUM_VALUES: dict[str, type | tuple[type, ...]] = {
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "string": str,
}


def typescript_declarations(tools: Sequence[Mapping[str, Any]]) -> str:
    """The text inside the `tool_declare` system block, between `<|im_middle|>` and `<|im_end|>`.

    Every mapping is sorted by key first, at all depths, so the order of keys never shows. A list that no
    chat-completions API takes, or a schema that this form cannot say, makes the whole text compact JSON.

    Where a schema says too little or too much, the public writer is followed:

    * an entry whose `function` is missing or empty is left out; a function without a name is `function`;
      a name or a type that is not a string is written in Python's spelling;
    * the parameters are read as an object whatever their `type`; no parameters are `{}`;
    * `$ref` wins over `anyOf`, `anyOf` over `enum`, `enum` over `type`; bounds show only where `type` wins;
    * members of `anyOf` and the type of `additionalProperties` show no comments of their own;
    * `items` that are false, null or empty are `any`;
    * an enum has one declared type, or one and `null`; null fits every declared type;
    * a definition must be read before a reference to it: `$defs`, then `additionalProperties`, then the
      properties by name. NAME is what follows the last slash. A definition inside a definition can be
      referred to but gets no interface; one that is `true` or `false` is an error;
    * `interface parameters` has its properties by name alone and no `additionalProperties`; where only a
      definition says `#`, it is written `parameters` but gets no interface.

    Args:
        tools: the `tools` of a request.

    Returns:
        The text; empty if there is no function to declare.

    Raises:
        ValueError: JSON cannot write the list: it holds NaN, a key that is not a string, an object that is
            no JSON value, or nesting without end.
    """
    try:
        plain = _sorted_by_key(tools, "tools")
    except RecursionError:
        raise ValueError("tools is nested too deeply, or contains itself: give a finite list.") from None
    try:
        return _declare(plain)
    except _SCHEMA_ERRORS:
        return _compact(plain)


def json_declarations(tools: Sequence[Mapping[str, Any]]) -> str:
    """The tools as compact JSON, every mapping sorted by key: what the template writes where no text was made.

    Raises:
        ValueError: as `typescript_declarations`.
    """
    return _compact(_sorted_by_key(tools, "tools"))


def _compact(plain: Any) -> str:
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def _sorted_by_key(value: Any, where: str) -> Any:
    """A copy of a JSON value in plain dicts and lists, every dict sorted by key."""
    if isinstance(value, Mapping):
        if odd := [key for key in value if not isinstance(key, str)]:
            raise ValueError(f"{where} has the key {odd[0]!r}, which JSON cannot write: use a string.")
        return {key: _sorted_by_key(value[key], f"{where}.{key}") for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_sorted_by_key(item, f"{where}[{place}]") for place, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where} is {value}, which JSON cannot write: use a finite number or null.")
    if value is None or isinstance(value, str | int | float):
        return value
    raise ValueError(f"{where} is of type {type(value).__name__}, which JSON cannot write: use a JSON value.")


@dataclass
class _References:
    """What one function's schemas defined so far, and whether they pointed at the parameters themselves."""

    definitions: dict[str, Any] = field(default_factory=dict)
    to_parameters: bool = False

    def name(self, reference: str) -> str:
        """The type name a `$ref` is written as."""
        if reference == "#":
            self.to_parameters = True
            return "parameters"
        name = reference.rpartition("/")[2]
        if not reference.startswith("#/$defs/") or not isinstance(self.definitions.get(name), dict):
            raise ValueError(f"{reference} is not a definition")
        return name


@dataclass(frozen=True)
class _Members:
    """The members of an object type as written, comments and inner indent included.

    Attributes:
        properties: (is optional, text) of each property, by name.
        additional: the entry of `additionalProperties`, if there is one.
    """

    properties: list[tuple[bool, str]]
    additional: list[str]

    def by_name(self) -> list[str]:
        return [text for _, text in self.properties]

    def required_first(self) -> list[str]:
        return [text for _, text in sorted(self.properties, key=lambda entry: entry[0])] + self.additional


def _declare(tools: Any) -> str:
    entries = [tool.get("function") for tool in tools or () if tool.get("type") == "function"]
    functions = [_function(entry) for entry in entries if entry]
    if not functions:
        return ""
    return "\n".join(["# Tools", "", "## functions", "namespace functions {", *functions, "}", ""])


def _function(function: Any) -> str:
    references = _References()
    members = _members(function.get("parameters") or {}, references, "")
    lines = []
    if references.to_parameters:
        lines.append(f"interface parameters {_braces(members.by_name(), '')}")
        argument = "parameters"
    else:
        argument = _braces(members.required_first(), "")
    # A list, as a definition may bring definitions of its own, which get no interface.
    lines += [_interface(name, schema, references) for name, schema in list(references.definitions.items())]
    if description := function.get("description"):
        lines.append(_commented(description, ""))
    lines.append(f"type {function.get('name', 'function')} = (_: {argument}) => any;")
    return "\n".join(lines)


def _interface(name: str, schema: Any, references: _References) -> str:
    written = f"interface {name} {_type(schema, references, '')}"
    description = schema.get("description")
    return f"{_commented(description, '')}\n{written}" if description else written


def _members(schema: Any, references: _References, indent: str) -> _Members:
    references.definitions.update((schema.get("$defs") or {}).items())
    inner = indent + _INDENT
    additional = _additional(schema.get("additionalProperties"), references, inner)
    if "properties" not in schema:
        return _Members([], additional)
    optional = schema["properties"].keys() - set(schema.get("required", ()))
    properties = [
        (name in optional, _property(name, property_schema, name in optional, references, inner))
        for name, property_schema in schema["properties"].items()
    ]
    return _Members(properties, additional)


def _additional(schema: Any, references: _References, indent: str) -> list[str]:
    if schema is None:
        return []
    written = "never" if schema is False else _type(schema, references, indent)
    return [f"{indent}[k: string]: {written}"]


def _property(name: str, schema: Any, optional: bool, references: _References, indent: str) -> str:
    mark = "?" if optional else ""
    comments = _comments(schema, indent) + _default(schema, indent)
    return f"{comments}{indent}{name}{mark}: {_type(schema, references, indent)}"


def _braces(members: Iterable[str], indent: str) -> str:
    body = ",\n".join(members)
    return f"{{\n{body}\n{indent}}}" if body else "{}"


def _commented(description: str, indent: str) -> str:
    return "\n".join(f"{indent}// {line}" if line else "" for line in description.split("\n"))


def _comments(schema: Any, indent: str) -> str:
    """The lines above a type: its description, then its bounds; each line ends in a newline."""
    if isinstance(schema, bool):
        return ""
    lines = []
    if description := schema.get("description"):
        lines.append(_commented(description, indent))
    if bounds := [f"{key}: {schema[key]}" for key in _bound_keys(schema) if key in schema]:
        lines.append(f"{indent}// {', '.join(bounds)}")
    return "".join(f"{line}\n" for line in lines)


def _bound_keys(schema: dict[str, Any]) -> tuple[str, ...]:
    kind = schema.get("type")
    if not isinstance(kind, str) or schema.keys() & {"$ref", "anyOf", "enum"}:
        return ()
    return _BOUNDS.get(kind, ())


def _default(schema: Any, indent: str) -> str:
    default = schema.get("default") if isinstance(schema, dict) else None
    if default is None:
        return ""
    plain = isinstance(default, int | float)
    return f"{indent}// Default: {default if plain else json.dumps(default, ensure_ascii=False)}\n"


def _type(schema: Any, references: _References, indent: str) -> str:
    if isinstance(schema, bool):
        return "any" if schema else "null"
    if not isinstance(schema, dict):
        raise TypeError("a schema is an object or a boolean")
    if "$ref" in schema:
        return references.name(schema["$ref"])
    if "anyOf" in schema:
        return " | ".join(_type(member, references, indent) for member in schema["anyOf"])
    if "enum" in schema:
        return _enum(schema)
    return _declared_type(schema, references, indent) if schema else "any"


def _declared_type(schema: dict[str, Any], references: _References, indent: str) -> str:
    kind = schema["type"]
    if isinstance(kind, list):
        return " | ".join(_LISTED_TYPES[member] for member in kind)
    if kind == "object":
        return _braces(_members(schema, references, indent).required_first(), indent)
    if kind == "array":
        return _array(schema.get("items") or True, references, indent)
    return "number" if kind == "integer" else f"{kind}"


def _array(items: Any, references: _References, indent: str) -> str:
    inner = indent + _INDENT
    if comments := _comments(items, inner):
        return f"Array<\n{comments}{inner}{_type(items, references, inner)}\n{indent}>"
    return f"Array<{_type(items, references, indent)}>"


def _enum(schema: dict[str, Any]) -> str:
    values = schema["enum"]
    if "type" in schema:
        accepted = _ENUM_VALUES.get(str(_enum_type(schema["type"])), object)
        if not all(value is None or isinstance(value, accepted) for value in values):
            raise ValueError("an enum value is not of the declared type")
    return " | ".join(f'"{value}"' if isinstance(value, str) else f"{value}" for value in values)


def _enum_type(declared: Any) -> Any:
    if not isinstance(declared, list):
        return declared
    kinds = [kind for kind in declared if kind != "null"]
    if not 1 <= len(declared) <= 2 or len(kinds) > 1:
        raise ValueError("an enum has one type, or one type and null")
    return kinds[0] if kinds else "null"
