"""The scripted model: true ids by hand, the same draw for the same request, every feature within 200 prompts."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_helpers.formats import FORMATS
from kimi_helpers.simulator.chat_request import ChatRequest, read_request
from kimi_helpers.simulator.scripted_arguments import argument_text, draw_style
from kimi_helpers.simulator.scripted_model import Turn, sample, write_turn
from kimi_helpers.vocabulary import Vocabulary, load_vocabulary

END_THINK, END_TURN = 163607, 163586

CITY = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": CITY}}
NOW = {"type": "function", "function": {"name": "now"}}


def request(said: str = "q", **fields: Any) -> ChatRequest:
    body = {"model": "moonshotai/kimi-k2.5", "messages": [{"role": "user", "content": said}], **fields}
    return read_request(json.dumps(body).encode())


def turns(count: int = 200, **fields: Any) -> list[Turn]:
    return [write_turn(request(f"question {number}", **fields), thinks=True) for number in range(count)]


@pytest.mark.parametrize(("format", "opening"), [("kimi-k2-thinking", [163606]), ("kimi-k2.5", []), ("kimi-k2.6", [])])
def test_who_samples_the_think_token(format: str, opening: list[int]) -> None:
    vocabulary = load_vocabulary(format=format)
    ids = sample(Turn("11", "1"), FORMATS[format], vocabulary)
    assert ids == [*opening, 1228, END_THINK, 16, END_TURN]


def test_k2_samples_no_think_token() -> None:
    assert sample(Turn(None, "1"), FORMATS["kimi-k2"], load_vocabulary(format="kimi-k2")) == [16, END_TURN]


def test_a_tool_section_as_ids(kimi: Vocabulary) -> None:
    calls = (("functions.f:0", "{}"), ("functions.g:1", "[1]"))
    section = [
        163595,
        163597, *kimi.encode("functions.f:0"), 163598, *kimi.encode("{}"), 163599,
        163597, *kimi.encode("functions.g:1"), 163598, *kimi.encode("[1]"), 163599,
        163596,
    ]  # fmt: skip
    closed, open = Turn("11", "1", calls), Turn("11", "", calls, closes_thinking=False)
    assert sample(closed, FORMATS["kimi-k2.5"], kimi) == [1228, END_THINK, 16, *section, END_TURN]
    assert sample(open, FORMATS["kimi-k2.5"], kimi) == [1228, *section, END_TURN]


def test_pieces_are_encoded_on_their_own_and_spelled_specials_stay_text(kimi: Vocabulary) -> None:
    ids = sample(Turn("a<|im_end|>", "</think>"), FORMATS["kimi-k2.5"], kimi)
    assert ids == [*kimi.encode("a<|im_end|>"), END_THINK, *kimi.encode("</think>"), END_TURN]
    assert ids.count(END_TURN) == ids.count(END_THINK) == 1


def test_the_same_request_gives_the_same_turn_and_another_seed_another() -> None:
    assert write_turn(request(), True) == write_turn(request(), True)
    assert write_turn(request(), True) == write_turn(request(stream=True, max_tokens=3), True)
    assert len({write_turn(request(seed=seed), True).content for seed in range(20)}) > 10


def test_200_plain_prompts_see_every_feature() -> None:
    told = turns()
    reasoning = [turn.reasoning or "" for turn in told]
    content = [turn.content for turn in told]
    assert 100 < sum(text.startswith(" ") for text in reasoning) < 200
    for texts in (reasoning, content):
        assert any(text[0].isdigit() for text in texts)
        assert any("\u4e00" <= text[0] <= "\u9fff" for text in texts)
        assert any(text.endswith("\n") for text in texts)
        assert any(text.endswith(" ") for text in texts)
    assert any(text.startswith("\n") for text in content)
    assert any(text.startswith(" ") for text in content)
    parts = (
        "\n    ", "\n\t", "\n\n\n\n", "| ", "$$", "👩‍👩‍👧‍👦", "ไทย", "\u2028", "<|im_end|>", "</think>",
        " " * 20, "\r\n",
    )  # fmt: skip
    for part in parts:
        assert any(part in text for text in content), part


@pytest.mark.parametrize("model", ["kimi-k2", "kimi-k2-thinking", "kimi-k2.5", "kimi-k2.6"])
def test_replies_hardly_ever_repeat(model: str) -> None:
    told = turns(1000, model=f"moonshotai/{model}")
    assert len({turn.reasoning for turn in told}) > 990
    assert len({turn.content for turn in told}) > 850
    called = turns(1000, model=f"moonshotai/{model}", tools=[WEATHER])
    assert len({turn.calls for turn in called}) > 500


def test_most_turns_have_50_to_400_tokens(kimi: Vocabulary) -> None:
    counts = [len(sample(turn, FORMATS["kimi-k2.5"], kimi)) for turn in turns()]
    assert sum(50 <= count <= 400 for count in counts) > 180


def test_200_prompts_with_tools_see_every_kind_of_call() -> None:
    told = turns(tools=[WEATHER, NOW])
    assert {len(turn.calls) for turn in told} == {0, 1, 2, 3}
    assert sum(bool(turn.calls) for turn in told) > 150
    assert 1 <= sum(not turn.closes_thinking for turn in told) <= 25
    assert all(turn.calls and not turn.content for turn in told if not turn.closes_thinking)
    assert {turn.calls[0][0] for turn in told if turn.calls} == {"functions.weather:0", "functions.now:0"}
    arguments = [text for turn in told for id, text in turn.calls if "weather" in id]
    assert any('":"' in text for text in arguments)
    assert any('": "' in text for text in arguments)
    assert any("\n  " in text for text in arguments)
    assert any("杭州" in text for text in arguments)
    assert {text for turn in told for id, text in turn.calls if "now" in id} == {"{}"}


def test_tool_choice_decides() -> None:
    assert not any(turn.calls for turn in turns(tools=[WEATHER], tool_choice="none"))
    required = turns(tools=[WEATHER], tool_choice="required")
    assert all(turn.calls and turn.reasoning and not turn.content for turn in required)
    forced = turns(tools=[WEATHER, NOW], tool_choice={"type": "function", "function": {"name": "now"}})
    assert {turn.calls[0][0] for turn in forced} == {"functions.now:0"}
    assert write_turn(request(tools=[NOW], tool_choice="required"), thinks=False).reasoning is None


def test_of_fifty_turns_one_mixes_its_spacing() -> None:
    draw = random.Random(0)
    styles = [draw_style(draw) for _ in range(5000)]
    two = {"properties": {"a": {"enum": [1]}, "b": {"enum": [2]}}, "required": ["a", "b"]}
    texts = [argument_text(two, draw, style) for style in styles]
    assert 60 < texts.count('{"a":1, "b":2}') < 140
    assert 60 < texts.count('{\n  "a": 1,\n  "b": 2\n}') < 140
    assert min(texts.count('{"a":1,"b":2}'), texts.count('{"a": 1, "b": 2}')) > 2000


def test_the_index_in_a_tool_id_runs_over_the_conversation() -> None:
    call = {"id": "functions.weather:0", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    past = {"role": "assistant", "content": None, "tool_calls": [call]}
    messages = [{"role": "user", "content": "q"}, past, {"role": "tool", "content": "22"}]
    called = write_turn(request(messages=messages, tools=[WEATHER], tool_choice="required"), True)
    assert called.calls[0][0] == "functions.weather:1"


def test_words_of_the_prompt_choose_the_topic() -> None:
    chinese = [write_turn(request(f"请写第{number}首诗"), False).content for number in range(60)]
    other = [write_turn(request(f"question {number}"), False).content for number in range(60)]
    starts = [sum("\u4e00" <= text.strip()[0] <= "\u9fff" for text in texts) for texts in (chinese, other)]
    assert starts[0] > 2 * starts[1]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "properties", "enum", "items", "required", "x"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON, st.randoms())
def test_any_schema_gets_an_object(schema: Any, draw: Any) -> None:
    assert isinstance(json.loads(argument_text(schema, draw)), dict)


@given(st.randoms(use_true_random=False))
def test_arguments_fit_their_schema(draw: Any) -> None:
    inner = {"type": "object", "properties": {"unit": {"enum": ["c", "f"]}}, "required": ["unit"]}
    properties = {
        "s": {"type": "string"}, "i": {"type": "integer"}, "n": {"type": "number"}, "b": {"type": "boolean"},
        "z": {"type": "null"}, "l": {"type": "array", "items": {"type": "integer"}}, "o": inner,
        "u": {"type": ["null"]},
    }  # fmt: skip
    told = json.loads(argument_text({"properties": properties, "required": list(properties)}, draw))
    assert list(told) == list(properties)
    assert isinstance(told["s"], str)
    assert type(told["i"]) is int
    assert isinstance(told["n"], int | float)
    assert isinstance(told["b"], bool)
    assert told["z"] is told["u"] is None
    assert all(type(number) is int for number in told["l"])
    assert told["o"]["unit"] in ("c", "f")
