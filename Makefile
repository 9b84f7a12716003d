# `make demo` and `make test` need python3 (3.11 or later), pip and make; each sets up .venv on first use.
PYTHON ?= python3
VENV ?= .venv
JOBS ?= auto

BIN := $(VENV)/bin
STAMP := $(VENV)/installed
PIP := $(PYTHON) -m pip --python $(BIN)/python --disable-pip-version-check

# With an NVIDIA GPU: the newest torch that CUDA needs.  Without one: the versions that CI tested, where torch is a CPU build.
GPU := $(shell command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep GPU)
CUDA ?= cuda13
comma := ,
ifeq ($(GPU),)
INSTALL := -c constraints.txt -e '.[dev]'
else
INSTALL := -e '.[dev$(comma)$(CUDA)]'
endif

.PHONY: help demo test lint bench clean

help:
	@echo 'make demo    attention from PyTorch to a checked one-pass kernel'
	@echo 'make test    lint, types and the whole test suite'
	@echo 'make lint    ruff and mypy --strict'
	@echo 'make bench   eager, torch.compile and emmy_eq side by side (NVIDIA GPU)'
	@echo 'make clean   remove .venv and caches'

# --without-pip and pip --python: a python3 without ensurepip (Debian) is enough.
$(STAMP): pyproject.toml constraints.txt
	@echo 'Setting up $(VENV), once: PyTorch and what the tests need (minutes)'
	$(PYTHON) -m venv --without-pip $(VENV)
	$(PIP) install $(INSTALL)
	@touch $@

demo: $(STAMP)
	$(BIN)/python -m emmy_eq.demo

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -n $(JOBS)

bench: $(STAMP)
	$(BIN)/python -m bench

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
