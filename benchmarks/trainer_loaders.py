"""What the trainers' own loaders make of our files.

    pip install --no-deps --target build/trainers specforge==0.2.0 speculators==0.9.0 nvidia-modelopt==0.47.0
    python benchmarks/trainer_loaders.py build/trainers

The packages want much that is not needed to read a file, so single modules of theirs are run, on a tiny model's states.
"""

import ast
import importlib.util
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import click
import torch
from safetensors.torch import load_file

from kimi_helpers.capture_runs import CaptureSettings, capture_locally, make_capture
from kimi_helpers.captures import Capture, eagle3_layers
from kimi_helpers.state_files import FORMATS
from kimi_helpers.target_models import target_facts
from tests.tiny_models import LAYERS, rows_of, tiny_folder, write_rows

ROWS = rows_of([5, 40, 17])


def module_of(path: Path, name: str) -> Any:
    """One file of a package, run without the package's own imports."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def by_speculators(packages: Path, out: Path) -> str:
    """Its listing, its search for corrupt files, its check of a file."""
    offline = module_of(packages / "speculators/data_generation/offline.py", "speculators_offline")
    folder = out / "hidden_states"
    found = offline.get_existing_hidden_state_indices(folder)
    assert found == [row.index for row in ROWS]
    assert offline.find_corrupt_hidden_state_indices(folder, found) == {}
    for row in ROWS:
        offline.check_hidden_states(load_file(folder / f"hs_{row.index}.safetensors"), row.ids.tolist())
    return f"{len(found)} files listed, opened and checked"


def by_specforge(packages: Path, out: Path) -> str:
    """Its reader with eager validation, and the function that makes a training sample."""
    sys.path.insert(0, str(packages))
    from specforge.runtime.data_plane.offline_reader import OfflineManifestReader  # noqa: PLC0415

    refs = OfflineManifestReader(str(out), validate_files=True).read()
    assert sorted(ref.num_tokens for ref in refs) == sorted(row.ids.size for row in ROWS)
    source = ast.parse((packages / "specforge/data/preprocessing.py").read_text("utf-8"))
    wanted = [part for part in source.body if getattr(part, "name", "") == "process_offline_eagle3_sample"]
    names: dict[str, Any] = {"torch": torch, "Dict": dict}
    exec(compile(ast.Module(wanted, []), "preprocessing", "exec"), names)
    raw = torch.load(out / "rows_0-2000" / "data_1.ckpt", weights_only=True)
    sample = names["process_offline_eagle3_sample"](raw, 2048)
    assert sample["input_ids"][0].tolist() == ROWS[1].ids.tolist()
    return ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in sample.items())


def by_model_optimizer(packages: Path, out: Path) -> str:
    """Its data set and its collator."""
    for name in ("modelopt", "modelopt.torch", "modelopt.torch.utils"):
        sys.modules[name] = ModuleType(name)
    module_of(packages / "modelopt/torch/utils/loss_mask.py", "modelopt.torch.utils.loss_mask")
    utils = module_of(packages / "modelopt/torch/speculative/eagle/utils.py", "modelopt_eagle_utils")
    rows = utils.OfflineSupervisedDataset([out / f"{row.row_id}.pt" for row in ROWS], answer_only_loss=True)
    for place, row in enumerate(ROWS):
        assert rows[place]["input_ids"].tolist() == row.ids.tolist()
        assert rows[place]["loss_mask"].tolist() == row.mask.tolist()
        assert rows[place]["base_hidden_prenorm"] is False
    batch = utils.EagleOfflineDataCollator(40)([rows[place] for place in range(len(ROWS))])
    outputs = batch["base_model_outputs"]
    return ", ".join(f"{name} {list(getattr(value, 'shape', [value]))}" for name, value in outputs.items())


@click.command(help=__doc__)
@click.argument("packages", type=click.Path(exists=True, file_okay=False, path_type=Path))
def main(packages: Path) -> None:
    loaders = {"speculators": by_speculators, "specforge": by_specforge, "modelopt": by_model_optimizer}
    with TemporaryDirectory() as beside:
        root = Path(beside)
        facts = target_facts(tiny_folder("llama", root))
        rows = write_rows(root / "rows.parquet", ROWS)
        for format, loader in loaders.items():
            capture = Capture(eagle3_layers(LAYERS), LAYERS, FORMATS[format].last_norm or "pre")
            settings = CaptureSettings(rows, root / format, facts, capture, format, compute="float32")
            make_capture(settings, capture_locally, told=lambda _: None)
            print(f"{format}: {loader(packages.resolve(), settings.out)}")


if __name__ == "__main__":
    main()
