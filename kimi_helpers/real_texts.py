"""Real text for measurements: files of a folder or lines of a file, sampled; by default Python's own sources."""

import gzip
import json
import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path

_SUFFIXES = frozenset({".py", ".txt", ".rst", ".md", ".html", ".gz", ".json", ".c", ".h", ".js", ".css", ".xml", ""})
DEBIAN_DOCUMENTS = Path("/usr/share/doc")
_GZIP = b"\x1f\x8b"


class TextsError(ValueError):
    """A source of texts that holds none; the message says what to give."""


def default_folders() -> list[Path]:
    """Where real text lies on most machines: the standard library's sources, and Debian's documentation if present."""
    folders = [Path(sysconfig.get_path("stdlib")), DEBIAN_DOCUMENTS]
    return [folder for folder in folders if folder.is_dir()]


def sample_texts(source: Path | None, count: int, longest: int = 4_000, seed: int = 0) -> dict[str, str]:
    """Texts by name, at most `count`, drawn at random and in the order of their names.

    Args:
        source: a folder (its text files), a `.jsonl` file (a JSON string or an object with `text` a line), another
            file (paragraphs between blank lines), or None: `default_folders`.
        count: how many at most.
        longest: texts are cut to this many characters.
        seed: of the draw.

    Raises:
        TextsError: the source is missing or holds no text.
    """
    if source is None or source.is_dir():
        folders = [source] if source else default_folders()
        paths = sorted(path for folder in folders for path in folder.rglob("*") if _is_text_file(path))
        random.Random(seed).shuffle(paths)
        named: Iterator[tuple[str, str]] = ((str(path), text) for path in paths if (text := _read(path)) is not None)
    elif source.is_file():
        parts = list(_parts(source))
        random.Random(seed).shuffle(parts)
        named = iter(parts)
    else:
        raise TextsError(f"{source}: no such file or folder; give one that holds texts, or nothing.")
    texts: dict[str, str] = {}
    for name, text in named:
        if len(texts) == count:
            break
        texts[name] = text[:longest]
    if not texts:
        raise TextsError(f"{source or 'the default folders'}: no text in it; give a folder or file that holds some.")
    return dict(sorted(texts.items()))


def _is_text_file(path: Path) -> bool:
    return path.suffix in _SUFFIXES and "site-packages" not in path.parts and path.is_file() and not path.is_symlink()


def _read(path: Path) -> str | None:
    """The text of a file, unpacked; None where it is empty, unreadable or not UTF-8."""
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if data.startswith(_GZIP) else data).decode("utf-8")
    except (OSError, EOFError, ValueError):
        return None
    return text or None


def _parts(path: Path) -> Iterator[tuple[str, str]]:
    text = path.read_text("utf-8", errors="replace")
    if path.suffix != ".jsonl":
        parts = [part for part in text.split("\n\n") if part.strip()]
        yield from ((f"{path.name} {place:06}", part) for place, part in enumerate(parts))
        return
    for number, line in enumerate(text.splitlines(), 1):
        try:
            row = json.loads(line)
            value = row if isinstance(row, str) else row["text"]
        except (ValueError, KeyError, TypeError):
            raise TextsError(f"{path}, line {number}: neither a JSON string nor an object with `text`.") from None
        if value:
            yield f"{path.name} {number:06}", str(value)
