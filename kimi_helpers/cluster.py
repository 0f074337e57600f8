"""Bulk reconstruction on several machines: the function of one process, under Ray Data.

Every machine needs this package and the folders of the sources and of the output under the same paths. A batch that a
lost worker held is graded again by another, so nothing is lost and nothing comes twice.
"""

import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kimi_helpers.bulk_reconstruction import (
    ROWS_A_BATCH,
    BulkSettings,
    OrderedMap,
    R,
    T,
    grade_table,
    write_graded,
    write_tables,
)
from kimi_helpers.reply_sources import PARQUET_SUFFIX, parquet_columns, read_tables
from kimi_helpers.reply_tables import RAW_SCHEMA

ROWS_A_TASK = 2048


class ClusterError(RuntimeError):
    """There is no cluster to run on, or a worker failed there; the message says what to do, or what it raised."""


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
        ClusterError: Ray is not installed, there is no cluster at the address, or a worker raised something.
        SourceError: a file cannot be read.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with connected(address) as ray, TemporaryDirectory(dir=out.parent) as beside:
        files = _as_parquet(sources, Path(beside))
        try:
            return write_graded(chain.from_iterable(_graded(ray, file, settings) for file in files), settings, out)
        except ray.exceptions.RayTaskError as error:
            raise ClusterError(f"a worker failed: {what_it_raised(error)}") from error


def what_it_raised(error: Exception) -> str:
    """What a worker's function raised: Ray tells it in a traceback alone."""
    return str(error).partition("\n\nThe above exception")[0].splitlines()[-1]


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Ray, connected to a cluster while it lasts.

    Raises:
        ClusterError: Ray is not installed, or there is no cluster at the address.
    """
    try:
        import ray.data  # noqa: PLC0415  (an extra)
    except ImportError:
        raise ClusterError("Ray is not installed; install it with `pip install -e .[cluster]`.") from None
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


@contextmanager
def cluster_workers(address: str | None = None) -> Iterator[OrderedMap]:
    """The workers of a Ray cluster as a `map`, in the items' order; a task that a lost worker held is done again.

    Functions and items must be plain values, and the files they name must lie under the same paths on every machine.

    Raises:
        ClusterError: Ray is not installed, there is no cluster at the address, or a task raised something.
    """
    with connected(address) as ray:
        yield partial(_on_cluster, ray)


def _on_cluster(ray: Any, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    ray.data.DataContext.get_current().execution_options.preserve_order = True
    packed = [{"task": pickle.dumps((function, item))} for item in items]
    if not packed:
        return
    done = ray.data.from_items(packed, override_num_blocks=len(packed)).map(_do_task)
    try:
        for row in done.iter_rows():
            yield pickle.loads(row["result"])  # of our own worker
    except ray.exceptions.RayTaskError as error:
        told = str(error).partition("\n\nThe above exception")[0].splitlines()[-1]
        raise ClusterError(f"a worker failed: {told}") from error


def _do_task(row: dict[str, Any]) -> dict[str, Any]:
    function, item = pickle.loads(row["task"])  # of our own driver
    return {"result": pickle.dumps(function(item))}


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
    columns, rows = parquet_columns(file), pq.read_metadata(file).num_rows
    replies = ray.data.read_parquet(str(file), override_num_blocks=rows // ROWS_A_TASK + 1).select_columns(columns)
    # Tasks, not actors: those would hold every core, and the readers that feed them would wait for ever. A worker
    # process takes one task after another, so it still loads the vocabulary once.
    graded = replies.map_batches(
        grade_table, fn_kwargs={"settings": settings}, batch_size=ROWS_A_BATCH, batch_format="pyarrow"
    )
    tables: Iterator[pa.Table] = iter(graded.iter_batches(batch_size=None, batch_format="pyarrow"))
    return tables
