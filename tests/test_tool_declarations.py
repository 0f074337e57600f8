"""Tool declarations: the official renderings, each rule by hand, and laws over arbitrary tool lists."""

import json
from collections import UserDict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kimi_helpers.tool_declarations import typescript_declarations

TYPESCRIPT_FORMATS = {"kimi-k2.5", "kimi-k2.6"}


def function(parameters: Any, **others: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": parameters, **others}}


def framed(*lines: str) -> str:
    return "\n".join(["# Tools", "", "## functions", "namespace functions {", *lines, "}", ""])


def one_property(schema: Any) -> list[dict[str, Any]]:
    return [function({"type": "object", "properties": {"p": schema}})]


def test_the_official_renderings_are_reproduced(shared_dir: Path) -> None:
    rows = json.loads((shared_dir / "kimi-tokenizer/fixtures/chat_rendered.json").read_text("utf-8"))
    rendered = [row for row in rows if row["tools"] and row["format"] in TYPESCRIPT_FORMATS]
    assert {row["format"] for row in rendered} == TYPESCRIPT_FORMATS
    for row in rendered:
        block = row["text"].partition("tool_declare<|im_middle|>")[2].partition("<|im_end|>")[0]
        assert typescript_declarations(row["tools"]) == block, (row["format"], row["name"])


PROPERTY_RULES: dict[str, tuple[Any, list[str]]] = {
    "string": ({"type": "string"}, ["  p?: string"]),
    "integer is number": ({"type": "integer"}, ["  p?: number"]),
    "number": ({"type": "number"}, ["  p?: number"]),
    "boolean": ({"type": "boolean"}, ["  p?: boolean"]),
    "null": ({"type": "null"}, ["  p?: null"]),
    "unknown scalar as named": ({"type": "date"}, ["  p?: date"]),
    "true is any": (True, ["  p?: any"]),
    "false is null": (False, ["  p?: null"]),
    "empty schema is any": ({}, ["  p?: any"]),
    "description": ({"type": "string", "description": "City"}, ["  // City", "  p?: string"]),
    "empty description": ({"type": "string", "description": ""}, ["  p?: string"]),
    "empty description line stays empty": (
        {"type": "string", "description": "one\n\ntwo\n"},
        ["  // one", "", "  // two", "", "  p?: string"],
    ),
    "description keeps a carriage return": (
        {"type": "string", "description": "a\r\nb"},
        ["  // a\r", "  // b", "  p?: string"],
    ),
    "string bounds sorted": (
        {"type": "string", "pattern": "^a$", "minLength": 1, "maxLength": 9, "format": "date"},
        ["  // maxLength: 9, minLength: 1, pattern: ^a$", "  p?: string"],
    ),
    "integer bounds": (
        {"type": "integer", "minimum": 0, "maximum": 5, "maxLength": 3, "multipleOf": 2},
        ["  // maximum: 5, minimum: 0", "  p?: number"],
    ),
    "number bounds": ({"type": "number", "minimum": -0.5}, ["  // minimum: -0.5", "  p?: number"]),
    "array bounds": (
        {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2},
        ["  // maxItems: 2, minItems: 1", "  p?: Array<string>"],
    ),
    "a boolean has no bounds": ({"type": "boolean", "minimum": 0, "pattern": "x"}, ["  p?: boolean"]),
    "an object has no bounds": ({"type": "object", "maxItems": 3, "minLength": 1}, ["  p?: {}"]),
    "a type list has no bounds": (
        {"type": ["string", "null"], "maxLength": 3, "minimum": 1, "minItems": 1},
        ["  p?: string | null"],
    ),
    "a bound that is null": ({"type": "string", "maxLength": None}, ["  // maxLength: None", "  p?: string"]),
    "description, bounds, default in this order": (
        {"type": "integer", "description": "Count", "minimum": 1, "default": 3},
        ["  // Count", "  // minimum: 1", "  // Default: 3", "  p?: number"],
    ),
    "default string": ({"type": "string", "default": 'é "x"'}, [r'  // Default: "é \"x\""', "  p?: string"]),
    "default container": (
        {"type": "object", "default": {"b": [1, None, True], "a": "北京"}},
        ['  // Default: {"a": "北京", "b": [1, null, true]}', "  p?: {}"],
    ),
    "default true": ({"type": "boolean", "default": True}, ["  // Default: True", "  p?: boolean"]),
    "default false": ({"type": "boolean", "default": False}, ["  // Default: False", "  p?: boolean"]),
    "default float": ({"type": "number", "default": 1e16}, ["  // Default: 1e+16", "  p?: number"]),
    "default null is none": ({"type": "string", "default": None}, ["  p?: string"]),
    "default empty string": ({"type": "string", "default": ""}, ['  // Default: ""', "  p?: string"]),
    "enum unescaped": ({"enum": ['a"b', "c\\", ""]}, [r'  p?: "a"b" | "c\" | ""']),
    "enum in Python's spelling": ({"enum": [1, 2.5, True, None, "x"]}, ['  p?: 1 | 2.5 | True | None | "x"']),
    "enum and null in the type": ({"type": ["null", "string"], "enum": ["x", None]}, ['  p?: "x" | None']),
    "enum and one listed type": ({"type": ["integer"], "enum": [1]}, ["  p?: 1"]),
    "enum of number takes integers": ({"type": "number", "enum": [1, 2.5]}, ["  p?: 1 | 2.5"]),
    "enum wins over type and its bounds": (
        {"type": "string", "enum": ["x"], "maxLength": 1, "description": "Mode"},
        ["  // Mode", '  p?: "x"'],
    ),
    "enum of a type without a check": ({"type": "array", "enum": ["x"]}, ['  p?: "x"']),
    "anyOf without its members' comments": (
        {
            "anyOf": [{"type": "integer", "description": "n", "minimum": 1}, {"enum": ["x"]}],
            "description": "d",
        },
        ["  // d", '  p?: number | "x"'],
    ),
    "anyOf holds an object": (
        {"anyOf": [{"type": "object", "properties": {"a": True}}, {"type": "null"}]},
        ["  p?: {", "    a?: any", "  } | null"],
    ),
    "anyOf wins over enum and type": ({"anyOf": [True], "enum": [1], "type": "string"}, ["  p?: any"]),
    "anyOf beside a type has no bounds": ({"anyOf": [True], "type": "string", "maxLength": 1}, ["  p?: any"]),
    "type list": (
        {"type": ["string", "number", "integer", "boolean", "null", "object", "array"]},
        ["  p?: string | number | number | boolean | null | {} | Array<any>"],
    ),
    "array without items": ({"type": "array"}, ["  p?: Array<any>"]),
    "array of empty items": ({"type": "array", "items": {}}, ["  p?: Array<any>"]),
    "array of anything": ({"type": "array", "items": True}, ["  p?: Array<any>"]),
    "array of false": ({"type": "array", "items": False}, ["  p?: Array<any>"]),
    "array of arrays": (
        {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
        ["  p?: Array<Array<number>>"],
    ),
    "array with comments of its items": (
        {"type": "array", "items": {"type": "string", "description": "Tag", "maxLength": 5, "default": "x"}},
        ["  p?: Array<", "    // Tag", "    // maxLength: 5", "    string", "  >"],
    ),
    "array of objects": (
        {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
        ["  p?: Array<{", "    a?: string", "  }>"],
    ),
    "array of described objects": (
        {"type": "array", "items": {"type": "object", "description": "Row", "properties": {"a": True}}},
        ["  p?: Array<", "    // Row", "    {", "      a?: any", "    }", "  >"],
    ),
    "empty object": ({"type": "object"}, ["  p?: {}"]),
    "object without properties": ({"type": "object", "properties": {}}, ["  p?: {}"]),
    "required first, each group by name": (
        {
            "type": "object",
            "properties": {"d": True, "b": True, "c": True, "a": True},
            "required": ["d", "b"],
        },
        ["  p?: {", "    b: any,", "    d: any,", "    a?: any,", "    c?: any", "  }"],
    ),
    "additionalProperties true": (
        {"type": "object", "additionalProperties": True},
        ["  p?: {", "    [k: string]: any", "  }"],
    ),
    "additionalProperties false comes last": (
        {"type": "object", "properties": {"a": True}, "additionalProperties": False},
        ["  p?: {", "    a?: any,", "    [k: string]: never", "  }"],
    ),
    "additionalProperties schema": (
        {
            "type": "object",
            "additionalProperties": {"type": "object", "description": "x", "properties": {"a": {}}},
        },
        ["  p?: {", "    [k: string]: {", "      a?: any", "    }", "  }"],
    ),
    "additionalProperties empty": (
        {"type": "object", "additionalProperties": {}},
        ["  p?: {", "    [k: string]: any", "  }"],
    ),
    "additionalProperties null is none": ({"type": "object", "additionalProperties": None}, ["  p?: {}"]),
    "comments at the inner indent": (
        {
            "type": "object",
            "properties": {"a": {"type": "integer", "description": "A", "minimum": 0, "default": 1}},
        },
        ["  p?: {", "    // A", "    // minimum: 0", "    // Default: 1", "    a?: number", "  }"],
    ),
}


@pytest.mark.parametrize(("schema", "lines"), PROPERTY_RULES.values(), ids=PROPERTY_RULES)
def test_a_property_is_written_by_its_rule(schema: Any, lines: list[str]) -> None:
    expected = framed("type f = (_: {", *lines, "}) => any;")
    assert typescript_declarations(one_property(schema)) == expected


REF_A = {"$ref": "#/$defs/A"}
NODE = {"type": "object", "description": "A node", "properties": {"next": {"$ref": "#/$defs/Node"}}}

LIST_RULES: dict[str, tuple[list[Any], str]] = {
    "no tools": ([], ""),
    "no function among them": ([{"type": "plugin"}, {"function": {"name": "f"}}], ""),
    "other types are left out": ([{"type": "plugin"}, function({})], framed("type f = (_: {}) => any;")),
    "an entry without a function is left out": (
        [{"type": "function"}, {"type": "function", "function": {}}, function({})],
        framed("type f = (_: {}) => any;"),
    ),
    "a function without a name": (
        [{"type": "function", "function": {"description": "d"}}],
        framed("// d", "type function = (_: {}) => any;"),
    ),
    "a name that is not a string": (
        [{"type": "function", "function": {"name": None}}],
        framed("type None = (_: {}) => any;"),
    ),
    "parameters null": ([function(None)], framed("type f = (_: {}) => any;")),
    "parameters without a type": (
        [function({"properties": {"a": {"type": "string"}}, "required": ["a"]})],
        framed("type f = (_: {", "  a: string", "}) => any;"),
    ),
    "functions follow one another in order": (
        [function({}, name="z", description="last\n\nletter"), function({}, name="a.b", description="")],
        framed("// last", "", "// letter", "type z = (_: {}) => any;", "type a.b = (_: {}) => any;"),
    ),
    "definition": (
        [
            function(
                {"$defs": {"A": {"type": "string", "description": "Text"}}, "properties": {"a": REF_A}},
                description="d",
            )
        ],
        framed("// Text", "interface A string", "// d", "type f = (_: {", "  a?: A", "}) => any;"),
    ),
    "definitions by name, a recursive one, and a reference with a comment": (
        [
            function(
                {
                    "$defs": {"Node": NODE, "Mode": {"enum": ["x", "y"]}},
                    "properties": {"n": {"$ref": "#/$defs/Node", "description": "Root", "default": {}, "maxLength": 1}},
                }
            )
        ],
        framed(
            'interface Mode "x" | "y"',
            "// A node",
            "interface Node {",
            "  next?: Node",
            "}",
            "type f = (_: {",
            "  // Root",
            "  // Default: {}",
            "  n?: Node",
            "}) => any;",
        ),
    ),
    "definitions of an inner object are collected": (
        [
            function(
                {
                    "properties": {
                        "a": {"type": "object", "$defs": {"A": {}}, "properties": {"x": REF_A}},
                        "b": REF_A,
                    }
                }
            )
        ],
        framed("interface A any", "type f = (_: {", "  a?: {", "    x?: A", "  },", "  b?: A", "}) => any;"),
    ),
    "a definition inside a definition has no interface": (
        [function({"$defs": {"B": {"type": "object", "$defs": {"A": {}}, "properties": {"x": REF_A}}}})],
        framed("interface B {", "  x?: A", "}", "type f = (_: {}) => any;"),
    ),
    "a reference wins over the type and its bounds": (
        [function({"$defs": {"A": {}}, "properties": {"a": {**REF_A, "type": "string", "maxLength": 1}}})],
        framed("interface A any", "type f = (_: {", "  a?: A", "}) => any;"),
    ),
    "a reference through another definition": (
        [function({"$defs": {"A": {}, "B": {}}, "properties": {"a": {"$ref": "#/$defs/B/$defs/A"}}})],
        framed("interface A any", "interface B any", "type f = (_: {", "  a?: A", "}) => any;"),
    ),
    "definitions belong to one function": (
        [function({"$defs": {"A": {"type": "null"}}}), function({}, name="g")],
        framed("interface A null", "type f = (_: {}) => any;", "type g = (_: {}) => any;"),
    ),
    "an unused definition is written": (
        [function({"$defs": {"A": {"type": "array", "items": {"type": "string", "description": "t"}}}})],
        framed("interface A Array<", "  // t", "  string", ">", "type f = (_: {}) => any;"),
    ),
    "a reference to the parameters themselves": (
        [
            function(
                {
                    "$defs": {"A": {"type": "boolean"}},
                    "properties": {
                        "b": {"type": "array", "items": {"$ref": "#"}},
                        "c": REF_A,
                        "a": {"type": "string"},
                    },
                    "required": ["c"],
                    "additionalProperties": False,
                },
                description="d",
            )
        ],
        framed(
            "interface parameters {",
            "  a?: string,",
            "  b?: Array<parameters>,",
            "  c: A",
            "}",
            "interface A boolean",
            "// d",
            "type f = (_: parameters) => any;",
        ),
    ),
    "the parameters as their own additional properties": (
        [function({"additionalProperties": {"$ref": "#"}})],
        framed("interface parameters {}", "type f = (_: parameters) => any;"),
    ),
    "a definition alone refers to the parameters": (
        [function({"$defs": {"A": {"$ref": "#"}}})],
        framed("interface A parameters", "type f = (_: {}) => any;"),
    ),
}


@pytest.mark.parametrize(("tools", "expected"), LIST_RULES.values(), ids=LIST_RULES)
def test_a_list_is_written_by_its_rule(tools: list[Any], expected: str) -> None:
    assert typescript_declarations(tools) == expected


UNDECLARABLE: dict[str, Any] = {
    "no key that says a type": {"description": "x"},
    "type list with an unknown name": {"type": ["string", "date"]},
    "enum against string": {"type": "string", "enum": [1]},
    "enum against number": {"type": "number", "enum": ["1"]},
    "enum against integer": {"type": "integer", "enum": [1.5]},
    "enum against boolean": {"type": ["boolean", "null"], "enum": [0]},
    "enum of two types": {"type": ["string", "integer"], "enum": ["x"]},
    "enum of three types": {"type": ["string", "null", "null"], "enum": ["x"]},
    "enum of no type": {"type": [], "enum": ["x"]},
    "enum null": {"enum": None},
    "missing definition": {"$ref": "#/$defs/A"},
    "definition read too late": {
        "type": "object",
        "properties": {"a": REF_A, "b": {"type": "object", "$defs": {"A": {}}}},
    },
    "boolean definition": {"type": "object", "$defs": {"A": True}},
    "reference to a boolean definition inside a definition": {
        "type": "object",
        "$defs": {"B": {"type": "object", "$defs": {"A": True}, "properties": {"a": REF_A}}},
    },
    "other reference": {"$ref": "#/properties/p"},
    "remote reference": {"$ref": "https://example.org/schema.json"},
    "reference that is no string": {"$ref": 1},
    "anyOf null": {"anyOf": None},
    "anyOf with a bad member": {"anyOf": [{"type": "string"}, {"title": "x"}]},
    "bad items": {"type": "array", "items": {"title": "x"}},
    "tuple items": {"type": "array", "items": [{"type": "string"}]},
    "additionalProperties of another type": {"type": "object", "additionalProperties": "yes"},
    "properties null": {"type": "object", "properties": None},
    "properties list": {"type": "object", "properties": ["a"]},
    "required true": {"type": "object", "properties": {"a": True}, "required": True},
    "definitions list": {"type": "object", "$defs": ["A"]},
    "description list": {"type": "string", "description": ["x"]},
    "schema null": None,
    "schema string": "string",
    "schema list": ["type"],
}


@pytest.mark.parametrize("schema", UNDECLARABLE.values(), ids=UNDECLARABLE)
def test_an_error_in_one_schema_makes_the_whole_list_json(schema: Any) -> None:
    tools = [function({}, name="fine"), *one_property(schema)]
    text = typescript_declarations(tools)
    assert json.loads(text) == tools
    assert text.startswith('[{"function":{"name":"fine","parameters":{}},"type":"function"},{"function":')


MALFORMED: dict[str, tuple[Any, str]] = {
    "compact, sorted, non-ASCII kept": (
        [{"type": "function", "function": {"name": "é", "parameters": [1, 2.5]}}],
        '[{"function":{"name":"é","parameters":[1,2.5]},"type":"function"}]',
    ),
    "entry null": ([None], "[null]"),
    "entry string": (["function"], '["function"]'),
    "function a string": ([{"type": "function", "function": "f"}], '[{"function":"f","type":"function"}]'),
    "parameters true": ([function(True)], '[{"function":{"name":"f","parameters":true},"type":"function"}]'),
    "a mapping instead of a list": ({"type": "function"}, '{"type":"function"}'),
    "a string instead of a list": ("tools", '"tools"'),
    "a number instead of a list": (7, "7"),
}


@pytest.mark.parametrize(("tools", "expected"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_list_is_compact_json(tools: Any, expected: str) -> None:
    assert typescript_declarations(tools) == expected


@pytest.mark.parametrize("nothing", [None, (), {}, ""])
def test_no_tools_give_no_text(nothing: Any) -> None:
    assert typescript_declarations(nothing) == ""


def test_tuples_and_other_mappings_are_read_like_lists_and_dicts() -> None:
    parameters = UserDict({"properties": UserDict({"a": {"type": ("string", "null")}}), "required": ("a",)})
    text = typescript_declarations((UserDict(function(parameters)),))
    assert text == framed("type f = (_: {", "  a: string | null", "}) => any;")


def looped() -> list[Any]:
    tools: list[Any] = []
    tools.append(tools)
    return tools


@pytest.mark.parametrize(
    ("tools", "complaint"),
    [
        (
            one_property({"default": float("nan")}),
            r"^tools\[0\]\.function\.parameters\.properties\.p\.default is nan, ",
        ),
        (
            [{"type": "function", 1: 2}],
            r"^tools\[0\] has the key 1, which JSON cannot write: use a string\.$",
        ),
        ([{"type": {"function"}}], r"^tools\[0\]\.type is of type set, which JSON cannot write: .*"),
        ([b"function"], r"^tools\[0\] is of type bytes, .*"),
        (looped(), r"^tools is nested too deeply, or contains itself: .*"),
    ],
    ids=["nan", "key", "set", "bytes", "loop"],
)
def test_what_json_cannot_write_is_refused_in_one_sentence(tools: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        typescript_declarations(tools)


TEXT = st.text(max_size=6) | st.sampled_from(["#", "#/$defs/A", "string", "object", "array", "function"])
SCALAR = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
KEY = TEXT | st.sampled_from(["type", "function", "parameters", "name", "description", "items", "$ref", "enum"])
JSON = st.recursive(SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEY, inner, max_size=3))

NAME = st.sampled_from(["a", "b", "Z", "é"])
LEAF = (
    st.booleans()
    | st.just({"$ref": "#"})
    | st.fixed_dictionaries(
        {"type": st.sampled_from(["string", "integer", "boolean", "null"])},
        optional={"description": st.text(max_size=8), "default": JSON, "minimum": st.integers()},
    )
    | st.fixed_dictionaries({"enum": st.lists(SCALAR, min_size=1, max_size=3)})
)


def grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Schemas one level deeper; any of their parts may be nonsense."""
    return (
        st.fixed_dictionaries({"anyOf": st.lists(inner, max_size=3)})
        | st.fixed_dictionaries({"type": st.just("array")}, optional={"items": inner, "minItems": st.integers()})
        | st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.dictionaries(NAME, inner, max_size=3) | JSON},
            optional={
                "required": st.lists(NAME, max_size=2) | JSON,
                "additionalProperties": inner | JSON,
                "$defs": st.dictionaries(NAME, inner, max_size=2) | JSON,
            },
        )
    )


SCHEMA = st.recursive(LEAF, grown, max_leaves=8)
TOOL = st.fixed_dictionaries(
    {
        "type": st.just("function"),
        "function": st.fixed_dictionaries({"name": NAME, "parameters": SCHEMA}, optional={"description": JSON}),
    }
)
TOOLS = st.lists(TOOL, max_size=3) | st.lists(TOOL | JSON, max_size=3) | JSON


def reordered(value: Any, random: Any) -> Any:
    if isinstance(value, dict):
        keys = list(value)
        random.shuffle(keys)
        return {key: reordered(value[key], random) for key in keys}
    if isinstance(value, list):
        return [reordered(item, random) for item in value]
    return value


@settings(deadline=None)
@given(TOOLS)
def test_any_json_gives_declarations_or_the_same_json(tools: Any) -> None:
    text = typescript_declarations(tools)
    if text.startswith("# Tools\n"):
        assert text.endswith("\n}\n")
        assert text.count(") => any;\n") >= 1
    elif text:
        assert json.loads(text) == tools
    else:
        assert not [tool for tool in tools or () if tool.get("type") == "function" and tool.get("function")]


@settings(deadline=None)
@given(TOOLS, st.randoms(use_true_random=False))
def test_the_order_of_keys_never_shows(tools: Any, random: Any) -> None:
    assert typescript_declarations(reordered(tools, random)) == typescript_declarations(tools)
