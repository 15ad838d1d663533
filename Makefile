PYTHON ?= python3
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
BIN := $(VENV)/bin
# Python compiles the modules that it imports; pip would compile all of them, which takes minutes.
PIP := $(BIN)/python -m pip install --disable-pip-version-check --no-compile -c $(CONSTRAINTS)
export PYTHONDONTWRITEBYTECODE :=
OUT ?= runs/search

.PHONY: search test lint docs clean

# Find fast and accurate cells of NAS-Bench-201 for two devices; again, it continues or redraws what is there.
search: $(VENV)/.installed
	$(BIN)/nas-rlm search --space nasbench201 --objectives accuracy,latency/pixel3,latency/eyeriss \
		--out $(OUT) --resume

# Tests wait for processes that they start: three workers keep two processors busy.
test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest --numprocesses 3 --dist loadfile

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) site

# torch first and alone, so that the build this machine's pip is set up for is taken.
$(VENV)/.installed-torch: pyproject.toml $(CONSTRAINTS)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) "$$(grep '^torch==' $(CONSTRAINTS))"
	touch $@

$(VENV)/.installed: $(VENV)/.installed-torch
	$(PIP) -e .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed-torch
	$(PIP) -e '.[dev]'
	touch $@

$(VENV)/.installed-docs: $(VENV)/.installed-torch
	$(PIP) -e '.[docs]'
	touch $@
