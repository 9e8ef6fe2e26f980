# Every target makes the environment it needs, once: .venv is rebuilt when the dependencies change.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
ALIPAN := $(VENV)/.alipan
SERVERS := node_modules/.ready
ARGS ?=
# One process a core, as many as the machine has.
PYTEST := $(BIN)/python -m pytest -n auto --durations 15

.PHONY: help demo test test-all soak lint format bench bench-hot bench-cold bench-clients bench-scale bench-shuffle bench-planner bench-watching docs system clean
help:
	@echo "make demo      write, stream, train, interrupt and resume on real data (ARGS=--s3: through S3)"
	@echo "make test      environment, lint, types and the suite"
	@echo "make test-all  what is long: servers, notebooks, many processes"
	@echo "make soak      an hour of killing processes that share a cache"
	@echo "make lint      ruff and mypy;  make format  mends what ruff can"
	@echo "make bench     benchmarks;     make docs    the site"
	@echo "make bench-hot reading from disk, beside other libraries;  make bench-convert  converting"
	@echo "make bench-cold reading from a bucket, beside other libraries (needs nginx; ARGS=--quick)"
	@echo "make bench-clients clients of S3 beside one another (needs nginx)"
	@echo "make bench-planner predictions beside real runs (needs nginx)"
	@echo "make bench-watching what it costs to see where the time goes"
	@echo "make bench-scale opening and planning at scale;  make bench-shuffle  how well shuffles mix"
	@echo "make system    what only the system's package manager has (as root)"

$(READY): pyproject.toml constraints.txt
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

# Servers that the tests talk to and that npm has. Without npm, the tests that need them say so.
$(SERVERS): package.json
	@if command -v npm >/dev/null; then \
	    npm install --no-audit --no-fund --no-package-lock --silent && touch $@; \
	else \
	    echo "npm is missing, and with it Azurite: the tests of azure:// will be skipped (make system installs it)"; \
	fi

# The client of alipan:// comes as source only. Without a C compiler, its tests say so.
$(ALIPAN): $(READY)
	@$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[alipan]' && touch $@ || \
	    echo "AliPCS-Py could not be built: the tests of alipan:// will fail"

demo: $(READY)
	$(BIN)/python examples/digits.py $(ARGS)

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: lint
	$(PYTEST) -m 'not long' $(ARGS)

test-all: $(READY) $(SERVERS) $(ALIPAN)
	$(PYTEST) -m long $(ARGS)

# Other libraries are installed into environments of their own, in benchmarks/.environments.
bench-hot: $(READY)
	$(BIN)/python benchmarks/hot.py $(ARGS)

bench-cold: $(READY)
	$(BIN)/python benchmarks/cold.py $(ARGS)

# Clients of S3 beside one another, without datasets.
bench-clients: $(READY)
	$(BIN)/python benchmarks/cold_clients.py $(ARGS)

bench-convert: $(READY)
	$(BIN)/python benchmarks/convert.py $(ARGS)

bench-scale: $(READY)
	$(BIN)/python benchmarks/scale.py $(ARGS)

bench-shuffle: $(READY)
	$(BIN)/python benchmarks/shuffle_quality.py --shards 2000 --epochs 6 $(ARGS)

# What it costs to see where the time goes.
bench-watching: $(READY)
	$(BIN)/python benchmarks/watching.py $(ARGS)

# Predictions beside real runs; needs nginx.
bench-planner: $(READY)
	$(BIN)/python benchmarks/planner.py $(ARGS)

bench: $(READY)
	$(BIN)/python benchmarks/import_time.py $(ARGS)

# An hour of killing processes that share a cache.
SOAK_S ?= 3600
soak: $(READY)
	SOAK_S=$(SOAK_S) $(BIN)/python -m pytest tests/chaos/test_chaos.py -m long $(ARGS)

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# The tests' servers that neither pip nor npm has.
SYSTEM_PACKAGES := openssh-server nginx chromium $(if $(shell command -v java),,default-jre-headless) \
    $(if $(shell command -v npm),,npm)
system:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && apt-get install -qq -y --no-install-recommends $(SYSTEM_PACKAGES); \
	else echo "make system needs root and apt; without them install: $(SYSTEM_PACKAGES)"; fi

clean:
	rm -rf $(VENV) node_modules build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
