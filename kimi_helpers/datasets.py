"""Datasets: a name, a file or a set of the hub -> prompts, streamed, with a record of what was passed over.

What stays in memory: a row (of Parquet a few), the record, and of each prompt its id (8 bytes where we made it).
"""

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kimi_helpers.dataset_adapters import ADAPTERS, Conversation, adapt
from kimi_helpers.dataset_rows import SUFFIXES, DatasetError, RowError, hub_parts, read_rows
from kimi_helpers.prompts import Prompt, default_id
from kimi_helpers.workspace import DATA, ROOT

_OUR_ID = re.compile("[0-9a-f]{16}")


@dataclass(frozen=True)
class Skip:
    """A row, or a turn of one, that gave no prompt.

    Attributes:
        place: where it stands: `line 7`, `row 7`, `row 7, turn 2`; counted from 1.
        reason: what is wrong with it.
    """

    place: str
    reason: str


@dataclass
class Record:
    """What one reading of a dataset met.

    Attributes:
        rows: rows read, bad ones too.
        prompts: prompts given.
        duplicates: prompts passed over because the dataset gave the same before, under the same id. Rows that give
            one prompt two ids of their own are two prompts.
        skipped: what gave no prompt, with the reason, in order.
    """

    rows: int = 0
    prompts: int = 0
    duplicates: int = 0
    skipped: list[Skip] = field(default_factory=list)

    def by_reason(self) -> Counter[str]:
        """How many were skipped for each reason."""
        return Counter(skip.reason for skip in self.skipped)


@dataclass
class Dataset:
    """Prompts of a source. Each iteration reads the source anew and fills a new `record`.

    Attributes:
        name: as it was asked for.
        source: a path, or `hf:org/name:config:split`.
        adapter: a name of `ADAPTERS`, or None: told row by row.
    """

    name: str
    source: str
    adapter: str | None
    record: Record = field(default_factory=Record)

    def __iter__(self) -> Iterator[Prompt]:
        """The prompts in the order of the source, one an assistant turn, no prompt twice.

        Raises:
            DatasetError: the source cannot be read on.
        """
        self.record = Record()
        seen: dict[int | str, int] = {}
        for place, row in read_rows(self.source):
            self.record.rows += 1
            prompts, skipped = _read_row(row, self.adapter, place)
            self.record.skipped += skipped
            for prompt, content in prompts:
                key = int(prompt.id, 16) if _OUR_ID.fullmatch(prompt.id) else prompt.id
                if key not in seen:
                    seen[key] = int(content, 16)
                    self.record.prompts += 1
                    yield prompt
                elif seen[key] == int(content, 16):
                    self.record.duplicates += 1
                else:
                    reason = f"it repeats the id {prompt.id!r} of another prompt"
                    self.record.skipped.append(Skip(place, reason))


def open_dataset(name: str, adapter: str | None = None) -> Dataset:
    """A dataset by name; nothing is read yet.

    Args:
        name: of the registry (`B5` or `B5_openthoughts`: the set on the hub; `B5:sample`: our own few rows, offline),
            a path (.jsonl, .parquet, .csv), or `hf:org/name[:config[:split]]`.
        adapter: a name of `ADAPTERS`; None: the registry's, or told by each row's shape.

    Raises:
        DatasetError: there is no such dataset or adapter.
    """
    if adapter is not None and adapter not in ADAPTERS:
        raise DatasetError(f"there is no adapter {adapter!r}; the adapters are {', '.join(ADAPTERS)}.")
    if name.startswith("hf:"):
        hub_parts(name)
        return Dataset(name, name, adapter)
    asked, _, variant = name.partition(":")
    for key, entry in registry().items():
        if asked in (key, key.partition("_")[0]) and variant in ("", "sample"):
            hub = f"hf:{entry['hub']}:{entry['config']}:{entry['split']}"
            source = str(ROOT / entry["sample"]) if variant else hub
            return Dataset(name, source, adapter or entry["adapter"])
    path = Path(name).expanduser()
    if path.suffix in SUFFIXES and path.is_file():
        return Dataset(name, str(path), adapter)
    raise DatasetError(
        f"{name} is no dataset: give a file that ends in {', '.join(SUFFIXES)}, hf:org/name[:config[:split]], or one"
        f" of {', '.join(registry())} (with :sample for our own few rows)."
    )


def registry() -> dict[str, dict[str, str]]:
    """The datasets known by name, from `data/datasets.toml`."""
    tables: dict[str, dict[str, str]] = tomllib.loads((DATA / "datasets.toml").read_text("utf-8"))
    return tables


def _read_row(row: Any, adapter: str | None, place: str) -> tuple[list[tuple[Prompt, str]], list[Skip]]:
    """The prompts of a row, each with the `default_id` of its content, and what of it gave none."""
    try:
        if isinstance(row, RowError):
            raise row
        conversation = adapt(row, adapter)
        skipped = []
        prompts = []
        for turn, end in enumerate(_ends(conversation), 1):
            history = conversation.messages[:end]
            if history and history[-1]["role"] in ("user", "tool"):
                prompts.append(_prompt(conversation, history))
            else:
                before = f"a message of the {history[-1]['role']}" if history else "nothing"
                skipped.append(Skip(f"{place}, turn {turn}", f"{before} stands before it; hosts would continue it"))
    except RowError as error:
        return [], [Skip(place, str(error))]
    except RecursionError:
        return [], [Skip(place, "it is nested too deeply")]
    return prompts, skipped


def _ends(conversation: Conversation) -> list[int]:
    """How many messages stand before each turn that is asked for: those of the assistant, and one that is awaited."""
    messages = conversation.messages
    ends = [] if conversation.asks_once else [i for i, said in enumerate(messages) if said["role"] == "assistant"]
    if messages[-1]["role"] in ("user", "tool") and (conversation.may_wait or not ends):
        ends.append(len(messages))
    if not ends:
        raise RowError("it asks for no answer: no message of the user or a tool is the last")
    return ends


def _prompt(conversation: Conversation, history: tuple[Any, ...]) -> tuple[Prompt, str]:
    try:
        content = default_id(history, conversation.tools, conversation.thinking)
        (conversation.id or "").encode()
    except UnicodeEncodeError:
        raise RowError("it holds half of a surrogate pair or bytes that are not UTF-8") from None
    except (TypeError, ValueError):
        raise RowError("it holds a value that JSON cannot write") from None
    return Prompt(conversation.id or content, history, conversation.tools, conversation.thinking), content
