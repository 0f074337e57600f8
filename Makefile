# `make run` is all that a fresh checkout needs: the other commands make the environment too.
# PYTHON names the Python to build it with; ARGS is passed on: make run ARGS=notebooks/03_generation.ipynb

PYTHON ?= python3
ARGS ?=

BIN := .venv/bin/python
# Keys are read from .env into the command's environment, and go nowhere else.
WITH_KEYS := set -a; test ! -f .env || . ./.env; set +a;

.PHONY: help run launch site test engine-test environment lock clean

help:
	@echo "make run    run all notebooks headless; pages and data go to outputs/"
	@echo "make launch open the notebooks in JupyterLab"
	@echo "make site   build outputs/site/, pages of all runs to share"
	@echo "make test   format, lint, types and tests"
	@echo "make engine-test  vLLM on the CPU against the capture in process (2 GB more, some minutes)"
	@echo "make lock   refresh requirements.lock from pyproject.toml"
	@echo "make clean  remove the environment and what tools cached here; outputs/ stays"

run: environment
	@$(WITH_KEYS) $(BIN) -m kimi_helpers run $(ARGS)

# data/jupyter turns off the extension that asks another host for news and newer versions.
launch: environment
	@$(WITH_KEYS) JUPYTER_CONFIG_PATH="$$PWD/data/jupyter" $(BIN) -m jupyterlab \
		--LabApp.default_url=/lab/tree/notebooks $(ARGS)

site: environment
	@$(BIN) -m kimi_helpers site

test: environment
	$(BIN) -m ruff format --check .
	$(BIN) -m ruff check .
	$(BIN) -m mypy
	$(BIN) -m pytest $(ARGS)

engine-test: environment
	$(BIN) benchmarks/engine/check_vllm.py

environment:
	@command -v $(PYTHON) >/dev/null || \
	{ echo "There is no $(PYTHON) here. Install Python 3.11 or newer, or name one: make run PYTHON=python3.12"; exit 1; }
	@$(PYTHON) scripts/environment.py

# One version a package for every Python that is supported, with markers where only some platforms need it.
# What torch brings for an accelerator is left to torch: it differs by platform.
lock:
	$(PYTHON) -m venv --clear build/lock
	build/lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	build/lock/bin/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --fork-strategy fewest \
		--upgrade --no-header --no-annotate --quiet --output-file build/lock/all
	grep -Ev '^(nvidia-|cuda-|triton)' build/lock/all > build/lock/requirements.lock
	mv build/lock/requirements.lock requirements.lock
	rm -rf build/lock

clean:
	rm -rf .venv build kimi_helpers.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
