"""Bulk reconstruction on several machines: the function of one process, under Ray Data.

Every machine needs this package and the folders of the sources and of the output under the same paths. A batch that a
lost worker held is graded again by another, so nothing is lost and nothing comes twice.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from kimi_helpers.bulk_reconstruction import ROWS_A_BATCH, BulkSettings, grade_table, write_graded, write_tables
from kimi_helpers.reply_sources import PARQUET_SUFFIX, parquet_columns, read_tables
from kimi_helpers.reply_tables import RAW_SCHEMA

READER_CPUS = 0.1


class ClusterError(RuntimeError):
    """There is no cluster to run on; the message says what to do."""


def reconstruct_on_cluster(
    sources: Sequence[Path], settings: BulkSettings, out: Path, address: str | None = None
) -> dict[str, dict[str, int]]:
    """`reconstruct_many` on a Ray cluster: the same rows in the same order.

    Args:
        sources: of `find_sources`. What is not Parquet is first written so, beside the output.
        settings: what their replies share.
        out: the file, whole or not at all.
        address: of the cluster's head; None for one that runs on this machine, or is started on it.

    Returns:
        How many rows have each grade, by host.

    Raises:
        ClusterError: Ray is not installed, or there is no cluster at the address.
        SourceError: a file cannot be read.
        EncoderMismatch: the bulk encoder and tiktoken disagree on a sampled text.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with _connected(address) as ray, TemporaryDirectory(dir=out.parent) as beside:
        files = _as_parquet(sources, Path(beside))
        return write_graded(chain.from_iterable(_graded(ray, file, settings) for file in files), settings, out)


@contextmanager
def _connected(address: str | None) -> Iterator[Any]:
    try:
        import ray.data  # noqa: PLC0415  (an extra)
    except ImportError:
        raise ClusterError("Ray is not installed; install it with `pip install kimi-helpers[cluster]`.") from None
    if ray.is_initialized():
        yield ray
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it tells its maker about runs
    try:
        ray.init(address, log_to_driver=False)
    except (ConnectionError, ValueError) as error:
        raise ClusterError(f"no Ray cluster answers at {address or 'this machine'}: {error}") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _as_parquet(sources: Iterable[Path], folder: Path) -> Iterator[Path]:
    """The sources in order, those that are not Parquet joined in new files of the folder."""
    for number, (is_parquet, group) in enumerate(groupby(sources, lambda source: source.suffix == PARQUET_SUFFIX)):
        if is_parquet:
            yield from group
        else:
            joined = folder / f"{number}{PARQUET_SUFFIX}"
            write_tables(read_tables(group, ROWS_A_BATCH), RAW_SCHEMA, joined)
            yield joined


def _graded(ray: Any, file: Path, settings: BulkSettings) -> Iterator[pa.Table]:
    ray.data.DataContext.get_current().execution_options.preserve_order = True
    cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
    replies = ray.data.read_parquet(str(file), columns=parquet_columns(file), ray_remote_args={"num_cpus": READER_CPUS})
    graded = replies.map_batches(
        _Grader,
        fn_constructor_args=(settings,),
        batch_size=ROWS_A_BATCH,
        batch_format="pyarrow",
        # readers that wait for a core while all are taken by graders would wait for ever
        num_cpus=1 - READER_CPUS,
        compute=ray.data.ActorPoolStrategy(size=cores),
    )
    tables: Iterator[pa.Table] = iter(graded.iter_batches(batch_size=None, batch_format="pyarrow"))
    return tables


class _Grader:
    """Holds the settings in a worker; the vocabulary and the encoder stay in its process."""

    def __init__(self, settings: BulkSettings) -> None:
        self._settings = settings

    def __call__(self, replies: pa.Table) -> pa.Table:
        return grade_table(replies, self._settings)
