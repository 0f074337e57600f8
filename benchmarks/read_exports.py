"""Read exports with the trainers' own loaders, each in an environment that has its package; not part of `make test`.

    PYTHON_OF_SPECFORGE benchmarks/read_exports.py specforge outputs/specforge outputs/set
    PYTHON_OF_SPECULATORS benchmarks/read_exports.py speculators outputs/speculators outputs/set

Written for specforge 0.2.0 and speculators 0.9.0. Every row's ids and mask are compared with the set's.
"""

import json
import sys
from pathlib import Path

import pyarrow.parquet as pq


def expected(folder: Path) -> list[tuple[list[int], list[int]]]:
    """Ids and mask of each row to train on, in the set's order."""
    rows = [row for path in sorted(folder.glob("train-*.parquet")) for row in pq.read_table(path).to_pylist()]
    return [(row["input_ids"], row["loss_mask"]) for row in rows]


def read_specforge(out: Path) -> list[tuple[list[int], list[int]]]:
    from specforge.data.prompt_builder import prepare_prompt_tasks  # noqa: PLC0415

    tasks = prepare_prompt_tasks(
        str(out / "train.jsonl"),
        None,
        chat_template=None,
        max_length=1 << 20,
        is_preformatted=False,
        train_only_last_turn=False,
        cache_dir=None,
        cache_key=None,
        num_proc=None,
    )
    return [(task["payload"]["input_ids"], task["payload"]["loss_mask"]) for task in tasks]


def read_speculators(out: Path) -> list[tuple[list[int], list[int]]]:
    from speculators.train.data import ArrowDataset  # noqa: PLC0415

    data = ArrowDataset(max_len=1 << 20, datapath=str(out)).data
    return [(row["input_ids"].tolist(), row["loss_mask"].tolist()) for row in data]


if __name__ == "__main__":
    trainer, out, made = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    found = {"specforge": read_specforge, "speculators": read_speculators}[trainer](out)
    same = found == expected(made)
    print(json.dumps({"trainer": trainer, "rows": len(found), "equal": same}))
    sys.exit(not same)
