# Everything a newcomer types: `make demo` and `make test`. Both make `.venv` first; it is made again only when a
# pyproject.toml has changed.

PYTHON ?= python3
# A wheel without CUDA is picked where the package index offers one; set TORCH to another requirement to choose.
TORCH ?= torch==2.13.0
# Its client is tested with, from a folder of its own and without the requirements of its server.
WHISPER_LIVE := whisper-live==0.10.0
VENV := .venv
STAMP := $(VENV)/.installed
# Compiling all files of all packages takes a minute; what a start needs is compiled by starting.
INSTALL := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile

.PHONY: setup demo test parity serve lint types bench clean

setup: $(STAMP)

$(STAMP): pyproject.toml clients/python/pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v <= (3, 13) else f"tutti needs Python 3.11 to 3.13; $(PYTHON) is {v[0]}.{v[1]}. Try: make PYTHON=python3.12 ...")'
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV) || { echo "Could not make a virtual environment; on Debian: apt install python3-venv"; exit 1; }
	$(INSTALL) '$(TORCH)'
	$(INSTALL) -e clients/python -e '.[dev]'
	$(INSTALL) --no-deps --upgrade --target $(VENV)/whisper-live '$(WHISPER_LIVE)'
	PYTHONDONTWRITEBYTECODE= $(VENV)/bin/python -c 'import app.cli.commands, engine.engine'
	@touch $@

demo: setup
	@$(VENV)/bin/tutti demo

serve: setup
	@$(VENV)/bin/tutti serve

# Two processes of tests at a time, each with one thread for tensors: half the time that one after the other takes.
JOBS ?= 2

test: setup
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest --numprocesses $(JOBS) --dist loadfile

# Hundreds of generated cases, beside those of `make test`: ours against transformers, and windows among others.
parity: setup
	$(VENV)/bin/python -m pytest -m 'not gpu' tests/engine/test_parity_cases.py tests/engine/scheduling/test_batch_invariance.py

lint: setup
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/lint-imports

types: setup
	$(VENV)/bin/mypy

# About ten minutes on an idle machine; tables and JSON go to build/bench/.
bench: setup
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	$(VENV)/bin/python -m benchmarks.live
	$(VENV)/bin/python -m benchmarks.offline

clean:
	rm -rf $(VENV) clients/js/node_modules
