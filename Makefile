# Two commands for a newcomer: `make demo` and `make test`. `make help` lists the rest.
PYTHON ?= python3
VENV ?= .venv
RUN := $(VENV)/bin/python
# -qq shows errors only. Bytecode is written when a module is first imported: compiling all of torch ahead costs minutes.
PIP := $(RUN) -m pip --disable-pip-version-check install -qq --no-compile
VERSION_OF := -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])'
VERSION := $(shell $(PYTHON) $(VERSION_OF) 2>/dev/null)

# The stamps carry the version of Python, so that another PYTHON gets an environment of its own.
STAMP := $(VENV)/.python-$(VERSION)
CORE := $(STAMP)-core
TEST := $(STAMP)-test

# The TPU compiler has a folder of its own: where jax can import libtpu and there is no TPU, it looks for one for
# most of a minute whenever a program starts.
AOT := $(abspath $(VENV))/tpu-aot
AOT_NEEDS := -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["tpu-aot"], sep="\n")'

.PHONY: help demo test lint unit smoke wheel clean
.DELETE_ON_ERROR:

help:
	@echo "make demo    set up, then generate with the default pair, plain and speculative"
	@echo "make test    set up, then ruff, pytest and the smoke test of the wheel"
	@echo "make lint    ruff check and ruff format --check"
	@echo "make unit    pytest"
	@echo "make smoke   build the wheel, install it in a clean environment, use it from another folder"
	@echo "make wheel   build the wheel into dist/"
	@echo "make clean   remove the environment and everything that was built"
	@echo "PYTHON=... chooses the interpreter (3.11 or newer), VENV=... the environment's folder"

demo: $(CORE)
	$(RUN) tools/demo.py

test: lint unit smoke

lint: $(TEST)
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check

unit: $(TEST)
	TPU_LIBRARY_PATH=$(AOT)/libtpu/libtpu.so $(RUN) -m pytest -n auto --maxprocesses 4 --dist loadfile

smoke: $(TEST)
	bash tools/smoke_wheel.sh $(RUN)

wheel: $(CORE)
	$(RUN) -m pip --disable-pip-version-check wheel -qq --no-deps --wheel-dir dist .
	@ls dist/*.whl

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "$(PYTHON) is not Python 3.11 or newer: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	@if [ "$$($(RUN) $(VERSION_OF) 2>/dev/null)" != "$(VERSION)" ]; then \
	    echo "creating $(VENV) (Python $(VERSION))"; $(PYTHON) -m venv --clear $(VENV); fi
	@touch $@

$(CORE): pyproject.toml | $(STAMP)
	@echo "installing sbjax and what it needs into $(VENV)"
	@$(PIP) -e .
	@touch $@

$(TEST): pyproject.toml | $(STAMP)
	@echo "installing sbjax and what its tests need into $(VENV) (a few minutes the first time)"
	@$(PIP) -e '.[test,plot]'
	@$(RUN) $(AOT_NEEDS) > $@.aot && rm -rf $(AOT) && $(PIP) --no-deps --target $(AOT) -r $@.aot && rm $@.aot
	@touch $(CORE) $@
