"""The data card of a training set: what is in it, where it comes from, what is known and not known of its ids.

Written beside the shards as `card.md`, which the site of all runs shows, and as `card.html`, with the tokens in colour.
All of it follows from the set alone, so the same set has the same card. Names and tokens are untrusted: all is escaped.
"""

import json
import re
import shlex
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from kimi_helpers.merging import MANIFEST, read_manifest, shard_paths
from kimi_helpers.page_safety import make_accessible, markdown_html
from kimi_helpers.rendering import TEMPLATES, style_sheet
from kimi_helpers.selection import RESTS_ON_COUNT
from kimi_helpers.set_tasks import BINS_A_DOUBLING, SPLITS, Fields, added
from kimi_helpers.token_view import TokenView
from kimi_helpers.training import vocabulary_of
from kimi_helpers.training_inputs import file_digest
from kimi_helpers.workspace import printable, write_whole

CARD, PAGE = "card.md", "card.html"
SAMPLE_ROWS = 5
SAMPLE_TOKENS = 120  # of a row; of a longer one the middle is left out
MOST_NAMES = 5  # of datasets, in the title
MOST_FILES = 40  # whose hashes are listed; the manifest has all
_SHARES = (0.5, 0.9, 0.99, 1.0)


def write_cards(folder: Path, tokenizer: str | None = None) -> None:
    """Write `card.md` and `card.html` into a training set, each whole.

    Args:
        folder: the set.
        tokenizer: as `load_vocabulary`'s `source`.

    Raises:
        MergeError: the folder is no training set.
    """
    manifest = read_manifest(folder)
    title = _title(manifest)
    text = card_text(manifest, title, file_digest(folder / MANIFEST))
    samples = _samples(folder, tokenizer)
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    page = environment.get_template("training_card.html.j2").render(
        css=style_sheet(), title=title, card=markdown_html(text), samples=samples
    )
    write_whole(folder / CARD, (text + _sample_text(samples)).encode())
    write_whole(folder / PAGE, make_accessible(page).encode())


def card_text(manifest: Fields, title: str, digest: str) -> str:
    """The card but for its sample, as Markdown.

    Args:
        manifest: of the set.
        title: its heading.
        digest: sha256 of the manifest's file.
    """
    sections = (
        _summary(manifest, title),
        _sources(manifest),
        *(_counts(manifest, column) for column in ("grade", "provider", "finish_reason", "model")),
        _left_out(manifest),
        _lengths(manifest),
        _unseen(manifest),
        _how_to(manifest),
        _hashes(manifest, digest),
    )
    return "\n\n".join(sections) + "\n"


def plain(text: object) -> str:
    """Untrusted text that stands for itself in Markdown, also in a cell of a table."""
    shown = escape(printable("not stated" if text is None else str(text)), quote=False)
    return re.sub(r"([\\`*_\[\]#!|~$])", r"\\\1", shown)


def _table(*head: str, rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *([plain(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _fenced(text: str) -> str:
    """A block of code that no run of backticks in it can end."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"


def _datasets(manifest: Fields) -> list[str]:
    return sorted({group["dataset"] for split in SPLITS for group in manifest["groups"][split]})


def _title(manifest: Fields) -> str:
    names = _datasets(manifest)
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"Training set of {', '.join(names[:MOST_NAMES])}{more}"


def _total(manifest: Fields, split: str, column: str) -> int:
    return sum(group[column] for group in manifest["groups"][split])


def _summary(manifest: Fields, title: str) -> str:
    told = [
        f"{_total(manifest, split, 'rows'):,} rows {words}, with {_total(manifest, split, 'completion_tokens'):,}"
        f" sampled tokens after {_total(manifest, split, 'prompt_tokens'):,} of their prompts"
        for split, words in zip(SPLITS, ("to train on", "apart for evaluation"), strict=True)
    ]
    return (
        f"# {plain(title)}\n\n{told[0]}; {told[1]}. A row is one generation event: `input_ids` is the"
        " prompt that the model saw and then what it sampled, and `loss_mask` is 1 on what it sampled. The splits are"
        f" by conversation. {manifest['rows_read']:,} rows were read."
    )


def _sources(manifest: Fields) -> str:
    terms = manifest["policy"]["datasets"]
    names = _datasets(manifest)
    stated = [(name, terms.get(name, {})) for name in names]
    datasets = [
        (name, of.get("licence", "not stated"), of.get("origin", "not stated"), *_of_dataset(manifest, name))
        for name, of in stated
    ]
    files = [(file["name"], file["dataset"], file["kind"], file["sha256"]) for file in manifest["inputs"]]
    return (
        "## Sources and licences\n\nAs the policy states them.\n\n"
        + _table("dataset", "licence", "origin", "rows to train on", "apart", rows=datasets)
        + "\n\n"
        + _table("file read", "its dataset, where no journal names one", "kind", "SHA-256", rows=files)
    )


def _of_dataset(manifest: Fields, name: str) -> list[str]:
    groups = manifest["groups"]
    return [f"{sum(each['rows'] for each in groups[split] if each['dataset'] == name):,}" for split in SPLITS]


def _counts(manifest: Fields, column: str) -> str:
    groups = [group for split in SPLITS for group in manifest["groups"][split]]
    rows, tokens = (
        added([{str(group[column] or "not stated"): group[number]} for group in groups])
        for number in ("rows", "completion_tokens")
    )
    most_first = sorted(rows, key=lambda name: (-rows[name], name))
    title = column.replace("_", " ")
    counted = [(name, f"{rows[name]:,}", f"{tokens[name]:,}") for name in most_first]
    return f"## Rows by {title}\n\n" + _table(title, "rows", "sampled tokens", rows=counted)


def _left_out(manifest: Fields) -> str:
    reasons = added(list(manifest["rejected"].values()))
    counted = sorted(((name, number) for name, number in reasons.items() if number), key=lambda each: -each[1])
    told = _table("reason", "rows", rows=[(name, f"{number:,}") for name, number in counted]) if counted else "None."
    looked = manifest["benchmarks"]
    if looked:
        told += f"\n\nLooked for: {looked['prompts']:,} prompts of benchmarks; found in {looked['rows_found']:,} rows."
    return f"## Rows left out\n\n{told}"


def _lengths(manifest: Fields) -> str:
    both = [(name, counts) for split in SPLITS for name, counts in manifest["lengths"][split].items()]
    bins: dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]] = {}
    for name, counts in both:
        bins[name] = bins.get(name, np.zeros(len(counts), np.int64)) + np.array(counts, np.int64)
    rows = [(name, *(f"{_bound(counts, share):,}" for share in _SHARES)) for name, counts in sorted(bins.items())]
    heads = [f"{share:.0%} of rows below" for share in _SHARES]
    return "## Lengths of the sampled part, in tokens\n\n" + _table("dataset", *heads, rows=rows)


def _bound(counts: np.ndarray[tuple[int], np.dtype[np.int64]], share: float) -> int:
    """The end of the bin in which a share of the rows is reached: all of them are below it."""
    place = int(np.searchsorted(np.cumsum(counts), share * counts.sum()))
    return int(np.ceil(2.0 ** ((place + 1) / BINS_A_DOUBLING)))


def _unseen(manifest: Fields) -> str:
    resting = sum(
        group["rows"] for split in SPLITS for group in manifest["groups"][split] if group["grade"] in RESTS_ON_COUNT
    )
    told = [(file["name"], file["residual"] or "The file does not say.") for file in manifest["inputs"]]
    return (
        f"## What counts cannot see\n\n{resting:,} rows rest on the billed count. As measured where each file was made:"
        "\n\n" + _table("file read", "what remains", rows=told)
    )


def _how_to(manifest: Fields) -> str:
    files = shlex.join(f"{file['dataset']}={file['name']}" for file in manifest["inputs"])
    command = (
        f"python -m kimi_helpers training build {files} --policy policy.toml --seed {manifest['seed']}"
        f" --size {manifest['size']} --format {manifest['format']} --out FOLDER"
    )
    used = [(name, version) for name, version in manifest["versions"].items()]
    used += [("SHA-256 of the vocabulary's ranks", manifest["vocabulary"]["ranks_sha256"])]
    used += [(f"SHA-256 of {file['name']}", file["sha256"]) for file in manifest["policy_files"]]
    return (
        "## How to make it again\n\nThe same files, policy and versions give the same bytes, with any number of"
        f" workers.\n\n{_fenced(printable(command))}\n\n"
        + _table("what", "version or hash", rows=used)
        + "\n\nThe policy:\n\n"
        + _fenced(json.dumps(manifest["policy"], indent=1))
    )


def _hashes(manifest: Fields, digest: str) -> str:
    files = [(file["name"], f"{file['rows']:,}", file["sha256"]) for file in manifest["files"]]
    more = f"\n\n{len(files) - MOST_FILES} more are in `{MANIFEST}`." if len(files) > MOST_FILES else ""
    return (
        "## Hashes\n\n" + _table("file", "rows", "SHA-256", rows=[(MANIFEST, "", digest), *files[:MOST_FILES]]) + more
    )


def _samples(folder: Path, tokenizer: str | None) -> list[tuple[str, TokenView]]:
    """A title and the tokens of the set's first rows, which are a sample since the set is shuffled."""
    samples: list[tuple[str, TokenView]] = []
    for path in shard_paths(folder, "train"):
        with pq.ParquetFile(path, pre_buffer=False) as file:
            batches = file.iter_batches(SAMPLE_ROWS, columns=_SHOWN)
            rows = next(batches).to_pylist() if file.metadata.num_rows else []
        samples += [_sample(row, tokenizer) for row in rows[: SAMPLE_ROWS - len(samples)]]
        if len(samples) == SAMPLE_ROWS:
            break
    return samples


_SHOWN = ["row_id", "input_ids", "loss_mask", "prompt_length", "completion_length", "format", "dataset", "grade"]


def _sample(row: Fields, tokenizer: str | None) -> tuple[str, TokenView]:
    title = (
        f"Row {row['row_id']} of {row['dataset']}, {row['grade']}: {row['prompt_length']} tokens of the prompt with"
        f" mask 0, {row['completion_length']} sampled tokens with mask 1"
    )
    view = TokenView(row["input_ids"], vocabulary_of(tokenizer, row["format"]), row["loss_mask"], SAMPLE_TOKENS)
    return title, view


def _sample_text(samples: Sequence[tuple[str, TokenView]]) -> str:
    """The sample for a reader of text: prompt and sampled part apart, each token after its id."""
    parts = [f"\n## A sample of rows\n\nIn colour in `{PAGE}`."]
    for title, view in samples:
        sampled = sum(view.loss_mask or ())
        border = len(view.ids) - sampled
        halves = [TokenView(ids, view.vocabulary, most=view.most) for ids in (view.ids[:border], view.ids[border:])]
        parts += [plain(title), "Mask 0:", _fenced(repr(halves[0])), "Mask 1:", _fenced(repr(halves[1]))]
    return "\n\n".join(parts) + "\n"
