"""Each step of a serving stack run backwards, worked out by hand; the registry; and what is said of a bad file."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kimi_helpers.profiles import read_profiles
from kimi_helpers.serving_stacks import (
    LOST_AT_END,
    LOST_AT_START,
    MOST_SOURCES,
    REGISTRY,
    ServingStack,
    Sources,
    StackError,
    Surroundings,
    argument_sources,
    dump,
    id_sources,
    known_stacks,
    read_stacks,
    text_sources,
)
from kimi_helpers.workspace import DATA


def stack(**steps: Any) -> ServingStack:
    return ServingStack("built", "nowhere", **steps)


PLAIN, BLANKS = stack(), stack(blanks=True)
ALONE, BETWEEN = Surroundings(False, False), Surroundings(True, True)
BEHIND, BEFORE = Surroundings(True, False), Surroundings(False, True)


@pytest.mark.parametrize("around", [ALONE, BETWEEN, BEHIND, BEFORE])
@pytest.mark.parametrize("text", ["", " ", "x", " x ", "\n\n", "</think>"])
def test_a_faithful_detokeniser_changes_no_text(text: str, around: Surroundings) -> None:
    assert text_sources(text, PLAIN, around) == Sources((text,))


@pytest.mark.parametrize(
    ("text", "around", "source"),
    [
        ("x", ALONE, "x"),
        (" x ", ALONE, " x "),
        ("", ALONE, ""),
        (" x", BEHIND, "x"),
        ("  x", BEHIND, " x"),
        (" ", BEHIND, ""),
        ("", BEHIND, ""),
        ("x", BEHIND, None),
        ("\nx", BEHIND, None),
        ("x ", BEFORE, "x"),
        ("x\n ", BEFORE, "x\n"),
        ("", BEFORE, ""),
        ("x", BEFORE, None),
        (" x ", BETWEEN, "x"),
        ("  x  ", BETWEEN, " x "),
        (" ", BETWEEN, ""),  # two tokens side by side share one blank
        ("  ", BETWEEN, None),  # a blank for each side, and no text that was sampled between them
        ("   ", BETWEEN, " "),
        ("", BETWEEN, None),
        (" x", BETWEEN, None),
        ("x ", BETWEEN, None),
        ("\u3000x ", BETWEEN, None),
    ],
)
def test_the_blanks_of_added_tokens(text: str, around: Surroundings, source: str | None) -> None:
    assert text_sources(text, BLANKS, around) == Sources(() if source is None else (source,))


@pytest.mark.parametrize(
    ("text", "source"),
    [
        (" x  ", "x"),
        (" x   ", "x "),
        ("  ", ""),  # one blank that two tokens share, and the one behind the section
        ("    ", " "),
        (" x ", None),
        (" x", None),
        (" ", None),
        ("", None),
    ],
)
def test_a_parser_that_cuts_at_the_call_leaves_the_blank_behind_the_section(text: str, source: str | None) -> None:
    around = Surroundings(True, True, before_section=True)
    found = text_sources(text, stack(blanks=True, cuts_at_call=True), around)
    assert found == Sources(() if source is None else (source,))
    # without blanks nothing stands between the two
    assert text_sources(text, stack(cuts_at_call=True), around) == Sources((text,))


def test_a_strip_can_reach_the_blank_behind_the_section() -> None:
    cuts = stack(blanks=True, cuts_at_call=True)
    at_end = Surroundings(True, True, stripped_end=True, before_section=True)
    assert text_sources(" x", cuts, at_end).texts == tuple("x" + end for end in LOST_AT_END)
    assert text_sources(" x ", cuts, at_end).texts == ()
    at_start = Surroundings(True, True, stripped_start=True, before_section=True)
    assert text_sources("x  ", cuts, at_start).texts == tuple(start + "x" for start in LOST_AT_START)
    assert text_sources("", cuts, at_start).texts == LOST_AT_START
    assert text_sources("x ", cuts, at_start).texts == ()


def test_a_stripped_side_may_have_lost_blanks_of_the_models_own() -> None:
    start = text_sources("x ", PLAIN, Surroundings(False, False, stripped_start=True))
    assert start.texts == ("x ", " x ", "\nx ", "\n\nx ", "  x ", "\n x ", "\n\n x ", "\tx ")
    end = text_sources(" x", PLAIN, Surroundings(False, False, stripped_end=True))
    assert end.texts == (" x", " x\n", " x\n\n", " x ", " x\n\n\n", " x  ", " x \n", " x\r\n")
    both = Surroundings(False, False, stripped_start=True, stripped_end=True)
    assert set(text_sources("x", PLAIN, both).texts) == {a + "x" + b for a in LOST_AT_START for b in LOST_AT_END}
    # of no text a blank is lost once, not on two sides
    assert len(text_sources("", PLAIN, both).texts) < 64
    for text in (" x", "x ", "\nx", "x\u3000", " "):
        assert text_sources(text, PLAIN, both) == Sources(())


def test_a_strip_takes_the_blank_of_an_added_token_too() -> None:
    between = Surroundings(True, True, stripped_start=True)
    assert text_sources("x ", BLANKS, between).texts == tuple(start + "x" for start in LOST_AT_START)
    assert text_sources("x", BLANKS, between).texts == ()
    both = Surroundings(True, True, stripped_start=True, stripped_end=True)
    assert "x" in text_sources("x", BLANKS, both).texts


def test_a_blank_that_is_the_models_habit_is_tried_first() -> None:
    around = Surroundings(False, True, stripped_start=True, begins_blank=True)
    found = text_sources("The", PLAIN, around).texts
    assert found[:3] == (" The", "The", "\nThe")
    assert sorted(found) == sorted(start + "The" for start in LOST_AT_START)


def arguments(text: str, around: Surroundings = BETWEEN, most: int = MOST_SOURCES, **steps: Any) -> Sources:
    steps = steps or {"arguments": "compact"}
    trims = bool(steps.get("trims_arguments"))
    where = Surroundings(around.after_token, around.before_token, stripped_start=trims, stripped_end=trims)
    return argument_sources(text, stack(**steps), where, most)


def test_arguments_as_sampled() -> None:
    for text in ("", "{}", '{"a":  1}', " x ", '{"a": '):
        assert arguments(text, arguments="sampled") == Sources((text,))
    assert arguments(' {"a":1} ', blanks=True, arguments="compact") == Sources(
        ()
    )  # what is dumped again has no blanks around it
    assert arguments(' {"a":1} ', blanks=True, arguments="sampled") == Sources(('{"a":1}',))
    assert arguments('{"a":1}', blanks=True, arguments="sampled") == Sources(())
    assert arguments(' {"a":1', BEHIND, blanks=True, arguments="sampled") == Sources(('{"a":1',))


def test_compact_arguments_by_hand() -> None:
    assert arguments('{"a":1,"b":[2,3]}').texts == (
        '{"a":1,"b":[2,3]}',
        '{"a": 1, "b": [2, 3]}',
        '{"a":1, "b":[2, 3]}',
        '{\n  "a": 1,\n  "b": [\n    2,\n    3\n  ]\n}',
        '{"a": 1,"b":[2,3]}',
        '{"a":1, "b": [2, 3]}',
        # a blank behind the first comma only
        '{"a":1, "b":[2,3]}',
        '{"a": 1,"b": [2, 3]}',
        '{"a":1,"b": [2,3]}',
        '{"a": 1, "b":[2, 3]}',
        '{"a":1,"b":[2, 3]}',
        '{"a": 1, "b": [2,3]}',
    )
    assert arguments('{"a": 1}') == Sources(())
    assert arguments("{}") == Sources(("{}",))


def test_spaced_arguments_by_hand() -> None:
    found = arguments('{"a": 1}', arguments="spaced")
    assert found == Sources(('{"a":1}', '{"a": 1}', '{\n  "a": 1\n}'))
    assert arguments('{"a":1}', arguments="spaced") == Sources(())


@pytest.mark.parametrize(
    "value",
    [
        {"a, b": "c: d,e:f"},
        {'quote " , : \\': "\\"},
        {"back\\": ["x,", ":y", {"z": ","}]},
        {"北京": "🎉, 好：的", "é": "\u2028"},
        [[[]], {}, {"a": {"b": {"c": [1, 2.5, None, True]}}}],
        "a, b: c",
        7,
    ],
)
def test_separators_are_those_outside_strings(value: Any) -> None:
    compact = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    found = arguments(compact)
    marked = json.dumps(value, ensure_ascii=False, separators=("\x01", "\x02"))
    separators = marked.count("\x01") + marked.count("\x02")
    assert found.complete
    assert found.texts[0] == compact
    assert json.dumps(value, ensure_ascii=False) in found.texts
    assert all(json.loads(text) == value for text in found.texts)
    one_blank = [text for text in found.texts if len(text) == len(compact) + 1 and "\n" not in text]
    assert len(one_blank) == separators
    assert max((len(text) - len(compact) for text in found.texts if "\n" not in text), default=0) == separators


@pytest.mark.parametrize("text", ["x", "{", "{'a': 1}", "no JSON", '{"a":1', '{"a":1}}', "[" * 100_000])
def test_what_is_no_json_is_not_dumped_again(text: str) -> None:
    assert arguments(text) == Sources((text,))
    assert arguments(f" {text} ", blanks=True, arguments="compact") == Sources((text,))


def test_json_that_such_a_dump_does_not_make() -> None:
    for text in ('{"a":1,"a":2}', '{"a":1e5}', '{"a":"\\u00e9"}', '{"a":1}\n', ' {"a":1}', '{"a":01}x'):
        assert arguments(text).texts in ((), (text,))
    assert arguments('{"a":"\\u00e9"}') == Sources(())
    assert arguments('{"a":"é"}').texts[0] == '{"a":"é"}'


def test_trimmed_arguments() -> None:
    found = arguments("{}", trims_arguments=True)
    assert set(found.texts) == {start + "{}" + end for start in LOST_AT_START for end in LOST_AT_END}
    assert arguments("{}", trims_arguments=True, blanks=True) == found
    for text in (" {}", "{}\n", "\u3000{}"):
        assert arguments(text, trims_arguments=True) == Sources(())
        assert arguments(text, trims_arguments=True, arguments="compact") == Sources(())
    assert arguments('{"a":1}', trims_arguments=True, arguments="compact").texts[:2] == ('{"a":1}', '{"a": 1}')


def test_sources_are_bounded_and_say_so() -> None:
    keys = 150
    text = dump({f"k{place}": place for place in range(keys)}, "compact")
    whole = arguments(text, most=10_000)
    assert whole.complete
    # compact, spaced, commas spaced, indented; one blank more and one less at each of 299 separators
    assert len(whole.texts) == 4 + 2 * (2 * keys - 1)
    some = arguments(text, most=50)
    assert (some.texts, some.complete) == (whole.texts[:50], False)
    assert not arguments(text).complete
    both = Surroundings(False, False, stripped_start=True, stripped_end=True)
    assert text_sources("x", PLAIN, both, 64).complete
    assert text_sources("x", PLAIN, both, 63) == Sources(text_sources("x", PLAIN, both).texts[:63], complete=False)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(JSON, st.sampled_from(("compact", "spaced")))
def test_a_dump_run_backwards_holds_what_was_dumped(value: Any, style: Any) -> None:
    separators = (",", ":") if style == "compact" else (", ", ": ")
    returned = json.dumps(value, ensure_ascii=False, separators=separators)
    found = arguments(returned, arguments=style).texts
    for written in (
        json.dumps(value, ensure_ascii=False),
        json.dumps(value, ensure_ascii=False, separators=(",", ":")),
        json.dumps(value, ensure_ascii=False, separators=(", ", ":")),
        json.dumps(value, ensure_ascii=False, indent=2),
    ):
        assert written in found
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    ("id", "rule", "sources"),
    [
        ("functions.f:0", "sampled", ("functions.f:0",)),
        ("call_1", "sampled", ("call_1",)),
        ("", "sampled", ("",)),
        ("f:0", "bare", ("functions.f:0",)),
        ("a.b-c:12", "bare", ("functions.a.b-c:12",)),
        ("functions.f:0", "bare", ()),
        ("call_1", "bare", ()),
        ("f:", "bare", ()),
        ("", "bare", ()),
        ("call_1", "replaced", ("functions.f:2", "functions.f:5")),
        ("0123456789abcdef", "replaced", ("functions.f:2", "functions.f:5")),
        ("", "replaced", ("functions.f:2", "functions.f:5")),
        ("functions.f:0", "replaced", ()),
    ],
)
def test_ids(id: str, rule: str, sources: tuple[str, ...]) -> None:
    assert id_sources(id, "f", (2, 5), stack(ids=rule)) == sources


def test_an_id_has_one_source_where_the_reply_begins_the_conversation() -> None:
    assert id_sources("call_1", "查询", (1, 1), stack(ids="replaced")) == ("functions.查询:1",)


def test_the_registry() -> None:
    stacks = known_stacks()
    assert stacks == read_stacks(REGISTRY)
    assert next(iter(stacks)) == "faithful"
    assert stacks["faithful"] == ServingStack("faithful", stacks["faithful"].seen)
    assert all(each.name == name and each.seen for name, each in stacks.items())
    steps = [
        {name: value for name, value in vars(each).items() if name not in ("name", "seen")} for each in stacks.values()
    ]
    assert all(steps.count(each) == 1 for each in steps)


def test_every_stack_of_the_loopback_profiles_exists() -> None:
    profiles = read_profiles(DATA / "profiles/loopback.toml")
    assert len(profiles) >= 12
    assert all(len(profile.stacks) == 1 for profile in profiles.values())


def test_which_sides_are_stripped_is_told_by_the_transport() -> None:
    each = stack(strips_json=frozenset({"content start"}), strips_stream=frozenset({"reasoning end"}))
    assert each.strips("json") == {"content start"}
    assert each.strips("sse") == {"reasoning end"}


ONE = '[[stack]]\nname = "mine"\nseen = "s"\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[stack]", "TOML"),
        (b"\xff", "TOML"),
        ("[stack]\nname = 1\n", "stack"),
        ("[[profile]]\n", "profile"),
        (ONE.replace('name = "mine"\n', ""), "name"),
        (ONE.replace('seen = "s"\n', ""), "seen"),
        (ONE + "blank = true\n", "blank"),
        (ONE + 'arguments = "pretty"\n', "arguments"),
        (ONE + 'ids = "kept"\n', "ids"),
        (ONE + 'strips_json = ["front"]\n', "strips_json"),
        (ONE + 'strips_stream = "content end"\n', "strips_stream"),
        (ONE + "counts_end = 3\n", "counts_end"),
        (ONE + ONE, "same name"),
    ],
)
def test_each_fault_of_a_file_is_told_in_a_sentence(tmp_path: Path, text: str | bytes, told: str) -> None:
    path = tmp_path / "stacks.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(StackError) as caught:
        read_stacks(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert told in message.removeprefix(str(path))
    assert message.endswith(".")
    assert "\n" not in message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.toml", tmp_path):
        with pytest.raises(StackError, match="cannot be read"):
            read_stacks(path)


def test_an_empty_file_holds_no_stacks(tmp_path: Path) -> None:
    (tmp_path / "none.toml").write_text("")
    assert read_stacks(tmp_path / "none.toml") == {}
