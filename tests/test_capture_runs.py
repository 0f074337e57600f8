"""Whole captures: every format read back by its trainer's rules, resumed to the same bytes, faults named."""

import importlib.util
import json
import signal
import subprocess
import sys
import time
from collections import namedtuple
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from kimi_helpers import capture_runs, state_files
from kimi_helpers.capture_runs import CaptureSettings, capture_locally, estimated_bytes, make_capture, unit_worker
from kimi_helpers.captures import Capture, CaptureError, eagle3_layers
from kimi_helpers.hidden_states import capture_states
from kimi_helpers.target_models import load_target, target_facts
from tests.tiny_models import HIDDEN, LAYERS, rows_of, tiny_folder, write_rows

LENGTHS = [5, 40, 17, 39, 1, 40, 38, 3, 100, 2]
ROWS = rows_of(LENGTHS)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("capture")


@pytest.fixture(scope="module")
def base(root: Path) -> CaptureSettings:
    facts = target_facts(tiny_folder("deepseek", root))
    capture = Capture(eagle3_layers(LAYERS), LAYERS, "pre", "bfloat16")
    rows = write_rows(root / "rows.parquet", ROWS)
    return CaptureSettings(rows, root / "out", facts, capture, compute="float32", batch_tokens=80, unit_tokens=60)


def for_format(base: CaptureSettings, format: str, out: Path, **others: Any) -> CaptureSettings:
    norm = state_files.FORMATS[format].last_norm or "pre"
    return replace(base, format=format, out=out, capture=replace(base.capture, last_norm=norm), **others)


def tree(out: Path) -> dict[str, str]:
    """Every file's digest by its path."""
    return {
        str(path.relative_to(out)): sha256(path.read_bytes()).hexdigest() for path in out.rglob("*") if path.is_file()
    }


def in_memory(settings: CaptureSettings) -> list[torch.Tensor]:
    """The states of all rows, one row at a time: other batches, so equal but for rounding."""
    target = load_target(settings.facts, dtype="float32")
    return [capture_states(target, [row], settings.capture)[0].states for row in ROWS]


def close(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and torch.allclose(one.float(), other.float(), rtol=0.02, atol=0.02)


def test_specforge_reads_its_format(base: CaptureSettings, tmp_path: Path) -> None:
    settings = for_format(base, "specforge", tmp_path / "out")
    make_capture(settings, capture_locally)
    for row, states in zip(ROWS, in_memory(settings), strict=True):
        raw = torch.load(tmp_path / "out" / "rows_0-2000" / f"data_{row.index}.ckpt", weights_only=True)
        assert set(raw) == {"input_ids", "loss_mask", "hidden_state", "aux_hidden_state"}
        # its loader takes the first dimension away, the auxiliary states as input, the last as target
        auxiliary, target = raw["aux_hidden_state"].squeeze(0), raw["hidden_state"].squeeze(0)
        assert raw["aux_hidden_state"].shape == (1, row.ids.size, 3 * HIDDEN)
        assert close(auxiliary, states[:, :3].flatten(1))
        assert close(target, states[:, 3])
        assert (raw["input_ids"].dtype, raw["loss_mask"].dtype) == (torch.int64, torch.int64)
        assert raw["input_ids"].tolist() == row.ids.tolist()
        assert raw["loss_mask"].tolist() == row.mask.tolist()


def test_speculators_reads_its_format(base: CaptureSettings, tmp_path: Path) -> None:
    settings = for_format(base, "speculators", tmp_path / "out")
    make_capture(settings, capture_locally)
    for row, states in zip(ROWS, in_memory(settings), strict=True):
        loaded = load_file(tmp_path / "out" / "hidden_states" / f"hs_{row.index}.safetensors")
        assert set(loaded) == {"token_ids", "hidden_states"}
        assert loaded["token_ids"].dtype == torch.int64
        assert loaded["token_ids"].tolist() == row.ids.tolist()
        assert close(loaded["hidden_states"], states)
        checks = package("speculators", "data_generation/offline.py")
        if checks:
            checks.check_hidden_states(loaded, row.ids.tolist())


def test_model_optimizer_reads_its_format(base: CaptureSettings, tmp_path: Path) -> None:
    settings = for_format(base, "modelopt", tmp_path / "out")
    make_capture(settings, capture_locally)
    for row, states in zip(ROWS, in_memory(settings), strict=True):
        raw = torch.load(tmp_path / "out" / f"{row.row_id}.pt", weights_only=True)
        assert set(raw) == {"input_ids", "hidden_states", "aux_hidden_states", "loss_mask", "conversation_id"}
        assert raw["conversation_id"] == row.row_id
        assert raw["input_ids"].tolist() == row.ids.tolist()
        assert raw["loss_mask"].tolist() == row.mask.tolist()
        assert close(raw["hidden_states"], states[:, 3])
        assert close(raw["aux_hidden_states"], states[:, :3].flatten(1))


def package(name: str, module: str) -> ModuleType | None:
    """One module of a trainer's package, where it is installed, without the rest of it."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    found = importlib.util.spec_from_file_location("loader", Path(spec.submodule_search_locations[0]) / module)
    assert found
    assert found.loader
    loaded = importlib.util.module_from_spec(found)
    found.loader.exec_module(loaded)
    return loaded


def test_shards_are_packed_and_indexed(base: CaptureSettings, tmp_path: Path) -> None:
    settings = for_format(base, "shards", tmp_path / "out", top=2)
    make_capture(settings, capture_locally)
    index = pq.read_table(tmp_path / "out" / "index.parquet").to_pylist()
    files = pq.read_table(tmp_path / "out" / "files.parquet").to_pylist()
    assert [row["row_id"] for row in index] == [row.row_id for row in ROWS]
    for row, states, told in zip(ROWS, in_memory(settings), index, strict=True):
        shard = load_file(tmp_path / "out" / told["file"])
        place = slice(told["start"], told["start"] + told["tokens"])
        assert told["tokens"] == row.ids.size
        assert told["start"] in shard["offsets"].tolist()
        assert told["sha256"] == row.sha256
        assert shard["input_ids"][place].tolist() == row.ids.tolist()
        assert shard["loss_mask"][place].tolist() == row.mask.tolist()
        assert close(shard["hidden_states"][place], states)
        assert shard["logprob"][place][0].isnan()
        assert shard["top_ids"].shape == (len(shard["input_ids"]), 2)
    assert sum(len(load_file(tmp_path / "out" / file["path"])["input_ids"]) for file in files) == sum(LENGTHS)
    for file in files:
        assert sha256((tmp_path / "out" / file["path"]).read_bytes()).hexdigest() == file["sha256"]


@pytest.mark.parametrize("format", list(state_files.FORMATS))
def test_the_estimate_is_what_is_written(base: CaptureSettings, tmp_path: Path, format: str) -> None:
    settings = for_format(base, format, tmp_path / "out")
    done = make_capture(settings, capture_locally)
    states = sum(LENGTHS) * 4 * HIDDEN * 2
    assert done.bytes >= states
    assert done.estimated == estimated_bytes(done.plan, settings)
    assert abs(done.bytes - done.estimated) < 400 * len(ROWS) + 64 * len(done.plan.units)


@pytest.mark.parametrize("format", list(state_files.FORMATS))
def test_a_run_that_broke_off_goes_on_to_the_same_bytes(base: CaptureSettings, tmp_path: Path, format: str) -> None:
    whole = for_format(base, format, tmp_path / "whole")
    make_capture(whole, capture_locally)
    settings = replace(whole, out=tmp_path / "broken")

    def fails(settings: CaptureSettings, todo: list[Any]) -> Any:
        for number in capture_locally(settings, todo):
            yield number
            if number == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_capture(settings, fails)
    assert not (settings.out / "index.parquet").exists()
    (settings.out / "units" / "tmpabc.part").write_bytes(b"half")
    done = make_capture(settings, capture_locally)
    assert done.captured == len(done.plan.units) - 3
    assert tree(settings.out) == tree(whole.out)
    assert make_capture(settings, capture_locally).captured == 0


KILLED = """
import pickle, sys
from pathlib import Path
from kimi_helpers.capture_runs import make_capture, capture_locally
make_capture(pickle.loads(Path(sys.argv[1]).read_bytes()), capture_locally)
"""


def test_killed_at_any_point_it_goes_on_to_the_same_bytes(base: CaptureSettings, tmp_path: Path) -> None:
    import pickle  # noqa: PLC0415

    rows = write_rows(tmp_path / "many.parquet", rows_of([30] * 400))
    whole = replace(base, rows=rows, out=tmp_path / "whole", format="speculators")
    make_capture(whole, capture_locally)
    settings = replace(whole, out=tmp_path / "killed")
    (tmp_path / "settings").write_bytes(pickle.dumps(settings))
    for wanted in (1, 60, 150):  # kill when so many units are there
        child = subprocess.Popen([sys.executable, "-c", KILLED, tmp_path / "settings"], stdout=subprocess.DEVNULL)
        while child.poll() is None and len(list(settings.out.glob("units/*.json"))) < wanted:
            time.sleep(0.001)
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
        for record in settings.out.glob("units/*.json"):
            for file in json.loads(record.read_text())["files"]:  # what has a record is whole
                assert sha256((settings.out / file["path"]).read_bytes()).hexdigest() == file["sha256"]
    make_capture(settings, capture_locally)
    assert tree(settings.out) == tree(whole.out)


def test_a_full_disk_loses_nothing(base: CaptureSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = for_format(base, "speculators", tmp_path / "whole")
    make_capture(whole, capture_locally)
    settings = replace(whole, out=tmp_path / "full")
    written = []

    def full(path: Path) -> str:
        written.append(path)
        if len(written) == 6:
            raise OSError(28, "No space left on device", str(path))
        return sha256(path.read_bytes()).hexdigest()

    with monkeypatch.context() as patched:
        patched.setattr(state_files, "sha256_of", full)
        with pytest.raises(OSError, match="No space left"):
            make_capture(settings, capture_locally)
    assert list(settings.out.rglob("*.part")) == []
    assert list(settings.out.glob("units/*.json"))
    make_capture(settings, capture_locally)
    assert tree(settings.out) == tree(whole.out)


def test_too_small_a_disk_is_told_before_the_model_is_loaded(
    base: CaptureSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(capture_runs.shutil, "disk_usage", lambda _: usage(1000))
    with pytest.raises(CaptureError, match=r"0\.000 GB are to be written, but .* has 0\.000 GB free"):
        make_capture(replace(base, out=tmp_path / "out"), lambda *_: pytest.fail("the work began"))


def test_a_changed_byte_is_found_and_made_good(base: CaptureSettings, tmp_path: Path) -> None:
    settings = replace(base, out=tmp_path / "out")
    make_capture(settings, capture_locally)
    before = tree(settings.out)
    path = settings.out / "shards" / "shard-000002.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert make_capture(settings, capture_locally).captured == 0
    assert make_capture(settings, capture_locally, verify=True).captured == 1
    assert tree(settings.out) == before
    path.write_bytes(data[:-1])
    assert make_capture(settings, capture_locally).captured == 1
    assert tree(settings.out) == before


def test_nan_stops_and_names_the_row(base: CaptureSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = capture_runs.capture_states

    def poisoned(*arguments: Any) -> Any:
        captured = real(*arguments)
        for each in captured:
            if each.row.index == 3:
                each.states[7, 1, 5] = float("inf")
        return captured

    monkeypatch.setattr(capture_runs, "capture_states", poisoned)
    settings = replace(base, out=tmp_path / "out")
    with pytest.raises(CaptureError, match=r"row 3 \('row-3'\), token 7: layer 3 is NaN or infinite"):
        make_capture(settings, capture_locally)
    assert [path.name for path in (settings.out / "units").iterdir()] == ["000000.json"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format": "nonesuch"}, "no format 'nonesuch'; the formats are shards, specforge"),
        ({"format": "specforge"}, "specforge takes the last state post-norm, not pre-norm"),
        ({"format": "speculators", "top": 3}, "speculators has no place for log-probabilities"),
        ({"capture": Capture((1, 2), 9)}, "has 8 layers, not 9"),
    ],
)
def test_what_does_not_go_together_is_refused(
    base: CaptureSettings, tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    with pytest.raises(CaptureError, match=told):
        make_capture(replace(base, out=tmp_path / "out", **change), capture_locally)
    assert not (tmp_path / "out").exists()


def test_another_capture_is_not_mixed_in(base: CaptureSettings, tmp_path: Path) -> None:
    settings = replace(base, out=tmp_path / "out")
    make_capture(settings, capture_locally)
    before = tree(settings.out)
    other = replace(settings, capture=replace(base.capture, layers=(1, 2, 3)))
    with pytest.raises(CaptureError, match=r"holds another capture: its states is .*\[1, 3, 4\].* not .*\[1, 2, 3\]"):
        make_capture(other, capture_locally)
    with pytest.raises(CaptureError, match="holds another capture: its rows is"):
        make_capture(replace(settings, limit=3), capture_locally)
    assert tree(settings.out) == before
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "thesis.txt").touch()
    with pytest.raises(CaptureError, match=r"holds other files \(thesis"):
        make_capture(replace(settings, out=tmp_path / "strange"), capture_locally)


def test_two_runs_do_not_write_to_one_folder(base: CaptureSettings, tmp_path: Path) -> None:
    settings = replace(base, out=tmp_path / "out")

    def second(*_: Any) -> Any:
        with pytest.raises(CaptureError, match="another run writes to"):
            make_capture(settings, capture_locally)
        return capture_locally(*_)

    make_capture(settings, second)


def test_the_manifest_says_what_the_states_are(base: CaptureSettings, tmp_path: Path) -> None:
    make_capture(replace(base, out=tmp_path / "out"), capture_locally)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["states"] == {
        "layers_sglang": [1, 3, 4],
        "layers_vllm": [2, 4, 5, 8],
        "layers_hf": [2, 4, 5],
        "layers_of_model": 8,
        "last_norm": "pre",
        "dtype": "bfloat16",
    }
    assert manifest["model"]["revision"] == base.facts.revision
    assert manifest["rows"]["tokens"] == sum(LENGTHS)


def test_a_row_s_name_is_a_file_s_name(base: CaptureSettings, tmp_path: Path) -> None:
    names = ["../up/a", ".hidden", "帽子", "a%b"]
    rows = [replace(row, row_id=name) for row, name in zip(rows_of([3] * 4), names, strict=True)]
    settings = for_format(base, "modelopt", tmp_path / "out", rows=write_rows(tmp_path / "rows.parquet", rows))
    make_capture(settings, capture_locally)
    files = list(tmp_path.rglob("*.pt"))
    assert {path.parent for path in files} == {settings.out}
    assert {torch.load(path, weights_only=True)["conversation_id"] for path in files} == set(names)
    long = write_rows(tmp_path / "long.parquet", [replace(rows[0], row_id="x" * 201)])
    with pytest.raises(CaptureError, match="its name is too long"):
        unit_worker(replace(settings, rows=long))(capture_runs.plan_capture(long).units[0])
    assert len(list((tmp_path / "out" / "units").iterdir())) == 1
