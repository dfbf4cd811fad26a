# GeoGP: `make demo` shows what it does, `make test` proves it, `make check` reads it over.
# Everything is installed into .venv, by uv where pip can get it; nothing else is needed but Python >= 3.11.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
INSTALL := $(BIN)/python .ci/install.py
# TORCH=cpu takes the CPU-only build (about 200 MB), TORCH=cuda insists on one with CUDA (several GB);
# unset takes the CPU-only build where there is no NVIDIA driver and its index answers, else pip's own.
TORCH  ?=
CPU_INDEX := https://download.pytorch.org/whl/cpu
TORCH_PIN := $(shell sed -n 's/^\(torch==.*\)$$/\1/p' constraints.txt)
OUT    ?= demo
# Whatever runs here compiles what it imports once: tests start many processes.
export PYTHONDONTWRITEBYTECODE =
# Tests run in parallel, one thread each: more threads than cores make everything slower.
JOBS   ?= $(shell n=$$(nproc 2>/dev/null || echo 2); [ $$n -gt 4 ] && n=4; echo $$n)
PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadscope --no-loadscope-reorder

.PHONY: setup tools notebooks demo test test-fast test-faults test-demo test-notebooks check format docs bench bench-accuracy bench-app bench-maps clean

setup: $(VENV)/.installed

# What `check`, `docs` and `test` need, so that these may run side by side: make tools && make -j2 check docs
tools: $(VENV)/.installed-test $(VENV)/.installed-docs

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "GeoGP needs Python 3.11 or newer; set PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.torch-$(TORCH): constraints.txt | $(VENV)/bin/python
ifeq ($(TORCH),cpu)
	@echo "torch: the CPU build of $(TORCH_PIN) (TORCH=cpu)"
	$(INSTALL) --index-url $(CPU_INDEX) "$(TORCH_PIN)"
else ifeq ($(TORCH),cuda)
	@echo "torch: a CUDA build of $(TORCH_PIN) (TORCH=cuda)"
	$(INSTALL) "$(TORCH_PIN)"
	@$(BIN)/python -c 'import sys, torch; sys.exit(torch.version.cuda is None and "pip has a torch without CUDA here; remove $(VENV), or name an index that has one in PIP_INDEX_URL")'
else ifeq ($(TORCH),)
	@$(INSTALL) $$($(BIN)/python .ci/torch_build.py $(CPU_INDEX)) "$(TORCH_PIN)"
else
	@echo "TORCH must be cpu, cuda or unset; got '$(TORCH)'" >&2; exit 2
endif
	@$(BIN)/python -c 'import torch; print("torch", torch.__version__, "with CUDA " + torch.version.cuda if torch.version.cuda else "for the CPU")'
	@rm -f $(VENV)/.torch-*; touch $@

$(VENV)/.installed: pyproject.toml constraints.txt $(VENV)/.torch-$(TORCH)
	$(INSTALL) -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-test: pyproject.toml constraints.txt $(VENV)/.installed
	$(INSTALL) -c constraints.txt -e ".[test,notebook]"
	@touch $@

$(VENV)/.installed-bench: $(VENV)/.installed-test
	$(INSTALL) -c constraints.txt -e ".[test,notebook,bench]"
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(INSTALL) -c constraints.txt -e ".[docs]"
	@touch $@

$(VENV)/.installed-lab: pyproject.toml constraints.txt $(VENV)/.installed
	$(INSTALL) -c constraints.txt -e ".[notebook,lab]"
	@touch $@

notebooks: $(VENV)/.installed-lab
	$(BIN)/jupyter-lab notebooks

demo: setup
	$(BIN)/geogp demo --out $(OUT) --overwrite

test: $(VENV)/.installed-test
	$(PYTEST)

test-fast: $(VENV)/.installed-test
	$(PYTEST) -m "not slow and not browser and not data"

test-notebooks: $(VENV)/.installed-test
	GEOGP_NOTEBOOKS=all $(PYTEST) tests/notebooks

test-demo: $(VENV)/.installed-test
	GEOGP_DEMO=whole $(PYTEST) tests/app/test_demo.py

test-faults: $(VENV)/.installed-test
	GEOGP_FAULTS_FULL=1 $(PYTEST) --timeout 3600 -v tests/faults

check: $(VENV)/.installed-test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tests/readme_blocks.py README.md CONTRIBUTING.md

format: $(VENV)/.installed-test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.installed-docs
	$(BIN)/python -m mkdocs build --config-file .docs/mkdocs.yml

bench: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks.speed --markdown benchmarks/SPEED.md --out bench.json

bench-accuracy: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks.accuracy
	$(BIN)/python -m benchmarks.small

# RUN names a run folder: how long its maps, areas, changes and suggestions take, and in what memory.
bench-maps: $(VENV)/.installed-test
	$(BIN)/python -m benchmarks.maps $(or $(RUN),demo/run)

# RUN names a run folder: how long people wait at its dashboard.
bench-app: $(VENV)/.installed-test
	$(BIN)/python -m benchmarks.app $(or $(RUN),demo/run)

clean:
	rm -rf $(VENV) demo run out site build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis .import_linter_cache
