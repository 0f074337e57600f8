"""Bulk reconstruction under Ray Data on two local nodes: the rows of one process, also where a worker is killed."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from kimi_helpers.bulk_reconstruction import BulkSettings, reconstruct_many
from kimi_helpers.cluster import ClusterError, cluster_workers, reconstruct_on_cluster
from kimi_helpers.merging import build_set
from kimi_helpers.profiles import read_profiles
from kimi_helpers.reply_sources import find_sources, read_tables
from kimi_helpers.reply_tables import raw_table
from kimi_helpers.selection import Policy
from kimi_helpers.training_inputs import find_source
from kimi_helpers.workspace import DATA
from tests.loopback_replies import loopback_replies
from tests.training_samples import row, write_rows

SETTINGS = BulkSettings(read_profiles(DATA / "profiles" / "loopback.toml"))
COPIES = 8


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a cluster of two nodes with a core each."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install -e .[cluster]")
    from ray.cluster_utils import Cluster  # noqa: PLC0415

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.add_node(num_cpus=1)
    ray.init(cluster.address, log_to_driver=False)
    try:
        assert len([node for node in ray.nodes() if node["Alive"]]) == 2
        yield cluster.address
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Many replies in Parquet, and a folder of bodies."""
    folder = tmp_path_factory.mktemp("replies")
    replies = loopback_replies()
    many = [replace(each, source=f"{copy}: {each.source}") for copy in range(COPIES) for each in replies]
    pq.write_table(raw_table(many), folder / "a.parquet", row_group_size=200)
    for number, each in enumerate(replies[:5]):
        (folder / f"b{number}.json").write_bytes(each.body)
    return find_sources([folder])


@pytest.fixture(scope="module")
def local(sources: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("local") / "rows.parquet"
    reconstruct_many(read_tables(sources, 256), SETTINGS, out)
    return out


def test_two_nodes_give_the_rows_of_one_process(address: str, sources: list[Path], local: Path, tmp_path: Path) -> None:
    out = tmp_path / "rows.parquet"
    grades = reconstruct_on_cluster(sources, SETTINGS, out, address)
    assert pq.read_table(out).equals(pq.read_table(local))
    assert pq.read_schema(out).equals(pq.read_schema(local), check_metadata=True)
    assert sum(sum(of_host.values()) for of_host in grades.values()) == COPIES * len(loopback_replies()) + 5
    assert list(tmp_path.iterdir()) == [out]


def test_a_killed_worker_loses_nothing(address: str, sources: list[Path], local: Path, tmp_path: Path) -> None:
    killed: list[int] = []
    over = threading.Event()

    def kill_a_busy_worker() -> None:
        while not killed and not over.is_set():
            killed.extend(_kill_one())
            time.sleep(0.02)

    killer = threading.Thread(target=kill_a_busy_worker)
    killer.start()
    try:
        reconstruct_on_cluster(sources[:1], SETTINGS, tmp_path / "rows.parquet", address)
    finally:
        over.set()
        killer.join()
    assert len(killed) == 1
    of_first = pq.read_table(local).slice(0, COPIES * len(loopback_replies()))
    assert pq.read_table(tmp_path / "rows.parquet").equals(of_first)


def _kill_one() -> list[int]:
    """Kill one of this process's own workers that is grading; its id."""
    for process in psutil.Process().children(recursive=True):
        try:
            if "MapBatches(grade_table)" in " ".join(process.cmdline()):
                process.send_signal(signal.SIGKILL)
                return [process.pid]
        except psutil.Error:  # it ended meanwhile
            continue
    return []


def test_what_a_worker_raises_is_told_and_nothing_is_written(address: str, sources: list[Path], tmp_path: Path) -> None:
    nowhere = replace(SETTINGS, tokenizer=str(tmp_path / "none"))
    with pytest.raises(ClusterError, match=r"a worker failed: .*no such folder"):
        reconstruct_on_cluster(sources[1:2], nowhere, tmp_path / "rows.parquet", address)
    assert list(tmp_path.iterdir()) == []


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray.data", None)
    with pytest.raises(ClusterError, match=r"install it with `pip install -e \.\[cluster\]`"):
        reconstruct_on_cluster([], SETTINGS, tmp_path / "rows.parquet")
    assert list(tmp_path.iterdir()) == []


def test_a_training_set_made_on_two_nodes_is_that_of_one_process(address: str, tmp_path: Path) -> None:
    source = write_rows(tmp_path / "a.parquet", [row(f"q{n % 9}", f"a{n}", name=str(n)) for n in range(40)])
    sources, policy = [find_source(str(source))], Policy(evaluation=0.3)
    build_set(sources, policy, tmp_path / "local", 3, chunk=3_000)
    with cluster_workers(address) as each:
        build_set(sources, policy, tmp_path / "ray", 3, each=each, chunk=3_000)
    made = [{path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("local", "ray")]
    assert made[0] == made[1]
    assert len(made[0]) > 5
