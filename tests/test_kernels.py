"""The kernel is this interpreter's, or the run is refused."""

import json
from pathlib import Path

import pytest
from jupyter_client.kernelspec import KernelSpecManager

from kimi_helpers import kernels
from kimi_helpers.notebook_files import NotebookError


def test_this_environment_has_its_own_kernel() -> None:
    kernels.require_kernel()
    assert KernelSpecManager().get_kernel_spec(kernels.KERNEL).argv[1:3] == ["-m", "ipykernel_launcher"]


def test_a_kernel_of_another_interpreter_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "kernels" / "python3"
    folder.mkdir(parents=True)
    spec = {"argv": [str(tmp_path / "python"), "-m", "ipykernel_launcher", "-f", "{connection_file}"]}
    (folder / "kernel.json").write_text(json.dumps(spec | {"display_name": "x", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    with pytest.raises(NotebookError, match=r"another interpreter .* ipykernel install --sys-prefix --name python3"):
        kernels.require_kernel()


def test_a_missing_kernel_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "KERNEL", "no_such_kernel")
    with pytest.raises(NotebookError, match="no Jupyter kernel named no_such_kernel; run `"):
        kernels.require_kernel()


@pytest.mark.parametrize("depth", [1, 9])
def test_sockets_have_a_folder_of_their_own_with_a_short_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, depth: int
) -> None:
    parent = tmp_path.joinpath(*["0123456789"] * depth)
    parent.mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(parent))
    with kernels.private_kernel() as one, kernels.private_kernel() as other:
        assert (one.transport, len(one.ip) < 100) == ("ipc", True)
        assert Path(one.ip).parent.stat().st_mode & 0o077 == 0
        assert Path(one.ip).parent != Path(other.ip).parent
        folder = Path(one.ip).parent
    assert not folder.exists()
