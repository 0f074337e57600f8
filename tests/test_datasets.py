"""Datasets: names, prompts a turn, ids, duplicates, and the record of what gave no prompt."""

import csv
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_helpers import dataset_rows
from kimi_helpers.datasets import DatasetError, Record, Skip, open_dataset, registry
from kimi_helpers.prompts import Prompt, read_prompts
from kimi_helpers.workspace import DATA, ROOT

USER = {"role": "user", "content": "q"}
ANSWER = {"role": "assistant", "content": "a"}
MORE = {"role": "user", "content": "more"}


def read(tmp_path: Path, *rows: Any, adapter: str | None = None) -> tuple[list[Prompt], Record]:
    """Prompts and record of rows; a text stands for a line as it is."""
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), "utf-8")
    dataset = open_dataset(str(path), adapter)
    return list(dataset), dataset.record


def id_of(messages: Sequence[Any]) -> str:
    """The id by its definition: sha256 of canonical JSON."""
    canonical = json.dumps({"messages": messages, "thinking": True, "tools": None}, sort_keys=True).replace(" ", "")
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


# one prompt a turn


def test_a_conversation_gives_a_prompt_an_assistant_turn(tmp_path: Path) -> None:
    last = {"role": "user", "content": "last"}
    prompts, record = read(tmp_path, {"conversations": [USER, ANSWER, MORE, ANSWER, last]})
    histories = [(USER,), (USER, ANSWER, MORE), (USER, ANSWER, MORE, ANSWER, last)]
    assert [prompt.messages for prompt in prompts] == histories
    assert [prompt.id for prompt in prompts] == [id_of(history) for history in histories]
    assert all(prompt.tools is None and prompt.thinking for prompt in prompts)
    assert record == Record(rows=1, prompts=3)


def test_a_trajectory_that_just_ends_asks_nothing_more(tmp_path: Path) -> None:
    prompts, _ = read(tmp_path, {"trajectory": [USER, ANSWER, MORE]}, {"trajectory": [MORE]})
    assert [prompt.messages for prompt in prompts] == [(USER,), (MORE,)]


def test_histories_hold_calls_and_results_and_tools_are_sent(tmp_path: Path) -> None:
    called = {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": '{"x": 1}'}}]}
    result = {"role": "tool", "content": "1", "tool_call_id": "c"}
    prompts, _ = read(tmp_path, {"messages": [USER, called, result, ANSWER], "tools": [{"name": "f"}]})
    assert [len(prompt.messages) for prompt in prompts] == [1, 3]
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    assert prompts[1].messages == (USER, {"role": "assistant", "content": None, "tool_calls": [call]}, result)
    declared = {"name": "f", "description": "", "parameters": {"type": "object", "properties": {}}}
    assert prompts[0].tools == prompts[1].tools == ({"type": "function", "function": declared},)


def test_turns_that_no_request_can_ask_for_are_listed(tmp_path: Path) -> None:
    system = {"role": "system", "content": "s"}
    prompts, record = read(
        tmp_path,
        {"messages": [ANSWER, MORE, ANSWER, ANSWER]},
        {"messages": [system, ANSWER]},
        {"messages": [system]},
        {"messages": []},
        {"conversations": [USER, ANSWER]},
    )
    assert [prompt.messages for prompt in prompts] == [(ANSWER, MORE), (USER,)]
    assert record.skipped == [
        Skip("line 1, turn 1", "nothing stands before it; hosts would continue it"),
        Skip("line 1, turn 3", "a message of the assistant stands before it; hosts would continue it"),
        Skip("line 2, turn 1", "a message of the system stands before it; hosts would continue it"),
        Skip("line 3", "it asks for no answer: no message of the user or a tool is the last"),
        Skip("line 4", "messages is empty"),
    ]
    assert (record.rows, record.prompts, record.duplicates) == (5, 2, 0)


# ids and duplicates


def test_duplicates_are_counted_within_a_row_and_between_rows(tmp_path: Path) -> None:
    conversation = {"conversations": [USER, ANSWER, MORE, ANSWER]}
    prompts, record = read(tmp_path, conversation, conversation, {"problem": "q"}, {"messages": [USER]})
    assert [prompt.messages for prompt in prompts] == [(USER,), (USER, ANSWER, MORE)]
    assert record == Record(rows=4, prompts=2, duplicates=4)


def test_own_ids_name_prompts_and_one_id_names_one_prompt(tmp_path: Path) -> None:
    own = id_of([MORE])
    prompts, record = read(
        tmp_path,
        {"id": "x", "messages": [USER]},
        {"id": "x", "messages": [MORE]},
        {"id": "x", "messages": [USER]},
        {"id": "y", "messages": [USER]},
        {"id": own, "messages": [USER]},
        {"messages": [MORE]},
    )
    assert [(prompt.id, prompt.messages) for prompt in prompts] == [("x", (USER,)), ("y", (USER,)), (own, (USER,))]
    repeats = [
        Skip("line 2", "it repeats the id 'x' of another prompt"),
        Skip("line 6", f"it repeats the id '{own}' of another prompt"),
    ]
    assert record == Record(rows=6, prompts=3, duplicates=1, skipped=repeats)


def test_an_id_that_is_taken_does_not_cost_a_row_its_other_turns(tmp_path: Path) -> None:
    taken = {"id": id_of([USER]), "messages": [MORE]}
    prompts, record = read(tmp_path, taken, {"conversations": [USER, ANSWER, MORE, ANSWER]})
    assert [prompt.messages for prompt in prompts] == [(MORE,), (USER, ANSWER, MORE)]
    assert [skip.place for skip in record.skipped] == ["line 2"]


def test_our_own_prompt_file_reads_as_read_prompts_reads_it() -> None:
    path = DATA / "prompts" / "loopback.jsonl"
    expected = [(prompt.id, prompt.tools, prompt.thinking) for prompt in read_prompts(path)]
    assert [(prompt.id, prompt.tools, prompt.thinking) for prompt in open_dataset(str(path))] == expected


TEXTS = st.text(st.characters(codec="utf-8"), min_size=1).filter(str.strip)
CONVERSATIONS = st.lists(st.lists(TEXTS, min_size=1, max_size=4), min_size=1, max_size=5)


def exchanges(asked: Sequence[str]) -> dict[str, Any]:
    """A conversation with an answer to each question."""
    return {"conversations": [said for text in asked for said in (USER | {"content": text}, ANSWER)]}


@given(CONVERSATIONS, st.randoms())
def test_law_one_prompt_a_turn_and_ids_that_do_not_hang_on_the_order_of_rows(
    tmp_path_factory: pytest.TempPathFactory, asked: list[list[str]], random: Any
) -> None:
    folder = tmp_path_factory.mktemp("law")
    prompts, record = read(folder, *map(exchanges, asked))
    assert record.prompts + record.duplicates == sum(map(len, asked))
    # the number of distinct beginnings of the conversations
    assert record.prompts == len({tuple(texts[:end]) for texts in asked for end in range(1, len(texts) + 1)})
    random.shuffle(asked)
    shuffled, _ = read(folder, *map(exchanges, asked))
    assert {prompt.id: prompt.messages for prompt in shuffled} == {prompt.id: prompt.messages for prompt in prompts}
    assert len({prompt.id for prompt in prompts}) == record.prompts


# bad rows


def test_bad_rows_are_listed_and_stop_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_rows, "LONGEST_ROW", 1000)
    deep = '{"problem": "q", "tools": [{"name": "f", "parameters": {"type": "object", "d": %s}}]}'
    prompts, record = read(
        tmp_path,
        "\ufeff" + json.dumps({"problem": "1"}) + "\r",
        "",
        {"problem": "\ud83d"},
        {"id": "\ud83d", "messages": [USER]},
        '{"problem": "a\x00b"}',
        {"problem": "a\x00b"},
        '{"messages": [{"role": "user", "content": "q", "n": NaN}]}',
        deep % "NaN",
        {"conversations": []},
        {"problem": "x" * 2000},
        {"answer": "x"},
        "[1]",
        "null",
        {"problem": "2"},
    )
    assert [prompt.messages[0]["content"] for prompt in prompts] == ["1", "a\0b", "q", "2"]
    control = "it is not JSON (Invalid control character at: line 1 column 15 (char 14))"
    assert record.skipped == [
        Skip("line 3", "it holds half of a surrogate pair or bytes that are not UTF-8"),
        Skip("line 4", "it holds half of a surrogate pair or bytes that are not UTF-8"),
        Skip("line 5", control),
        Skip("line 8", "it holds a value that JSON cannot write"),
        Skip("line 9", "conversations is empty"),
        Skip("line 10", "it is longer than 1,000 bytes"),
        Skip("line 11", "no adapter fits its columns (answer)"),
        Skip("line 12", "it is not an object"),
        Skip("line 13", "it is not an object"),
    ]
    assert record.rows == 13
    assert record.by_reason()["it is not an object"] == 2


def test_rows_nested_too_deeply_for_any_step(tmp_path: Path) -> None:
    def row(depth: int) -> str:
        deep = '{"a": ' * depth + "1" + "}" * depth
        tool = '{"type": "function", "function": {"name": "f", "parameters": ' + deep + "}}"
        return '{"problem": "q", "tools": [' + tool + "]}"

    # which step gives up, and at which depth, is the interpreter's affair
    depths = range(50, 1050, 50)
    prompts, record = read(tmp_path, *map(row, depths), row(100_000), {"problem": "q"})
    assert prompts[-1].messages == (USER,)
    assert record.skipped[-1] == Skip("line 21", "it is nested too deeply")
    assert {skip.reason for skip in record.skipped} == {"it is nested too deeply"}
    assert record.prompts + len(record.skipped) == record.rows


def test_each_reading_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"problem": "q"}\n{"problem": "q"}\n[]\n', "utf-8")
    dataset = open_dataset(str(path))
    assert len(list(dataset)) == len(list(dataset)) == 1
    assert dataset.record == Record(3, 1, 1, [Skip("line 3", "it is not an object")])


# files


def test_the_same_rows_as_jsonl_parquet_and_csv_give_the_same_prompts(tmp_path: Path) -> None:
    rows = [
        {"problem": 'Ä, "b"\nc', "tools": json.dumps([{"name": "f"}])},
        {"problem": "q", "tools": ""},
    ]
    jsonl, _ = read(tmp_path, *rows)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    with (tmp_path / "rows.csv").open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, ["problem", "tools"])
        writer.writeheader()
        writer.writerows(rows)
    assert len(jsonl) == 2
    assert list(open_dataset(str(tmp_path / "rows.parquet"))) == jsonl
    assert list(open_dataset(str(tmp_path / "rows.csv"))) == jsonl


def test_nested_messages_of_parquet_give_the_prompts_of_jsonl(tmp_path: Path) -> None:
    rows = [
        {"messages": [USER, ANSWER | {"tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]}]},
        {"messages": [USER, {"role": "assistant", "tool_calls": [{"function": {"name": "g", "arguments": {"y": 2}}}]},
                      {"role": "tool", "content": "r"}, ANSWER]},
    ]  # fmt: skip
    jsonl, _ = read(tmp_path, *rows)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    assert list(open_dataset(str(tmp_path / "rows.parquet"))) == jsonl
    assert jsonl[1].messages[1]["tool_calls"][0]["function"]["arguments"] == '{"y": 2}'


def test_csv_bytes_that_are_not_utf8_spoil_their_row_alone(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(b"problem,note\na,\xff\n\xff,b\nc,d\n")
    dataset = open_dataset(str(tmp_path / "rows.csv"))
    assert [prompt.messages[0]["content"] for prompt in dataset] == ["a", "c"]
    assert dataset.record.skipped == [Skip("row 2", "it holds half of a surrogate pair or bytes that are not UTF-8")]


# names


def test_the_eight_sets_by_name_and_number() -> None:
    assert [name.partition("_")[0] for name in registry()] == [f"B{number}" for number in range(1, 9)]
    given = {name for name, entry in registry().items() if entry["chosen_by"] == "pipeline"}
    assert given == {"B1_glaive", "B5_openthoughts", "B8_sweagent"}
    assert open_dataset("B5").source == open_dataset("B5_openthoughts").source
    assert open_dataset("B5").source == "hf:open-thoughts/OpenThoughts-114k::train"
    assert open_dataset("B4").source == "hf:HuggingFaceH4/ultrachat_200k::train_sft"
    assert open_dataset("B5:sample").source == str(ROOT / "data/samples/openthoughts.jsonl")
    assert open_dataset("B5", adapter="messages").adapter == "messages"


# how each format writes the beginning of an answer; a row of columns is a question alone
ANSWERS = {"B1": r"ASSISTANT: ", "B4": r'"role": "assistant"', "B5": r'"from": "assistant"', "B8": r'"role": "ai"'}


@pytest.mark.parametrize("number", [f"B{number}" for number in range(1, 9)])
def test_each_sample_reads_whole_by_its_adapter_and_by_its_shape(number: str) -> None:
    dataset = open_dataset(f"{number}:sample")
    prompts = list(dataset)
    text = Path(dataset.source).read_text("utf-8")
    assert dataset.record == Record(rows=12, prompts=text.count(ANSWERS[number]) if number in ANSWERS else 12)
    assert (number == "B6") == any(prompt.tools for prompt in prompts)
    assert list(open_dataset(dataset.source)) == prompts


@pytest.mark.parametrize(
    "name", ["B9", "B5:samples", "B5:sample:x", "B", "", "away.jsonl", "README.md", "a\0b.jsonl", "/"]
)
def test_what_is_no_dataset(name: str) -> None:
    with pytest.raises(DatasetError) as caught:
        open_dataset(name)
    assert str(caught.value).startswith(f"{name} is no dataset: give a file that ends in .jsonl, .parquet, .csv, hf:")
    assert "\n" not in str(caught.value)


def test_names_and_adapters_are_checked_before_anything_is_read() -> None:
    with pytest.raises(DatasetError, match="write hf:org/name"):
        open_dataset("hf:nothing")
    with pytest.raises(DatasetError, match="the adapters are messages, conversations, glaive, trajectory, columns"):
        open_dataset("B5", adapter="sharegpt")


def test_a_set_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(hub: str, config: str | None, *, split: str, streaming: bool) -> list[dict[str, Any]]:
        assert (hub, config, split, streaming) == ("open-thoughts/OpenThoughts-114k", None, "train", True)
        return [{"system": "s", "conversations": [{"from": "user", "value": "q"}]}, {"conversations": None}]

    monkeypatch.setattr(datasets, "load_dataset", load)
    dataset = open_dataset("B5")
    assert [prompt.messages for prompt in dataset] == [({"role": "system", "content": "s"}, USER)]
    assert dataset.record.skipped == [Skip("row 2", "conversations is not a list")]
