# `make run` is the whole experiment, `make test` the whole check; both start from a fresh clone.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: run test lint setup clean

setup: $(VENV)/.ready

# torch first and by exact version: a resolver left alone would fetch gigabytes of CUDA wheels.
$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

run: setup
	$(BIN)/bitcal run

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# CPUs differ in the dtype they multiply natively: everything in one, the engines in the other as well.
test: lint
	BITCAL_COMPUTE_DTYPE=float32 $(BIN)/python -m pytest
	BITCAL_COMPUTE_DTYPE=bfloat16 $(BIN)/python -m pytest tests/engines

clean:
	rm -rf $(VENV) runs .mypy_cache .pytest_cache .ruff_cache .hypothesis
