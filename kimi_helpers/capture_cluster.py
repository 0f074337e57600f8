"""Capture on several machines: the units of one process, under Ray Data, one actor a GPU, or a node on CPUs.

Every machine needs this package, and the folders of the model, the rows and the output under the same paths. A unit is
written whole by whoever captured it, so one that a lost worker held is captured again by another, to the same bytes.
"""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from kimi_helpers.capture_rows import Unit
from kimi_helpers.capture_runs import CaptureSettings, unit_worker
from kimi_helpers.cluster import ClusterError, connected, what_it_raised


class UnitActor:
    """Loads the model once, then captures one unit after the other."""

    def __init__(self, settings: CaptureSettings) -> None:
        self.do = unit_worker(settings)

    def __call__(self, unit: dict[str, Any]) -> dict[str, int]:
        """Capture, check and write one unit."""
        self.do(Unit(**unit))
        return {"number": unit["number"]}


def capture_on_cluster(settings: CaptureSettings, todo: list[Unit], address: str | None = None) -> Iterator[int]:
    """`capture_locally` on a Ray cluster: the same files.

    Args:
        settings: with device `cuda`, each actor has a GPU to itself.
        address: of the cluster's head; None for one that runs on this machine, or is started on it.

    Raises:
        ClusterError: Ray is not installed, there is no cluster or no GPU in it, or a worker raised something.
    """
    with connected(address) as ray:
        on_gpu = settings.device != "cpu"
        nodes = sum(bool(node["Alive"]) for node in ray.nodes())
        actors = int(ray.cluster_resources().get("GPU", 0)) if on_gpu else nodes
        if not actors:
            raise ClusterError("the cluster has no GPU; give --device cpu, or start it with GPUs.")
        ray.data.DataContext.get_current().enable_progress_bars = False
        units = ray.data.from_items([asdict(unit) for unit in todo], override_num_blocks=len(todo))
        done = units.map(
            UnitActor,
            fn_constructor_args=(settings,),
            concurrency=(1, min(actors, len(todo))),
            **({"num_gpus": 1} if on_gpu else {"num_cpus": 1}),
        )
        try:
            for row in done.iter_rows():
                yield row["number"]
        except (ray.exceptions.RayTaskError, ray.exceptions.ActorDiedError) as error:
            raise ClusterError(f"a worker failed: {what_it_raised(error)}") from error
