# Every target sets up what it needs. `make` alone lists the targets.
# Options go through ARGS: make train ARGS="--seed 1", make test ARGS="-k tree".

PYTHON ?= python3
VENV := .venv
CONSTRAINTS := constraints.txt
BIN := $(VENV)/bin
STAMP := $(VENV)/.relive-installed
ARGS ?=

# One thread for each test process: two of them share two cores.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 NUMBA_NUM_THREADS=1

.DEFAULT_GOAL := help
.PHONY: help setup train test test-kernels test-gpu test-long coverage bench bench-gpu learn learn-samplers lint types docs format check clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

setup: $(STAMP) ## create .venv and install everything into it

# A python3 without ensurepip (Debian) still has its pip.
define make_venv
test -x $(1)/bin/python || $(PYTHON) -m venv $(1) >/dev/null 2>&1 || \
	  { $(PYTHON) -m venv --clear --without-pip $(1) && $(PYTHON) -m pip -q --python $(1)/bin/python install pip; }
endef

# Runs again only if a dependency changed.
$(STAMP): pyproject.toml $(CONSTRAINTS)
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; (3, 11) <= v < (3, 14) or sys.exit("relive needs Python 3.11, 3.12 or 3.13, but $(PYTHON) is %d.%d: try make PYTHON=python3.12" % v)'
	@$(call make_venv,$(VENV))
	@echo "installing relive and its tools into $(VENV) (once; a few minutes)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e ".[dev]" -c $(CONSTRAINTS)
	@touch $@

train: $(STAMP) ## train DQN with prioritized replay on CartPole-v1
	@$(BIN)/relive train dqn --env CartPole-v1 --replay.sampler proportional --device cpu $(ARGS)

test: $(STAMP) ## run all tests, the code in README and docs, and (without ARGS) test-kernels
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2 $(ARGS)
	$(if $(ARGS),,$(MAKE) test-kernels)

test-kernels: $(STAMP) ## run the kernels for GPUs on this processor, in Triton's interpreter
	TRITON_INTERPRET=1 $(ONE_THREAD) $(BIN)/python -m pytest -n 2 tests/triton tests/gates tests/gpu $(ARGS)

# Asks for torch, NumPy, Numba, Triton and pytest: without make, the line below with any Python.
test-gpu: $(STAMP) ## run the tests of a buffer on a CUDA device (some minutes)
	PYTHONPATH=src $(BIN)/python -m tests.gpu $(ARGS)

test-long: $(STAMP) ## run the long tests of the buffer, and no others (some ten minutes)
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2 --dist worksteal --long $(ARGS)

coverage: $(STAMP) ## which branches of src, kernels apart, no test takes; at least 95 % are taken
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2 --cov --cov-report=term --cov-report=html:build/coverage/html $(ARGS)

PEERS := $(patsubst benchmarks/peers/%.txt,build/peers/%/.installed,$(wildcard benchmarks/peers/*.txt))

bench: $(STAMP) $(PEERS) ## measure the buffer beside other libraries, each in its environment
	$(BIN)/relive bench --save benchmarks/results/replay.json --chart benchmarks/results/replay.svg $(ARGS)

# One that cannot be installed is left out of the table, with a word.
build/peers/%/.installed: benchmarks/peers/%.txt
	@echo "installing $* into build/peers/$* (once)"
	@mkdir -p build/peers
	@{ $(call make_venv,build/peers/$*); } && \
	  build/peers/$*/bin/python -m pip install -q --disable-pip-version-check -r $< && touch $@ || \
	  { rm -rf build/peers/$*; echo "$* could not be installed and is left out"; }

bench-gpu: $(STAMP) ## check and measure the buffer on a CUDA device (some minutes)
	$(BIN)/python -m benchmarks.gpu $(ARGS)

LEARN := build/.learn-installed

learn: $(LEARN) build/peers/stable-baselines3/.installed ## train all agents to their goals, a process a core (some hours; goes on where it was)
	$(BIN)/python -m benchmarks.learning $(ARGS)

learn-samplers: $(LEARN) ## train with each sampler, all else equal (some hours; goes on where it was)
	$(BIN)/python -m benchmarks.learning --samplers $(ARGS)

$(LEARN): $(STAMP) benchmarks/learning/requirements.txt
	@mkdir -p build
	@$(BIN)/python -m pip install -q --disable-pip-version-check -r benchmarks/learning/requirements.txt
	@touch $@

# Another version of Triton; kernels are compiled with each that lies there (make build/triton-3.6.0).
build/triton-%: | $(STAMP)
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --target $@ triton==$*

lint: $(STAMP) ## ruff (rules and format), import rules, spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/codespell

types: $(STAMP) ## mypy, strict
	$(BIN)/mypy

docs: $(STAMP) ## build the documentation into site/; an unknown reference fails
	$(BIN)/zensical build --clean --strict

format: $(STAMP) ## put everything into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

check: ## what CI runs
	.ci/run

clean: ## remove what was built (not .venv, not runs/)
	rm -rf build dist site .cache .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
