PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# Two workers: more of them spend longer importing torch than they save.
PYTEST_FLAGS ?= -n 2 --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help test test-slow faults smoke test-gpu test-peers test-ray race bench figures docs carry \
	format clean

help:
	@echo "make test        set up .venv, then run ruff, mypy, import-linter and pytest"
	@echo "make test-slow   run the tests that take 8 seconds or more, which make test leaves out"
	@echo "make faults      inject thousands of faults of every kind, and print what survived"
	@echo "make smoke       run a few quick tests of every package: under a minute"
	@echo "make test-gpu    run the tests that need an NVIDIA GPU; skipped where there is none"
	@echo "make test-peers  install TensorFlow with Keras too, then test their adapter"
	@echo "make test-ray    install Ray too, then test clusters of several nodes on this machine"
	@echo "make race        set up .venv, then race pareo's devices, PyTorch and JAX for three minutes"
	@echo "make bench       time convolution layers on the CPU, beside NumPy and PyTorch"
	@echo "make docs        build the documentation as a site in site/, with the reference of the API"
	@echo "make figures     measure the tables of docs/results again, and write them into their pages"
	@echo "make carry       fetch into carry/ what a GPU machine without PyPI lacks"
	@echo "make format      let ruff mend and format the code"
	@echo "make clean       remove .venv, caches and build outputs"
	@echo
	@echo "PYTHON=python3.12 chooses the Python that .venv is made with."

test: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest $(PYTEST_FLAGS) -m "not slow"

# Processes that are killed, raced and resumed for ten seconds and more each.
test-slow: $(READY)
	$(BIN)/pytest $(PYTEST_FLAGS) -m slow

# Files, trainings, workers and caches that go wrong on purpose: about five minutes on two cores.
faults: $(READY)
	PYTHONPATH=tests OPENBLAS_NUM_THREADS=1 $(BIN)/python -m faults $(FAULTS)

smoke: $(READY)
	$(BIN)/pytest $(PYTEST_FLAGS) -m smoke tests

# GPU_PYTHON names a Python that has CuPy already, on a machine that installs nothing.
test-gpu:
	@PYTHON='$(PYTHON)' GPU_PYTHON='$(GPU_PYTHON)' tests/test-gpu.sh

# TensorFlow is large and no part of the usual race, so only this installs it.
test-peers: $(READY)
	@$(BIN)/pip install --quiet --no-build-isolation -c constraints.txt -e '.[tensorflow]'
	$(BIN)/pytest tests/lab/contestants/test_adapters.py -k tensorflow

# Ray is large and slow to start: the usual tests leave it out unless it is installed.
test-ray: $(READY)
	@$(BIN)/pip install --quiet --no-build-isolation -c constraints.txt -e '.[ray]'
	$(BIN)/pytest tests/parallel -k ray

race: $(READY)
	$(BIN)/pareo race --quick --json race.json --html race.html

bench: $(READY)
	$(BIN)/python -m benchmarks.convolution

# Search works where the site is served: .venv/bin/python -m http.server -d site
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "Open site/index.html."

# Three hours on two cores. ONLY=race,convolution measures these alone, ONLY=today-h200:2 the second
# command of one, NEW=1 those that this machine has not measured yet. GPU_PYTHON as for test-gpu.
figures: $(if $(GPU_PYTHON),,$(READY))
	$(if $(GPU_PYTHON),PYTHONPATH=src:carry/unpacked $(GPU_PYTHON),$(BIN)/python) -m benchmarks.figures \
		--only '$(ONLY)' $(if $(NEW),--new)

# For x86-64 and Python 3.12, of which such a machine is likely.
CARRIED := colorlog cupti-python execnet msgspec narwhals nvidia-cudnn-frontend nvidia-ml-py optuna plotly \
	pyelftools pytest-timeout pytest-xdist
carry: $(READY)
	@rm -rf carry
	@$(BIN)/pip download --quiet --no-deps --only-binary=:all: --python-version 312 -d carry \
		--platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 \
		--platform manylinux2014_x86_64 -c constraints.txt $(CARRIED)

format: $(READY)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf .venv carry site .grimp_cache .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist src/*.egg-info
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# setuptools comes first so that the build uses the pinned one, not a fresh download.
$(READY): pyproject.toml constraints.txt
	@test -x $(BIN)/pip || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "pareo needs Python 3.11 or newer, which '$(PYTHON)' is not: choose one with make PYTHON=python3.12." >&2; \
		exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv || { \
		rm -rf .venv; \
		echo "'$(PYTHON) -m venv .venv' failed: install Python's venv module (on Debian: python3-venv), or choose another Python with make PYTHON=python3.12." >&2; \
		exit 1; }
	@echo "Installing into .venv; the first time takes a minute or two."
	@$(BIN)/pip install --quiet -c constraints.txt setuptools
	@$(BIN)/pip install --quiet --no-build-isolation -c constraints.txt -e '.[dev,docs,torch,jax]'
	@touch $@
