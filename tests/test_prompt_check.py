"""Prompt grades: recorded requests against what their hosts billed, laws, the engine's own ids, and wild requests."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kimi_helpers.formats import FORMATS, format_of_model
from kimi_helpers.prompt_check import PromptCheck, PromptGrade, check_prompt
from kimi_helpers.prompt_renderings import renderings
from kimi_helpers.vocabulary import Vocabulary, load_vocabulary, special_tables

K25 = FORMATS["kimi-k2.5"]
SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Hi there"}
TYPED = "tools with the fields of a typed request alone"
COMPACT = "tools as compact JSON"
KIMI = "the default system prompt 'You are Kimi, an AI assistant created by Moonshot AI.'"

# name: grade, deviations, stated minus rendered. The offsets were worked out with the real tokenizer.
RECORDED: dict[str, tuple[str, tuple[str, ...], int]] = {
    "or_kimi-k2.5_simple_0": ("equal", (), 0),  # Inceptron
    "or_kimi-k2.5_simple_streaming_0": ("equal", (), 0),  # ModelRun
    "or_kimi-k2.5_tool_0": ("equal", (), 0),  # Chutes
    "or_kimi-k2.5_tool_1": ("identified", ("past reasoning left out",), -46),
    "or_kimi-k2.5_multi_tool_0": ("equal", (), 0),
    "avian_kimi-k2.5_simple_streaming_0": ("equal", (), 0),
    "avian_kimi-k2.5_tool_streaming_0": ("identified", (TYPED, COMPACT), 7),
    "avian_kimi-k2.5_tool_streaming_1": ("identified", (TYPED, COMPACT), 7),
    "groq_kimi-k2-0905_multi_tool_0": ("identified", ("tools without strict",), -10),  # 5 for each of two tools
    "groq_kimi-k2-0905_multi_tool_1": ("unknown", (), 4),
    "hf-router_kimi-k2-0905_tool_streaming_0": ("identified", ("tools without strict",), -5),  # Groq
    "or_kimi-k2_basic": ("equal", (), 0),  # Together: the template's own default system message
    "or_kimi-k2_object_streaming": ("equal", (), 0),
    "or_kimi-k2_usage": ("equal", (), 0),  # Nebius
    "or_kimi-k2_multi_tool": ("identified", ("no default system prompt", COMPACT), -58),  # Moonshot
    "or_kimi-k2_no_tool": ("unknown", (), 17),  # DeepInfra: 21 more than without a system message, text unknown
    "or_kimi-k2_token_limit": ("unknown", (), 12),
    "or_kimi-k2_streaming": ("equal", (), 0),  # Novita
    "or_kimi-k2-0905_basic": ("identified", (KIMI,), 9),  # SiliconFlow: 18 more than without a system message
    "or_kimi-k2-0905_object_basic": ("unknown", (), -25),  # AtlasCloud
    "or_kimi-k2-0905_streaming": ("equal", (), 0),  # BaseTen
}


def index(shared: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (shared / "recorded/INDEX.jsonl").read_text("utf-8").splitlines()]


def test_recorded_prompts_have_the_grade_that_their_counts_bear_out(shared_dir: Path) -> None:
    graded = {}
    for row in index(shared_dir):
        format = format_of_model(row["model"] or "")
        if format is None or row["usage"] is None:
            continue
        request = json.loads((shared_dir / "recorded" / row["request"]).read_text("utf-8"))
        stated = row["usage"]["prompt_tokens"]
        check = check_prompt(request, stated, load_vocabulary(format=format.name), format)
        assert check.rendered_tokens is not None
        graded[Path(row["file"]).stem] = (check.grade.value, check.deviations, stated - check.rendered_tokens)
        assert (len(check.prompt_ids) == stated) == (check.grade is not PromptGrade.unknown)
    assert graded == RECORDED


def test_the_prompt_that_avians_host_saw(shared_dir: Path) -> None:
    request = json.loads((shared_dir / "recorded/avian_kimi-k2.5_tool_streaming_0.request.json").read_text("utf-8"))
    vocabulary = load_vocabulary(format="kimi-k2.5")
    assert vocabulary.decode(check_prompt(request, 76, vocabulary, K25).prompt_ids) == (
        '<|im_system|>tool_declare<|im_middle|>[{"type":"function","function":{"name":"weather","description":'
        '"Get weather information for a location","parameters":{"properties":{"location":{"description":"the city",'
        '"type":"string"}},"required":["location"],"type":"object"}}}]<|im_end|>'
        "<|im_system|>system<|im_middle|>You are a helpful assistant<|im_end|>"
        "<|im_user|>user<|im_middle|>What's the weather in Florence,Italy?<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|><think>"
    )


def test_a_request_of_another_api_is_unknown_with_its_reason(shared_dir: Path, kimi: Vocabulary) -> None:
    request = json.loads((shared_dir / "recorded/bedrock_kimi-k2-thinking_tool_0.request.json").read_text("utf-8"))
    check = check_prompt(request, 75, kimi, FORMATS["kimi-k2-thinking"])
    assert (check.grade, check.prompt_ids, check.rendered_tokens) == (PromptGrade.unknown, (), None)
    assert check.reason == ("the request cannot be rendered (message 0 lacks 'type'; write it as the chat API does).")


def test_of_chance_matches_there_are_as_many_as_the_module_says(shared_dir: Path) -> None:
    """The official renderings, billed as they are and with up to ten tokens more or less."""
    path = shared_dir / "kimi-tokenizer/fixtures/chat_rendered.json"
    own: Counter[str] = Counter()
    offsets: dict[bool, list[bool]] = {True: [], False: []}
    for row in json.loads(path.read_text("utf-8")):
        if not row["add_generation_prompt"] or row["name"] == "content_parts":  # holds an image
            continue
        format, vocabulary = FORMATS[row["format"]], load_vocabulary(format=row["format"])
        body = {**row, "chat_template_kwargs": {"preserve_thinking": row["preserve_thinking"]}}
        check = check_prompt(body, len(row["ids"]), vocabulary, format, thinking=row["thinking"])
        assert list(check.prompt_ids) == row["ids"], row["name"]
        own[check.grade] += 1
        counts = Counter(map(len, renderings(body, vocabulary, format, row["thinking"])))
        offsets[bool(row["tools"])] += [counts[len(row["ids"]) + by] == 1 for by in range(-10, 11) if by]
    assert own == {"equal": 89, "unknown": 4}
    assert sum(offsets[True]) / len(offsets[True]) == pytest.approx(1 / 7, abs=0.02)
    assert sum(offsets[False]) / len(offsets[False]) == pytest.approx(1 / 20, abs=0.01)


texts = st.text(max_size=30)
turns = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": st.none() | texts}),
    min_size=1,
    max_size=4,
)
systems = st.lists(st.fixed_dictionaries({"role": st.just("system"), "content": texts}), max_size=1)


@given(systems, turns, st.sampled_from(special_tables()), st.booleans())
def test_the_count_of_a_conversation_of_text_is_equal_and_one_more_never(
    system: list[dict[str, Any]], turns: list[dict[str, Any]], name: str, thinking: bool
) -> None:
    format, vocabulary = FORMATS[name], load_vocabulary(format=name)
    messages = system + turns
    assume(not vocabulary.spelling.search(json.dumps(messages)))
    ids = format.prompt_ids(vocabulary, messages, thinking=thinking)

    def check(stated: int) -> PromptCheck:
        return check_prompt({"messages": messages}, stated, vocabulary, format, thinking=thinking)

    right = check(len(ids))
    assert (right.grade, list(right.prompt_ids), right.deviations) == (PromptGrade.equal, ids, ())
    assert right.stated_tokens == right.rendered_tokens == len(ids)
    for off in (len(ids) + 1, len(ids) - 1):
        wrong = check(off)
        assert (wrong.grade, list(wrong.prompt_ids), wrong.deviations) == (PromptGrade.unknown, ids, ())


arguments = st.dictionaries(texts, st.integers() | st.booleans() | texts, max_size=2)
histories = st.builds(
    lambda arguments, separators, reasoning: {
        "role": "assistant",
        "content": None,
        "reasoning": reasoning,
        "tool_calls": [
            {
                "id": "functions.f:0",
                "type": "function",
                "function": {"name": "f", "arguments": json.dumps(arguments, separators=separators)},
            }
        ],
    },
    arguments,
    st.sampled_from([(",", ":"), (", ", ": ")]),
    texts,
)


@given(systems, histories, st.booleans(), st.integers(-20, 20), st.sampled_from(special_tables()))
def test_a_count_gives_a_prompt_only_where_one_rendering_has_it(
    system: list[dict[str, Any]], history: dict[str, Any], strict: bool, offset: int, name: str
) -> None:
    format, vocabulary = FORMATS[name], load_vocabulary(format=name)
    function = {"name": "f", "parameters": {"type": "object"}} | ({"strict": False} if strict else {})
    body = {"messages": [*system, USER, history], "tools": [{"type": "function", "function": function}]}
    tried = renderings(body, vocabulary, format)
    plain = next(iter(tried))
    check = check_prompt(body, len(plain) + offset, vocabulary, format)
    fits = [ids for ids in tried if len(ids) == len(plain) + offset]
    if check.grade is PromptGrade.unknown:
        assert len(fits) != 1
        assert check.prompt_ids == plain
    else:
        assert fits == [check.prompt_ids]
        assert check.grade is (PromptGrade.equal if fits == [plain] else PromptGrade.identified)
        assert check.deviations == tried[fits[0]]
    assert (check.grade is PromptGrade.equal) <= (offset == 0)


CALL = {"id": "functions.f:0", "type": "function", "function": {"name": "f", "arguments": '{"a":true}'}}


@pytest.mark.parametrize(
    ("message", "other"),
    [
        # ` true` is one token as `true` is, so the count cannot tell whether a blank stands before it
        ({"role": "assistant", "content": None, "tool_calls": [CALL]}, "past arguments written with blanks"),
        # three tokens spell `</think>?`, and three are a blank, the special token and a question mark
        ({"role": "user", "content": "What is </think>?"}, "special tokens in text recognised"),
    ],
)
def test_several_renderings_of_one_count_prove_none(kimi: Vocabulary, message: dict[str, Any], other: str) -> None:
    messages = [SYSTEM, message]
    plain = K25.prompt_ids(kimi, messages)
    check = check_prompt({"messages": messages}, len(plain), kimi, K25)
    assert (check.grade, list(check.prompt_ids), check.deviations) == (PromptGrade.unknown, plain, ())
    assert check.reason == (
        f"{len(plain)} tokens were stated, +0 against our rendering, and 2 of 2 renderings tried fit"
        f" (as the template has it) ({other})."
    )


def test_without_a_request_or_a_count_nothing_is_checked(kimi: Vocabulary) -> None:
    none = check_prompt(None, 12, kimi, K25)
    assert (none.grade, none.prompt_ids, none.stated_tokens) == (PromptGrade.unchecked, (), 12)
    assert none.reason == "no request was kept."
    ids = tuple(K25.prompt_ids(kimi, [USER]))
    uncounted = check_prompt({"messages": [USER]}, None, kimi, K25)
    assert (uncounted.grade, uncounted.prompt_ids, uncounted.rendered_tokens) == (PromptGrade.unchecked, ids, len(ids))


def test_the_engines_own_ids_are_the_prompt(kimi: Vocabulary) -> None:
    body = {"messages": [USER]}
    plain = K25.prompt_ids(kimi, [USER])
    kimi_system = K25.prompt_ids(kimi, [{"role": "system", "content": KIMI.split("'")[1]}, USER])

    def check(ids: list[int], stated: int | None, request: dict[str, Any] | None = body) -> PromptCheck:
        return check_prompt(request, stated, kimi, K25, engine_prompt_ids=ids)

    for ids, deviations, words in (
        (plain, (), "they equal our rendering (as the template has it)"),
        (kimi_system, (KIMI,), f"they equal our rendering ({KIMI})"),
        ([*plain, 5], (), "they equal no rendering tried"),
    ):
        for stated in (None, len(ids)):
            found = check(ids, stated)
            assert (found.grade, list(found.prompt_ids)) == (PromptGrade.engine_ids, ids)
            assert (found.deviations, found.rendered_tokens) == (deviations, len(plain))
            assert found.reason == f"the engine returned the prompt's ids; {words}."
    assert check(plain, None, None).grade is PromptGrade.engine_ids
    assert check(plain, None, None).reason == "the engine returned the prompt's ids; no request was kept."


def test_engine_ids_that_are_not_of_this_prompt_are_not_taken(kimi: Vocabulary) -> None:
    plain = tuple(K25.prompt_ids(kimi, [USER]))
    for ids, stated, words in (
        ([*plain, 5], len(plain), f"{len(plain) + 1} prompt ids, but {len(plain)} were stated"),
        ([kimi.size], None, "prompt id 163840, outside the vocabulary"),
        ([-1], None, "prompt id -1, outside the vocabulary"),
    ):
        check = check_prompt({"messages": [USER]}, stated, kimi, K25, engine_prompt_ids=ids)
        assert (check.grade, check.prompt_ids) == (PromptGrade.unknown, plain)
        assert check.reason == f"the engine returned {words}."


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def loosely(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Objects of these fields, each of which may be absent or anything at all."""
    return st.fixed_dictionaries({}, optional={name: good | json_values for name, good in fields.items()})


wild_calls = st.lists(loosely(id=texts, function=loosely(name=texts, arguments=texts)) | json_values, max_size=2)
wild_messages = loosely(
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=texts,
    reasoning=texts,
    reasoning_details=st.lists(loosely(text=texts), max_size=2),
    tool_calls=wild_calls,
)
wild_tools = loosely(type=st.just("function"), function=loosely(name=texts, parameters=json_values))
wild_requests = loosely(
    messages=st.lists(wild_messages, max_size=3),
    tools=st.lists(wild_tools, max_size=2),
    thinking=loosely(keep=st.just("all")),
    chat_template_kwargs=loosely(preserve_thinking=st.booleans()),
)


@settings(max_examples=300)
@given(wild_requests, st.sampled_from(special_tables()))
def test_wild_requests_raise_nothing_and_never_count_as_equal(body: dict[str, Any], name: str) -> None:
    check = check_prompt(body, 1, load_vocabulary(format=name), FORMATS[name])
    assert check.grade is PromptGrade.unknown
    assert (check.rendered_tokens or 0) == len(check.prompt_ids)
    assert len(check.reason) > 10


@pytest.mark.parametrize(
    "content", ["\ud800", "\0", "a" * 1_000_000, "<|im_end|>" * 10_000, " " * 1_000_000], ids=lambda text: text[:3]
)
def test_wild_text_is_rendered(kimi: Vocabulary, content: str) -> None:
    messages = [SYSTEM, {"role": "user", "content": content}]
    ids = tuple(K25.prompt_ids(kimi, messages))
    check = check_prompt({"messages": messages}, len(ids), kimi, K25)
    assert (check.grade, check.prompt_ids) == (PromptGrade.equal, ids)


def test_nesting_without_end_is_named(kimi: Vocabulary) -> None:
    schema: dict[str, Any] = {}
    for _ in range(5_000):
        schema = {"items": schema}
    body = {"messages": [USER], "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}]}
    check = check_prompt(body, 100, kimi, K25)
    assert check.grade is PromptGrade.unknown
    assert check.reason.startswith("the request cannot be rendered (")
