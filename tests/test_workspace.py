"""Paths of the workspace, and files written whole."""

from pathlib import Path

import pytest

from kimi_helpers.workspace import DATA, NOTEBOOKS, ROOT, from_root, replaced_whole, write_whole


def test_the_workspace_is_the_checkout() -> None:
    assert (ROOT / "pyproject.toml").is_file()
    assert (DATA / "special_tokens").is_dir()
    assert NOTEBOOKS.parent == ROOT


def test_relative_paths_start_at_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert from_root("outputs/x") == ROOT / "outputs" / "x"
    assert from_root(str(tmp_path)) == tmp_path


def test_a_file_is_written_whole_or_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "some.json"
    write_whole(path, "你好".encode())
    assert path.read_bytes() == "你好".encode()
    with pytest.raises(TypeError):
        write_whole(path, "text")  # type: ignore[arg-type]
    assert path.read_bytes() == "你好".encode()
    assert list(path.parent.iterdir()) == [path]


def test_nothing_is_left_where_the_rename_fails(tmp_path: Path) -> None:
    target = tmp_path / "folder" / "file"
    target.mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        write_whole(target, b"data")
    assert list(target.parent.iterdir()) == [target]


def test_what_a_block_wrote_takes_the_place_once_it_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "rows.jsonl"
    for text in ("first", "second"):
        with replaced_whole(path) as beside:
            assert beside.name == path.name  # writers look at the suffix
            beside.write_text(text)
            assert not path.exists() or path.read_text() == "first"
        assert path.read_text() == text
    assert list(path.parent.iterdir()) == [path]


def test_a_block_that_breaks_off_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("before")

    def broken_off() -> None:
        with replaced_whole(path) as beside:
            beside.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()
    assert path.read_text() == "before"
    with pytest.raises(FileNotFoundError), replaced_whole(path):
        pass  # nothing was written
    assert [each.name for each in tmp_path.iterdir()] == ["rows.jsonl"]
    assert path.read_text() == "before"
