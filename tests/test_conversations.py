"""Conversation exports, rendered, tokenised and masked as the trainers do it: every row comes back, or is counted."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from datasets import load_dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2.sandbox import ImmutableSandboxedEnvironment

from kimi_helpers.exports.conversations import (
    TEMPLATE,
    NoConversation,
    conversation_of,
    rendered,
    template_of,
)
from kimi_helpers.exports.model_optimizer import export_model_optimizer
from kimi_helpers.exports.specforge import export_specforge_conversations
from kimi_helpers.formats import FORMATS
from kimi_helpers.merging import build_set, shard_paths
from kimi_helpers.selection import Policy
from kimi_helpers.training_inputs import find_source
from kimi_helpers.vocabulary import load_vocabulary
from tests.training_samples import K25, completion_ids, prompt_ids, row, write_rows

VOCABULARY = load_vocabulary()
ASKED = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Is 7 prime?\n"},
    {"role": "assistant", "content": "Yes.", "reasoning_content": "gone from later prompts"},
    {"role": "user", "content": "{{ 8 }}? <b>"},
]
ENVIRONMENT = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)  # as Hugging Face's tokenizers


def in_two(text: str) -> list[int]:
    """The ids of a text whose halves were sampled apart."""
    half = len(text) // 2
    return [*VOCABULARY.encode(text[:half]), *VOCABULARY.encode(text[half:])]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sets")
    rows = [row(f"q{n}", f" a{n}\n", f"Hm {n}.\n", name=str(n)) for n in range(12)]
    rows.append(
        {"prompt": K25.prompt_ids(VOCABULARY, ASKED), "completion": completion_ids("Even.", "No."), "name": "x"}
    )
    rows.append({"prompt": prompt_ids("hi"), "completion": (*in_two("hello"), *completion_ids("", "")), "name": "y"})
    source = write_rows(folder / "a.parquet", rows)
    build_set([find_source(str(source))], Policy(evaluation=0.3), folder / "set", 1)
    return folder / "set"


def rows_by_id(folder: Path) -> dict[str, dict[str, Any]]:
    paths = [path for split in ("train", "evaluation") for path in shard_paths(folder, split)]
    return {each["row_id"]: each for path in paths for each in pq.read_table(path).to_pylist()}


def by_template(folder: Path, messages: list[dict[str, Any]]) -> str:
    return ENVIRONMENT.from_string((folder / TEMPLATE).read_text()).render(messages=messages)


def specforge_mask(text: str) -> list[int]:
    """1 from the last assistant header to the end of the turn, by the lengths of encoded prefixes."""
    spans = list(re.finditer(r"<\|im_assistant\|>assistant<\|im_middle\|>([\s\S]*?(?:<\|im_end\|>|$))", text))
    start, end = (len(VOCABULARY.encode(text[:place], specials=True)) for place in spans[-1].span(1))
    total = len(VOCABULARY.encode(text, specials=True))
    return [int(start <= place < end) for place in range(total)]


def test_specforge_reads_reasoning_and_the_same_ids(made: Path, tmp_path: Path) -> None:
    exported = export_specforge_conversations(made, tmp_path, 100)
    expected = rows_by_id(made)
    assert exported.left_out == {"its text makes other ids": 1}
    assert exported.rows == len(expected) - 1 == 13
    seen = set()
    for split in ("train", "evaluation"):
        for line in load_dataset("json", data_files=str(tmp_path / f"{split}.jsonl"), split="train"):
            each, text = expected[line["id"]], by_template(tmp_path, line["conversations"])
            assert VOCABULARY.encode(text, specials=True) == each["input_ids"]
            mask = specforge_mask(text)
            opening = each["prompt_length"] - 1  # `<think>`, which the prompt supplies
            assert mask == [*each["loss_mask"][:opening], 1, *each["loss_mask"][opening + 1 :]]
            assert line["conversations"][-1]["reasoning_content"]
            seen.add(line["id"])
    assert len(seen) == 13
    assert (tmp_path / "vocab_mapping.pt").is_file()


def test_model_optimizer_reads_named_conversations(made: Path, tmp_path: Path) -> None:
    export_model_optimizer(made, tmp_path)
    expected = rows_by_id(made)
    data = load_dataset("json", data_files={"train": f"{tmp_path}/*.jsonl"}, split="train")
    assert len(data) == len(set(data["conversation_id"])) == 13
    for line in data:
        each = expected[line["conversation_id"]]
        assert by_template(tmp_path, line["conversations"]) == VOCABULARY.decode(each["input_ids"])


def test_history_is_that_of_the_prompt(made: Path, tmp_path: Path) -> None:
    export_model_optimizer(made, tmp_path)
    lines = [json.loads(line) for path in tmp_path.glob("*.jsonl") for line in path.read_text().splitlines()]
    long = next(line["conversations"] for line in lines if len(line["conversations"]) > 2)
    assert long == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Is 7 prime?\n"},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "{{ 8 }}? <b>"},
        {"role": "assistant", "content": "No.", "reasoning_content": "Even."},
    ]


TEXTS = st.text(max_size=12)


@pytest.mark.parametrize("name", ["kimi-k2", "kimi-k2-thinking", "kimi-k2.5"])
@given(asked=TEXTS, reasoning=TEXTS, answer=TEXTS)
@settings(max_examples=60, deadline=None)
def test_any_turn_is_stated_exactly_or_not_at_all(name: str, asked: str, reasoning: str, answer: str) -> None:
    layout, vocabulary = FORMATS[name], load_vocabulary(format=name)
    prompt = layout.prompt_segments([{"role": "user", "content": asked}])
    completion = layout.completion_segments([reasoning], [answer])
    ids = vocabulary.encode("".join(str(getattr(part, "text", part)) for part in [*prompt, *completion]), specials=True)
    messages = conversation_of(ids, vocabulary, layout)
    text = ENVIRONMENT.from_string(template_of([layout])).render(messages=messages)
    assert text == rendered(messages, layout)
    assert vocabulary.encode(text, specials=True) == ids
    assert messages[-1]["content"] == answer
    assert messages[-1].get("reasoning_content", "") == (reasoning if layout.thinks else "")


@pytest.mark.parametrize(
    ("ids", "reason"),
    [
        ([*prompt_ids("q"), *completion_ids("r", "a")[:-1]], "cut by its length"),
        ([*prompt_ids("q"), *completion_ids("r", ""), *completion_ids("r", "a")], "a turn without a header"),
        ([*prompt_ids("q <|im_end|>"), *completion_ids("r", "a")], "special tokens spelled in a message"),
        ([*prompt_ids("q"), *in_two("hello"), *completion_ids("", "a")], "its text makes other ids"),
        ([*prompt_ids("q"), *VOCABULARY.encode("r<|im_end|>", specials=True)], "a think section that is not closed"),
        (
            [*prompt_ids("q"), *VOCABULARY.encode("</think><|tool_call_begin|><|im_end|>", specials=True)],
            "special tokens inside a message",
        ),
        ([*prompt_ids("q"), *VOCABULARY.encode("</think>🙂")[:-1], *completion_ids("", "")], "not UTF-8"),
    ],
)
def test_what_text_cannot_say_is_told(ids: list[int], reason: str) -> None:
    with pytest.raises(NoConversation, match=reason):
        conversation_of(ids, VOCABULARY, K25)


def test_tools_are_not_stated_as_messages() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
    prompt = K25.prompt_ids(VOCABULARY, [{"role": "user", "content": "q"}], tools)
    with pytest.raises(NoConversation, match="tools"):
        conversation_of([*prompt, *completion_ids("r", "a")], VOCABULARY, K25)


def test_formats_of_two_kinds_have_no_one_template() -> None:
    with pytest.raises(ValueError, match=r"renders kimi-k2, kimi-k2\.5: make a set of one format"):
        template_of([FORMATS["kimi-k2"], FORMATS["kimi-k2.5"]])
    assert template_of([FORMATS["kimi-k2.5"], FORMATS["kimi-k2.6"]]) == template_of([K25])
