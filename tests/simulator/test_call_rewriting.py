"""Rewritten ids and arguments, on texts worked out by hand."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_helpers.simulator.call_rewriting import bare_id, call_id, hex_id, keep_id, write_compact, write_spaced

DIGITS = "0123456789abcdef" * 4


def test_each_rule_of_ids() -> None:
    rules = (keep_id, bare_id, call_id, hex_id)
    assert [rule("functions.get.it:3", DIGITS) for rule in rules] == [
        "functions.get.it:3",
        "get.it:3",
        "call_0123456789abcdef01234567",
        "0123456789abcdef0123456789abcdef",
    ]
    assert bare_id("f:0", DIGITS) == "f:0"


@pytest.mark.parametrize(
    ("arguments", "compact", "spaced"),
    [
        ('{"a":1, "b":2}', '{"a":1,"b":2}', '{"a": 1, "b": 2}'),
        ('{\n  "a": [1, {"b": null}]\n}', '{"a":[1,{"b":null}]}', '{"a": [1, {"b": null}]}'),
        (' {"城": "北京"} ', '{"城":"北京"}', '{"城": "北京"}'),
        ('{"a": "b: c, d"}', '{"a":"b: c, d"}', '{"a": "b: c, d"}'),
        ("{}", "{}", "{}"),
        ('{"a": tr', '{"a": tr', '{"a": tr'),
    ],
)
def test_arguments_are_parsed_and_written(arguments: str, compact: str, spaced: str) -> None:
    for pieces in ((arguments,), tuple(arguments)):
        assert "".join(write_compact(pieces)) == compact
        assert "".join(write_spaced(pieces)) == spaced


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_both_mean_what_was_written_and_forget_how(value: Any) -> None:
    for rule in (write_compact, write_spaced):
        written = {rule((text,)) for text in (json.dumps(value), json.dumps(value, indent=2, ensure_ascii=False))}
        assert len(written) == 1
        assert json.loads("".join(written.pop())) == value
