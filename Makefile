# Every target does its own set-up: a virtual environment in .venv, filled once and again when pyproject.toml changes.
# All it needs is make and Python 3.11 or newer. Java is brought along when the machine has none.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)
VENV := .venv
READY := $(VENV)/.ready
DEVELOPER := $(VENV)/.ready-developer
# Most modules of these packages are never imported: Python compiles those that are.
SETUP := $(VENV)/bin/python -m pip install --disable-pip-version-check --no-compile --constraint constraints.txt
ARGS ?=

# Processes that share the tests, file by file; 0: all in one. Each may have a Spark of its own: some 3.5 GB.
WORKERS ?= $(shell $(VENV)/bin/python -c \
	'import os, psutil; print(2 if os.cpu_count() > 1 and psutil.virtual_memory().total > 7 << 30 else 0)')

PARALLEL = -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: demo quick test soak bench check docs format proto constraints setup clean

demo: $(READY) ## run a generated network and show the outcome of its calls
	@$(VENV)/bin/causeway demo $(ARGS)

quick: $(DEVELOPER) ## run a fast part of the tests of every package, in about a minute
	@CAUSEWAY_TIER=quick $(VENV)/bin/python -m pytest $(PARALLEL) @tests/quick.txt $(ARGS)

test: $(DEVELOPER) ## run the tests; make test ARGS="-m slow" for the heavy ones; WORKERS=0 for all in one process
	@CAUSEWAY_TIER=$${CAUSEWAY_TIER:-test} $(VENV)/bin/python -m pytest $(PARALLEL) $(ARGS)

soak: $(DEVELOPER) ## run everything that takes hours, by hand; make soak ARGS="--list" lists the steps
	@WORKERS=$(WORKERS) $(VENV)/bin/python -m tests.soak $(ARGS)

bench: $(DEVELOPER) ## measure this machine; make bench ARGS="rounds --messages 1e6", or ARGS="--help"
	@$(VENV)/bin/python -m benchmarks $(ARGS)

check: $(DEVELOPER) ## style, types, and who may import whom
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/codespell *.md docs src packages benchmarks examples findings
	@$(VENV)/bin/mypy --num-workers 2
	@PYTHONPATH=. $(VENV)/bin/lint-imports --no-logo --no-cache

format: $(DEVELOPER) ## put style right where a tool can
	@$(VENV)/bin/ruff check --fix .
	@$(VENV)/bin/ruff format .

proto: $(DEVELOPER) ## the Python modules of the protobuf messages, after a change of a .proto file
	@cd packages/causeway-proofs/src && ../../../$(VENV)/bin/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. causeway_proofs/wire/*.proto

docs: $(DEVELOPER) ## the documentation as a site in build/site; a broken link fails
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --quiet

constraints: $(DEVELOPER) ## write the versions that .venv has into constraints.txt, after a change of dependencies
	@$(VENV)/bin/python -m pip --disable-pip-version-check freeze --exclude-editable --exclude causeway --exclude causeway-proofs >constraints.txt

setup: $(DEVELOPER) ## only the set-up

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache

$(READY): pyproject.toml packages/causeway-proofs/pyproject.toml constraints.txt
	@$(if $(PYTHON),:,echo "causeway: needs Python 3.11 or newer, and found none on PATH (name one with: make PYTHON=/path/to/python)" >&2; exit 1)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "causeway: needs Python 3.11 or newer, but $(PYTHON) is not (name another with: make PYTHON=/path/to/python)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "causeway: $(PYTHON) has no venv module (on Debian and Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@echo "causeway: setting up $(VENV) with $$($(PYTHON) -V) (once; a few minutes on a slow line)" >&2
	@echo "causeway: 1 of 3: a virtual environment" >&2
	@$(PYTHON) -m venv $(VENV)
	@echo "causeway: 2 of 3: the packages that pyproject.toml names, with Spark and Java some 900 MB" >&2
	@$(SETUP) --editable 'packages/causeway-proofs[columns]' --editable . >&2
	@echo "causeway: 3 of 3: the inner loops, compiled for this machine" >&2
	@$(VENV)/bin/python -m causeway_proofs.jit
	@echo "causeway: $(VENV) is ready" >&2
	@touch $@

$(DEVELOPER): $(READY)
	@echo "causeway: the packages that tests, checks and documentation need" >&2
	@$(SETUP) --editable '.[dev]' >&2
	@touch $@
