"""A vocabulary from the hub: its two files at one commit, checked before they are kept."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from kimi_helpers.rank_files import RANK_FILE, TABLE_FILE, VocabularyError, digest, hub_folder, kimi_ranks
from kimi_helpers.vocabulary import build_vocabulary, read_table
from kimi_helpers.workspace import write_whole


def commit_of(hub_id: str) -> str:
    """The newest commit of a hub repository, to pin a download to.

    Raises:
        VocabularyError: the hub cannot be reached, or has no such repository.
    """
    from huggingface_hub import HfApi  # noqa: PLC0415  (slow import, needed only here)

    with _hub_errors(hub_id):
        return str(HfApi().model_info(hub_id).sha)


def _fetch_from_hub(hub_id: str, name: str, revision: str) -> bytes:
    from huggingface_hub import hf_hub_download  # noqa: PLC0415

    with _hub_errors(hub_id):
        return Path(hf_hub_download(hub_id, name, revision=revision)).read_bytes()


@contextmanager
def _hub_errors(hub_id: str) -> Iterator[None]:
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError  # noqa: PLC0415

    try:
        yield
    except (HfHubHTTPError, HFValidationError, OSError, httpx.HTTPError) as error:
        reason = " ".join(str(error).split())[:200]
        raise VocabularyError(f"{hub_id} cannot be fetched from the hub: {type(error).__name__}: {reason}") from None


def download_vocabulary(hub_id: str, revision: str, fetch: Callable[[str, str, str], bytes] = _fetch_from_hub) -> Path:
    """Fetch `tiktoken.model` and `tokenizer_config.json` of a hub repository at one commit.

    Args:
        hub_id: `organisation/name`.
        revision: the full commit (40 hex digits): a branch can change under a data set, a commit cannot.
        fetch: (hub id, file name, revision) -> bytes.

    Returns:
        The folder that holds both files, fit for `load_vocabulary`.

    Raises:
        VocabularyError: the revision is not a commit, the rank file is not Kimi's, or the vocabulary fails a check.
            Nothing is written then.
    """
    if not re.fullmatch(r"[0-9a-f]{40}", revision):
        raise VocabularyError(
            f"revision {revision!r} is not a full commit (40 hex digits); copy one from the repository's history."
        )
    files = {name: fetch(hub_id, name, revision) for name in (RANK_FILE, TABLE_FILE)}
    found = digest(files[RANK_FILE])
    if found != kimi_ranks().sha256:
        raise VocabularyError(
            f"{hub_id} at {revision[:12]}: {RANK_FILE} has sha256 {found[:12]}..., not Kimi's"
            f" {kimi_ranks().sha256[:12]}...; name a repository of the Kimi K2 family."
        )
    build_vocabulary(files[RANK_FILE], read_table(files[TABLE_FILE], hub_id), hub_id)
    folder = hub_folder(hub_id, revision)
    for name, data in files.items():
        write_whole(folder / name, data)
    return folder
