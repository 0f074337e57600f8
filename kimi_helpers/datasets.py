"""Datasets: a name, a file or a set of the hub -> prompts, streamed, with a record of what was passed over.

One row is in memory at a time, and of each prompt 8 bytes of its digest, by which duplicates are told.
"""

import codecs
import csv
import json
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kimi_helpers.dataset_adapters import ADAPTERS, Conversation, RowError, adapt
from kimi_helpers.prompts import Prompt, default_id
from kimi_helpers.workspace import DATA, ROOT

LONGEST_ROW = 1 << 28
_SUFFIXES = (".jsonl", ".parquet", ".csv")


class DatasetError(ValueError):
    """A dataset that cannot be opened or read on; the message says which and what to do."""


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
        duplicates: prompts passed over because the dataset gave the same before.
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
        seen: set[int] = set()
        own_ids: set[str] = set()
        for place, row in _rows(self.source):
            self.record.rows += 1
            try:
                if isinstance(row, RowError):
                    raise row
                for prompt in _prompts(adapt(row, self.adapter), place, self.record):
                    content = default_id(prompt.messages, prompt.tools, prompt.thinking)
                    if int(content, 16) in seen:
                        self.record.duplicates += 1
                        continue
                    if prompt.id in own_ids:
                        raise RowError(f"it repeats the id {prompt.id!r} of another prompt")
                    seen.add(int(content, 16))
                    if prompt.id != content:
                        own_ids.add(prompt.id)
                    self.record.prompts += 1
                    yield prompt
            except RowError as error:
                self.record.skipped.append(Skip(place, str(error)))
            except RecursionError:
                self.record.skipped.append(Skip(place, "it is nested too deeply"))


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
        _hub_parts(name)
        return Dataset(name, name, adapter)
    asked, _, variant = name.partition(":")
    for key, entry in registry().items():
        if asked in (key, key.partition("_")[0]) and variant in ("", "sample"):
            hub = f"hf:{entry['hub']}:{entry['config']}:{entry['split']}"
            source = str(ROOT / entry["sample"]) if variant else hub
            return Dataset(name, source, adapter or entry["adapter"])
    path = Path(name).expanduser()
    if path.suffix in _SUFFIXES and path.is_file():
        return Dataset(name, str(path), adapter)
    raise DatasetError(
        f"{name} is no dataset: give a file that ends in {', '.join(_SUFFIXES)}, hf:org/name[:config[:split]], or one"
        f" of {', '.join(registry())} (with :sample for our own few rows)."
    )


def registry() -> dict[str, dict[str, str]]:
    """The datasets known by name, from `data/datasets.toml`."""
    tables: dict[str, dict[str, str]] = tomllib.loads((DATA / "datasets.toml").read_text("utf-8"))
    return tables


def _prompts(conversation: Conversation, place: str, record: Record) -> Iterator[Prompt]:
    """One prompt an assistant turn, with the history before it; and one for the turn that a last message waits for."""
    messages = conversation.messages
    ends = [] if conversation.asks_once else [i for i, said in enumerate(messages) if said["role"] == "assistant"]
    if messages[-1]["role"] in ("user", "tool") and (conversation.may_wait or not ends):
        ends.append(len(messages))
    if not ends:
        raise RowError("it asks for no answer: no message of the user or a tool is the last")
    prompts = []
    for turn, end in enumerate(ends, 1):
        history = messages[:end]
        if not history or history[-1]["role"] not in ("user", "tool"):
            what = f"a message of the {history[-1]['role']}" if history else "nothing"
            record.skipped.append(Skip(f"{place}, turn {turn}", f"{what} stands before it; hosts would continue it"))
            continue
        try:
            content = default_id(history, conversation.tools, conversation.thinking)
            (conversation.id or "").encode()
        except UnicodeEncodeError:
            raise RowError("it holds half of a surrogate pair or bytes that are not UTF-8") from None
        except (TypeError, ValueError):
            raise RowError("it holds a value that JSON cannot write") from None
        prompts.append(Prompt(conversation.id or content, history, conversation.tools, conversation.thinking))
    yield from prompts


def _rows(source: str) -> Iterator[tuple[str, Any]]:
    """(place, row) pairs; a row that cannot be parsed is the RowError that says why."""
    if source.startswith("hf:"):
        return _hub_rows(source)
    return {".jsonl": _jsonl_rows, ".parquet": _parquet_rows, ".csv": _csv_rows}[Path(source).suffix](Path(source))


def _jsonl_rows(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(LONGEST_ROW):
                number += 1
                place = f"line {number}"
                if len(line) == LONGEST_ROW and not line.endswith(b"\n"):
                    while (rest := file.readline(LONGEST_ROW)) and not rest.endswith(b"\n"):
                        pass
                    yield place, RowError(f"it is longer than {LONGEST_ROW:,} bytes")
                    continue
                line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
                if line.strip():
                    yield place, _parsed(line)
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror}.") from None


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        return RowError(f"it is not UTF-8 at byte {error.start}")
    except RecursionError:
        return RowError("it is nested too deeply")
    except ValueError as error:
        return RowError(f"it is not JSON ({error})")


def _parquet_rows(path: Path) -> Iterator[tuple[str, Any]]:
    number = 0
    try:
        # read ahead, a file's bytes would be kept until its end
        for batch in pq.ParquetFile(path, pre_buffer=False).iter_batches(16):
            for row in batch.to_pylist():
                number += 1
                yield f"row {number}", row
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} cannot be read after row {number}: {' '.join(str(error).split())[:200]}.") from None


def _csv_rows(path: Path) -> Iterator[tuple[str, Any]]:
    csv.field_size_limit(LONGEST_ROW)
    number = 0
    try:
        # bytes that are not UTF-8 become lone surrogates, which are then told row by row
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            for row in csv.DictReader(file, strict=True):
                number += 1
                ragged = None in row or None in row.values()
                yield f"row {number}", RowError("it has more or fewer cells than the header") if ragged else row
    except (csv.Error, OSError) as error:
        raise DatasetError(f"{path} cannot be read after row {number}: {error}.") from None


def _hub_parts(name: str) -> tuple[str, str | None, str]:
    hub, config, split, *more = [*name.removeprefix("hf:").split(":"), "", ""][: max(3, name.count(":"))]
    if more or hub.count("/") != 1 or not all(hub.split("/")):
        raise DatasetError(f"{name} names no set of the hub; write hf:org/name[:config[:split]].")
    return hub, config or None, split or "train"


def _hub_rows(source: str) -> Iterator[tuple[str, Any]]:
    from datasets import load_dataset  # noqa: PLC0415 - it takes seconds to import, and files need none of it

    hub, config, split = _hub_parts(source)
    number = 0
    try:
        for row in load_dataset(hub, config, split=split, streaming=True):
            number += 1
            yield f"row {number}", row
    except Exception as error:  # the library raises a class of its own for each way in which a hub fails
        told = " ".join(str(error).split())[:200]
        raise DatasetError(
            f"{hub} could not be streamed from the hub after row {number} ({type(error).__name__}: {told}); check the"
            " name and the network, or name a local copy or a `:sample`."
        ) from None
