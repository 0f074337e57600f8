"""Capture under Ray on two local nodes: the bytes of one process, also where a worker is killed."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from kimi_helpers.capture_cluster import capture_on_cluster
from kimi_helpers.capture_runs import CaptureSettings, capture_locally, make_capture
from kimi_helpers.captures import Capture, eagle3_layers
from kimi_helpers.cluster import ClusterError
from kimi_helpers.target_models import target_facts
from tests.test_capture_runs import tree
from tests.tiny_models import LAYERS, rows_of, tiny_folder, write_rows


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
def whole(tmp_path_factory: pytest.TempPathFactory) -> CaptureSettings:
    """A capture that one process has made."""
    root = tmp_path_factory.mktemp("cluster")
    facts = target_facts(tiny_folder("deepseek", root))
    capture = Capture(eagle3_layers(LAYERS), LAYERS, "pre", "bfloat16")
    rows = write_rows(root / "rows.parquet", rows_of([30, 12, 29, 45, 7] * 60))
    settings = CaptureSettings(rows, root / "whole", facts, capture, batch_tokens=100, unit_tokens=120)
    make_capture(settings, capture_locally)
    return settings


def on_cluster(address: str) -> Any:
    return lambda settings, todo: capture_on_cluster(settings, todo, address)


def test_two_nodes_write_the_bytes_of_one_process(address: str, whole: CaptureSettings, tmp_path: Path) -> None:
    settings = replace(whole, out=tmp_path / "out")
    done = make_capture(settings, on_cluster(address))
    assert done.captured == len(done.plan.units) > 60
    assert tree(settings.out) == tree(whole.out)


def test_a_killed_worker_loses_nothing(address: str, whole: CaptureSettings, tmp_path: Path) -> None:
    settings = replace(whole, out=tmp_path / "out", format="speculators")
    local = replace(settings, out=tmp_path / "local")
    make_capture(local, capture_locally)
    killed: list[int] = []
    over = threading.Event()

    def kill_a_busy_worker() -> None:
        while not killed and not over.is_set():
            if list(settings.out.glob("units/*.json")):
                killed.extend(_kill_one())
            time.sleep(0.01)

    killer = threading.Thread(target=kill_a_busy_worker)
    killer.start()
    try:
        make_capture(settings, on_cluster(address))
    finally:
        over.set()
        killer.join()
    assert len(killed) == 1
    assert tree(settings.out) == tree(local.out)


def _kill_one() -> list[int]:
    """Kill one of this process's own workers that is capturing; its id."""
    for process in psutil.Process().children(recursive=True):
        try:
            if "MapWorker" in " ".join(process.cmdline()):
                process.send_signal(signal.SIGKILL)
                return [process.pid]
        except psutil.Error:  # it ended meanwhile
            continue
    return []


def test_what_a_worker_raises_is_told(address: str, whole: CaptureSettings, tmp_path: Path) -> None:
    facts = replace(whole.facts, folder=tmp_path / "gone")
    with pytest.raises(ClusterError, match=r"a worker failed: .*gone is no model folder"):
        make_capture(replace(whole, out=tmp_path / "out", facts=facts), on_cluster(address))
    with pytest.raises(ClusterError, match="the cluster has no GPU; give --device cpu"):
        make_capture(replace(whole, out=tmp_path / "gpu", device="cuda"), on_cluster(address))
