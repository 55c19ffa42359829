# Everything a newcomer types: `make demo` and `make test`. Both install into `.venv` first, and again only after a change of
# a pyproject.toml or of the constraints: `make demo` and `make serve` the server alone. `make help` lists all targets.

PYTHON ?= python3
# Set TORCH to another requirement to choose yourself.
TORCH ?= torch==2.13.0
# An index for PyTorch alone. Where none is named and no NVIDIA GPU is seen, CPU_INDEX is tried: its builds lack CUDA.
TORCH_INDEX ?=
CPU_INDEX := https://download.pytorch.org/whl/cpu
HAS_GPU = ls /dev/nvidia[0-9]* >/dev/null 2>&1 || nvidia-smi --list-gpus >/dev/null 2>&1
# The versions that CI tests; /dev/null for the newest that pyproject.toml allows.
CONSTRAINTS ?= constraints.txt
# The same versions with the hashes of their files, which are compared before anything is installed.
LOCK := $(if $(filter constraints.txt,$(CONSTRAINTS)),constraints.lock)
# WhisperLive's client, for tests, in a folder of its own: without its server's requirements.
WHISPER_LIVE := whisper-live==0.10.0
VENV := .venv
# The client that the page loads, which an installation builds, and what builds it again after a change.
PAGE_CLIENT := app/static/tutti/index.js
PARSER := tree-sitter tree-sitter-typescript
BUILD_PAGE_CLIENT = @$(MAKE) --silent --no-print-directory $(PAGE_CLIENT)
# Frameworks of voice agents, for their examples, in an environment of their own: they have many dependencies.
AGENTS := $(VENV)/agents
# What is installed: PyTorch; the server; everything that development needs.
TORCH_STAMP := $(VENV)/.torch
SERVER := $(VENV)/.server
STAMP := $(VENV)/.installed
# No byte code yet: compiling every package takes a minute, and the first start compiles what it needs.
INSTALL := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile
COMPILE := PYTHONDONTWRITEBYTECODE= $(VENV)/bin/python -c 'import tutti_server.app.cli.commands, tutti_server.engine.engine'

# Installs many packages seven times as fast as pip, which takes its place where it does not reach the package index.
UV_VERSION := uv==0.13.9
UV := $(VENV)/bin/uv pip install --quiet --python
OR_PIP := || { echo "uv could not install the packages; pip tries it now" >&2; false; } ||

.DEFAULT_GOAL := help
.PHONY: help setup agents demo demo-cluster serve test quick rest rest-service rest-torch nightly flaky parity lint advice types docs lock audit sbom bench clean

help: ## List the targets.
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

setup: $(STAMP) ## Create .venv with everything that development needs.
	$(BUILD_PAGE_CLIENT)

$(PAGE_CLIENT): clients/js/page_client.py $(shell find clients/js/src)
	$(VENV)/bin/python clients/js/page_client.py

# `--no-deps`: what PyTorch without CUDA requires is locked. `--retries 1`: an index that cannot be reached costs half a minute.
$(TORCH_STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v <= (3, 14) else f"tutti needs Python 3.11 to 3.14; $(PYTHON) is {v[0]}.{v[1]}. Try: make PYTHON=python3.12 ...")'
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV) || { echo "Could not make a virtual environment; on Debian: apt install python3-venv"; exit 1; }
ifneq ($(TORCH_INDEX),)
	$(INSTALL) --index-url '$(TORCH_INDEX)' '$(TORCH)'
else
	@if $(HAS_GPU); then echo "Installing $(TORCH) with CUDA, as there is an NVIDIA GPU"; $(INSTALL) '$(TORCH)'; \
	else echo "Installing $(TORCH) without CUDA, as no NVIDIA GPU is seen"; \
		$(INSTALL) --no-deps --retries 1 --timeout 15 --index-url $(CPU_INDEX) '$(TORCH)' || { \
		echo "$(CPU_INDEX) does not give it; installing it from the package index, maybe with gigabytes of CUDA"; \
		$(INSTALL) '$(TORCH)'; }; fi
endif
	$(INSTALL) '$(UV_VERSION)'
	@touch $@

# uv compares the hashes of a constraints file, and takes from it only what the server requires. pip takes all that is locked.
$(SERVER): $(TORCH_STAMP) pyproject.toml clients/python/pyproject.toml $(CONSTRAINTS) $(LOCK)
	$(UV) $(VENV)/bin/python --constraint '$(or $(LOCK),$(CONSTRAINTS))' $(PARSER) -e clients/python -e . $(OR_PIP) { \
		$(if $(LOCK),$(INSTALL) --require-hashes --no-deps --requirement $(LOCK) &&) \
		$(INSTALL) --constraint '$(CONSTRAINTS)' $(PARSER) -e clients/python -e .; }
	$(COMPILE)
	@touch $@

$(STAMP): $(TORCH_STAMP) pyproject.toml clients/python/pyproject.toml $(CONSTRAINTS) $(LOCK)
	$(if $(LOCK),$(UV) $(VENV)/bin/python --require-hashes --no-deps --requirement $(LOCK) $(OR_PIP) \
		$(INSTALL) --require-hashes --no-deps --requirement $(LOCK))
	$(UV) $(VENV)/bin/python --constraint '$(CONSTRAINTS)' -e clients/python -e '.[dev]' $(OR_PIP) \
		$(INSTALL) --constraint '$(CONSTRAINTS)' -e clients/python -e '.[dev]'
	$(INSTALL) --no-deps --upgrade --target $(VENV)/whisper-live '$(WHISPER_LIVE)'
	$(COMPILE)
	@touch $(SERVER) $@

agents: $(AGENTS)/.installed ## Install LiveKit Agents and Pipecat for their examples.

# With a uv of its own, which it need not wait for: `make --jobs 2 setup agents`.
$(AGENTS)/.installed: examples/livekit_agent/requirements.txt examples/pipecat/requirements.txt
	@test -x $(AGENTS)/bin/python || $(PYTHON) -m venv $(AGENTS)
	$(AGENTS)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile '$(UV_VERSION)'
	$(AGENTS)/bin/uv pip install --quiet --python $(AGENTS)/bin/python $(foreach file,$^,--requirement $(file)) $(OR_PIP) \
		$(AGENTS)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile $(foreach file,$^,--requirement $(file))
	@touch $@

demo: $(SERVER) ## Start a server and show captions of a recording as they appear.
	$(BUILD_PAGE_CLIENT)
	@$(VENV)/bin/tutti demo

demo-cluster: setup ## Start three Ray nodes, kill one while eight recordings are streamed, and compare every word.
	@$(VENV)/bin/python -m benchmarks.faults cluster-demo

serve: $(SERVER) ## Start a server with the embedded model: http://127.0.0.1:8000/.
	$(BUILD_PAGE_CLIENT)
	@$(VENV)/bin/tutti serve

# Test processes, with one tensor thread each. Three keep two cores busy: tests of processes and browsers wait now and then.
JOBS ?= 3
# Two stages run at the same time in `make rest`: the processes of each, so that both end together.
SERVICE_JOBS ?= 1
TORCH_JOBS ?= 3
PYTEST_OPTIONS = --numprocesses $(JOBS) --dist worksteal
PYTEST_ENV := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1
PYTEST = $(PYTEST_ENV) $(VENV)/bin/python -m pytest $(PYTEST_OPTIONS)
# An environment of links to the packages of the first one, without torch: the service is tested without it.
TORCHLESS := $(VENV)/torchless

# Tests of a change in three tiers (tests/tiers.py): make quick, make test, make nightly.
test: ## Run all tests of a change: `make quick`, then `make rest`.
	@$(MAKE) --no-print-directory quick
	@$(MAKE) --no-print-directory rest

rest: $(TORCHLESS)/.made ## Run the tests of a change that need processes, servers, torch or a browser.
	$(BUILD_PAGE_CLIENT)
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target rest-torch rest-service

# Both at the same time: while processes and browsers start in one, the other one has the cores.
rest-service: JOBS := $(SERVICE_JOBS)
rest-service:
	$(PYTEST_ENV) $(TORCHLESS)/bin/python -m pytest $(PYTEST_OPTIONS) -m 'default and not torch'

rest-torch: JOBS := $(TORCH_JOBS)
rest-torch:
	$(PYTEST) -m 'default and torch'

quick: $(TORCHLESS)/.made ## Run the tests that need one process and no torch, in under a minute.
	$(BUILD_PAGE_CLIENT)
	$(PYTEST_ENV) $(TORCHLESS)/bin/python -m pytest $(PYTEST_OPTIONS) -m quick

$(TORCHLESS)/.made: $(STAMP) tests/torchless.py
	@$(VENV)/bin/python -m tests.torchless $(TORCHLESS)
	@touch $@

# A coverage tracer of Python 3.12 and newer, which costs little.
nightly: setup ## Run every test with many examples, in both browsers, and measure the coverage.
	COVERAGE_CORE=$$($(VENV)/bin/python -c 'import sys; print("sysmon" if sys.version_info >= (3, 12) else "ctrace")') \
		TUTTI_HYPOTHESIS=night $(PYTEST) -m 'not gpu' --cov --timeout 1200

# A test that fails by chance is a bug: five runs beside two busy loops must have no failure.
FLAKY_RUNS ?= 5
flaky: setup ## Run the default tier five times on a busy machine; print what failed in any run.
	@$(PYTEST_ENV) $(VENV)/bin/python -m tests.flaky $(FLAKY_RUNS) -- $(PYTEST_OPTIONS) -m 'quick or default'

parity: setup ## Compare with transformers: hundreds of generated cases, and the checkpoint TUTTI_CHECKPOINT.
	$(VENV)/bin/python -m pytest -m 'not gpu' tests/engine/test_parity.py tests/engine/test_parity_cases.py \
		tests/engine/scheduling/test_batch_invariance.py

lint: setup ## Check format, style and import contracts.
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/lint-imports

advice: setup ## List the largest files, classes and functions, and retired words. Fails nothing.
	@$(VENV)/bin/python -m tests.advice

types: setup ## Check types.
	$(VENV)/bin/mypy

docs: setup ## Build the documentation as a site, and check its links.
	$(VENV)/bin/zensical build --clean --strict

# Torch is left out: TORCH chooses it, and it chooses Triton and CUDA.
lock: setup ## Write the installed versions to constraints.txt, and the hashes of their files to constraints.lock.
	$(VENV)/bin/python -m pip freeze --exclude-editable --disable-pip-version-check \
		| grep -viE '^(torch|triton|nvidia|cuda|pip|setuptools)' >constraints.txt
	$(VENV)/bin/uv pip compile --quiet --no-deps --generate-hashes --no-header --no-annotate \
		--output-file constraints.lock constraints.txt

# Tools that ask the package index, in an environment of their own: they change no version of ours.
AUDIT := build/audit
AUDIT_TOOLS := pip-audit==2.10.1 cyclonedx-bom==7.5.0

$(AUDIT)/.installed: Makefile
	@$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile $(AUDIT_TOOLS)
	@touch $@

# Strict: a version that cannot be looked up is a failure, too.
audit: $(AUDIT)/.installed ## Look for known vulnerabilities of the locked versions; needs a network.
	@printf '%s\n' '$(TORCH)' | cat - '$(CONSTRAINTS)' >$(AUDIT)/requirements.txt
	$(AUDIT)/bin/pip-audit --strict --no-deps --disable-pip --requirement $(AUDIT)/requirements.txt

# SBOM_OF names the Python whose packages are listed.
SBOM_OF ?= $(VENV)/bin/python
sbom: setup $(AUDIT)/.installed ## Write the installed parts with versions and licences to build/sbom.json (CycloneDX).
	$(AUDIT)/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type application --output-reproducible \
		--output-file build/sbom.json '$(SBOM_OF)'

# Tables and JSON go to build/bench/.
bench: setup ## Run the short benchmarks: ten minutes on an idle machine.
	$(INSTALL) --constraint '$(CONSTRAINTS)' -e '.[bench]'
	$(VENV)/bin/python -m benchmarks.live
	$(VENV)/bin/python -m benchmarks.cpu_throughput

clean: ## Remove .venv, the page's client and installed Node.js packages.
	rm -rf $(VENV) $(dir $(PAGE_CLIENT)) clients/js/node_modules
