"""What SpecForge's own parser makes of an export of conversations: every id and the mask of the sampled turn.

    pip install --no-deps --target build/trainers specforge==0.2.0
    python benchmarks/read_conversations.py build/trainers outputs/specforge-conversations outputs/set

Only the modules that render, tokenise and mask are run, with our vocabulary behind the few methods that they call, and
a template without a system message of its own. The mask may differ from ours in the `<think>` that a prompt supplies.
"""

import importlib
import json
import sys
import warnings
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import click
import pyarrow.parquet as pq
import torch
from jinja2.sandbox import ImmutableSandboxedEnvironment

from kimi_helpers.exports.conversations import TEMPLATE
from kimi_helpers.merging import shard_paths
from kimi_helpers.set_tasks import SPLITS
from kimi_helpers.vocabulary import load_vocabulary


class Tokenizer:
    """What the parser asks of a tokenizer."""

    pad_token_id = unk_token_id = 1

    def __init__(self, template: str, format: str) -> None:
        self.template = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).from_string(template)
        self.vocabulary = load_vocabulary(format=format)

    def apply_chat_template(self, messages: list[dict[str, Any]], **_: Any) -> str:
        return self.template.render(messages=messages)

    def encode(self, text: str, **_: Any) -> list[int]:
        return self.vocabulary.encode(text, specials=True)

    def __call__(self, text: str, **_: Any) -> SimpleNamespace:
        return SimpleNamespace(input_ids=torch.tensor([self.encode(text)]))


def modules_of(packages: Path) -> tuple[Any, Any]:
    """SpecForge's parser and its templates, without the imports of its package."""
    package = ModuleType("specforge_data")
    package.__path__ = [str(packages / "specforge/data")]
    sys.modules["specforge_data"] = package
    return importlib.import_module("specforge_data.parse"), importlib.import_module("specforge_data.template")


@click.command(help=__doc__)
@click.argument("packages", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("out", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("made", type=click.Path(exists=True, file_okay=False, path_type=Path))
def main(packages: Path, out: Path, made: Path) -> None:
    warnings.simplefilter("ignore")  # of a first message that is the system's
    parse, template = modules_of(packages)
    kimi = template.TEMPLATE_REGISTRY.get("kimi-k2-thinking").model_copy(update={"system_prompt": None})
    shards = [path for split in SPLITS for path in shard_paths(made, split)]
    rows = {row["row_id"]: row for path in shards for row in pq.read_table(path).to_pylist()}
    read = 0
    for path in sorted(out.glob("*.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            said = json.loads(line)
            row = rows[said["id"]]
            tokenizer = Tokenizer((out / TEMPLATE).read_text(), row["format"])
            ids, mask = parse.ThinkingParser(tokenizer, kimi).parse(
                said["conversations"], 1 << 20, train_only_last_turn=True
            )
            assert ids.tolist() == row["input_ids"], said["id"]
            start = mask.tolist().index(1)
            assert mask.tolist() == [0] * start + [1] * (len(ids) - start), said["id"]
            by_prompt = tokenizer.vocabulary.decode(row["input_ids"][start : row["prompt_length"]])
            assert by_prompt in ("", "<think>", "<think></think>"), said["id"]
            read += 1
    print(f"{read} of {len(rows)} rows read; ids are equal, the masks but for a think token of the prompt")


if __name__ == "__main__":
    main()
