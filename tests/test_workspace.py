"""Paths of the workspace, and files written whole."""

from pathlib import Path

import pytest

from kimi_helpers.workspace import DATA, NOTEBOOKS, ROOT, from_root, write_whole


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
