"""Tests of prompt files."""

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_helpers.formats import FORMATS
from kimi_helpers.prompts import PromptFileError, read_prompts
from kimi_helpers.workspace import DATA

HI = [{"role": "user", "content": "Hi"}]


def write(tmp_path: Path, *lines: str | bytes) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_bytes(b"\n".join(line.encode() if isinstance(line, str) else line for line in lines))
    return path


def row(**fields: object) -> str:
    return json.dumps({"messages": HI} | fields)


def test_a_row_becomes_a_prompt_as_written(tmp_path: Path) -> None:
    line = (
        '{"id": "a", "thinking": false, "messages": [{"content": "Hi", "role": "user", "name": "Li"}],'
        ' "tools": [{"type": "function", "function": {"parameters": {}, "name": "f"}}]}'
    )
    [prompt] = read_prompts(write(tmp_path, line))
    assert prompt.id == "a"
    assert prompt.thinking is False
    assert prompt.messages == ({"content": "Hi", "role": "user", "name": "Li"},)
    assert json.dumps(prompt.tools) == '[{"type": "function", "function": {"parameters": {}, "name": "f"}}]'


def test_defaults(tmp_path: Path) -> None:
    first, second = read_prompts(write(tmp_path, row(), row(id="b", tools=[])))
    assert first.tools is None
    assert first.thinking is True
    canonical = b'{"messages":[{"content":"Hi","role":"user"}],"thinking":true,"tools":null}'
    assert first.id == hashlib.sha256(canonical).hexdigest()[:16]
    assert second.tools is None


def test_the_default_id_depends_on_every_field_and_not_on_the_order_of_keys(tmp_path: Path) -> None:
    swapped = '{"thinking": true, "messages": [{"content": "Hi", "role": "user"}]}'
    tool = {"type": "function", "function": {"name": "f"}}
    ids = [prompt.id for prompt in read_prompts(write(tmp_path, row(), row(thinking=False), row(tools=[tool])))]
    assert len(set(ids)) == 3
    assert read_prompts(write(tmp_path, swapped))[0].id == ids[0]


def test_lines_end_at_newlines_alone(tmp_path: Path) -> None:
    text = "a\u2028b\u2029c\x85d"
    line = json.dumps({"messages": [{"role": "user", "content": text}]}, ensure_ascii=False)
    prompts = read_prompts(
        write(tmp_path, b"\xef\xbb\xbf" + line.encode() + b"\r", "", row().replace(" ", "\r"), "", "")
    )
    assert [prompt.messages[0]["content"] for prompt in prompts] == [text, "Hi"]


@given(st.text(st.characters(codec="utf-8")))
def test_any_text_comes_through(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    line = json.dumps({"messages": [{"role": "user", "content": text}]}, ensure_ascii=False)
    [prompt] = read_prompts(write(tmp_path_factory.mktemp("prompts"), line))
    assert prompt.messages[0]["content"] == text


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "not JSON"),
        (b'{"id": "\xff"}', "not UTF-8 at byte 8"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "the row: "),
        ("{}", "messages: Field required"),
        (row(messages=[]), "messages: "),
        (row(id=""), "id: "),
        (row(id=7), "id: "),
        (row(thinking="no"), "thinking: "),
        (row(thinkin=False), "thinkin: Extra inputs are not permitted"),
        (row(messages=[{"role": "robot", "content": "Hi"}]), "messages.0.role: "),
        (row(messages=[{"role": "user"}]), "messages.0.content: Field required"),
        (row(messages=[*HI, {"role": "assistant", "content": "Hello"}]), "the last message"),
        (row(messages=[{"role": "system", "content": "Be brief."}]), "the last message"),
        (row(tools=[{"type": "function", "function": {"description": "?"}}]), "tools.0.function.name: "),
        (row(messages=[{"role": "user", "content": "\ud83d"}]), "surrogate"),
        (row(id="\ud83d"), "id: "),
        (row(messages=[{"role": "user", "content": "Hi", "n": float("nan")}]), "not finite"),
        (row(id="a"), "repeats the id 'a' of line 1"),
    ],
)
def test_a_bad_row_is_named_in_one_sentence(tmp_path: Path, line: str | bytes, told: str) -> None:
    path = write(tmp_path, row(id="a"), "", line)
    with pytest.raises(PromptFileError) as caught:
        read_prompts(path)
    message = str(caught.value)
    assert message.startswith(f"{path}, line 3: ")
    assert told in message
    assert "\n" not in message


def test_a_file_without_prompts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PromptFileError, match="holds no prompts"):
        read_prompts(write(tmp_path, "", " "))


def test_our_own_set_covers_what_it_is_for() -> None:
    prompts = read_prompts(DATA / "prompts" / "loopback.jsonl")
    assert len(prompts) == 24
    assert sum(not prompt.thinking for prompt in prompts) == 3
    assert {len(prompt.tools or ()) for prompt in prompts} == {0, 1, 3}
    assert sum(prompt.messages[-1]["role"] == "tool" for prompt in prompts) == 1
    assert any(prompt.messages[0]["role"] == "system" and not prompt.tools for prompt in prompts)
    for prompt in prompts:
        segments = FORMATS["kimi-k2.5"].prompt_segments(prompt.messages, prompt.tools, prompt.thinking)
        assert prompt.messages[-1]["content"] in segments
