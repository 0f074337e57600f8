"""Exports, read back by each trainer's own rules: every id and every bit of the mask is that of the set."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from datasets import load_from_disk

from kimi_helpers.exports.hugging_face import export_hugging_face
from kimi_helpers.exports.specforge import export_specforge
from kimi_helpers.exports.speculators import export_speculators
from kimi_helpers.merging import build_set, shard_paths
from kimi_helpers.selection import Policy
from kimi_helpers.training import SET_SCHEMA
from kimi_helpers.training_inputs import find_source
from tests.training_samples import row, write_rows


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sets")
    source = write_rows(folder / "a.parquet", [row(f"q{n}", f"a{n}", name=str(n)) for n in range(20)])
    build_set([find_source(str(source))], Policy(evaluation=0.3), folder / "set", 1)
    return folder / "set"


def rows(folder: Path, split: str) -> list[dict[str, Any]]:
    return [each for path in shard_paths(folder, split) for each in pq.read_table(path).to_pylist()]


def test_specforge_reads_ids_and_masks_a_line(made: Path, tmp_path: Path) -> None:
    export_specforge(made, tmp_path, 100)
    for split in ("train", "evaluation"):
        lines = [json.loads(line) for line in (tmp_path / f"{split}.jsonl").read_text().splitlines()]
        expected = rows(made, split)
        assert [(line["input_ids"], line["loss_mask"]) for line in lines] == [
            (each["input_ids"], each["loss_mask"]) for each in expected
        ]
        assert all(set(line["loss_mask"]) == {0, 1} for line in lines)
    maps = torch.load(tmp_path / "vocab_mapping.pt", weights_only=True)
    assert (maps["d2t"].dtype, maps["t2d"].dtype) == (torch.int64, torch.bool)
    assert (torch.arange(100) + maps["d2t"]).tolist() == torch.nonzero(maps["t2d"]).flatten().tolist()


def test_speculators_reads_a_folder_of_tensors(made: Path, tmp_path: Path) -> None:
    out = export_speculators(made, tmp_path / "out", 100)
    data, expected = load_from_disk(str(out)), rows(made, "train")
    assert len(data) == len(expected)
    for found, each in zip(data, expected, strict=True):
        assert found["input_ids"].dtype == found["loss_mask"].dtype == torch.int64
        assert found["input_ids"].tolist() == each["input_ids"]
        assert found["loss_mask"].tolist() == each["loss_mask"]
        assert found["seq_len"] == len(each["input_ids"])
    counted: dict[int, int] = {}
    for found in data:
        for id in found["input_ids"][found["loss_mask"].bool()].tolist():
            counted[id] = counted.get(id, 0) + 1
    assert torch.load(out / "token_freq.pt", weights_only=True) == counted
    assert np.load(out / "t2d-100.npy").sum() == 100
    with pytest.raises(FileExistsError):
        export_speculators(made, out, 100)


def test_datasets_reads_all_columns_of_both_splits(made: Path, tmp_path: Path) -> None:
    out = export_hugging_face(made, tmp_path / "out")
    data = load_from_disk(str(out))
    assert {split: data[split].to_list() for split in data} == {
        split: rows(made, split) for split in ("train", "evaluation")
    }
    assert data["train"].features.arrow_schema.equals(SET_SCHEMA)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    with pytest.raises(FileExistsError):
        export_hugging_face(made, out)


def test_datasets_reads_a_split_without_rows(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "a.parquet", [row("q", "a")])
    build_set([find_source(str(source))], Policy(evaluation=0.0), tmp_path / "set")
    data = load_from_disk(str(export_hugging_face(tmp_path / "set", tmp_path / "out")))
    assert (len(data["train"]), len(data["evaluation"])) == (1, 0)
