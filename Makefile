# Everything a newcomer, a developer or CI runs. Needs Python 3.11+, make and pip; no root.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: help
help:           ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */: /' | sort

.PHONY: install
install: $(VENV)/.installed ## the environment in .venv

# The versions that this commit was tested with; those that a user may have are in pyproject.toml and tried by `make matrix`.
LOCKED := constraints.txt

$(VENV)/.installed: pyproject.toml $(LOCKED)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint $(LOCKED) --editable '.[dev]'
	touch $@

.PHONY: lock
lock:           ## constraints.txt anew: the newest versions, for `make install`
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev,bench]'
	$(BIN)/pip freeze --exclude-editable >$(LOCKED)
	touch $(VENV)/.installed

# -- the demo: servers and workers as local processes, all stopped at its end. BROKER_URL= and DATABASE_URL= name others.

LOG      ?= examples/eventlog/sample.csv
DATABASE ?= sqlite

.PHONY: demo
demo: install ## replay LOG (an event log, CSV) on DATABASE (sqlite, postgres) while engines are killed, stopped and frozen
	$(BIN)/python -m examples.eventlog.demo --log '$(LOG)' --database '$(DATABASE)'

# -- the examples: one of examples/README.md, with its worker and beat, as local processes

NAME ?= order

.PHONY: example
example: install ## run the example NAME (order, approval, fanout, webshop) on DATABASE (sqlite, postgres)
	$(BIN)/python -m examples.run '$(NAME)' --database '$(DATABASE)'

# -- the documentation

.PHONY: docs
docs: install ## the documentation as a site in site/; a broken link or a name that is gone is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --clean
	@echo "site/index.html"

.PHONY: picture
picture: install ## docs/images/architecture.svg anew, from the imports of the code
	$(BIN)/python docs/architecture_picture.py

# -- the stack of the Procfile. APP may be an application of yours. BROKER_URL= and DATABASE_URL= name servers to use.

APP           ?= weft_tasks
REDIS_PORT    ?= 6379
FLOWER_PORT   ?= 5555
EXPORTER_PORT ?= 9808

.PHONY: up
up: install ## Redis, two engines, maintenance, beat, Flower and the exporter for APP, until Ctrl-C
	@$(BIN)/python -m deploy.up --app '$(APP)' --redis-port '$(REDIS_PORT)' --flower-port '$(FLOWER_PORT)' \
		--exporter-port '$(EXPORTER_PORT)'

.PHONY: screenshot
screenshot: install ## docs/images/flower.png anew, from the stack that the test of Flower looks at (needs chromium, chromium-driver)
	SCREENSHOT=docs/images/flower.png $(BIN)/pytest tests/cluster/up/test_flower.py

# -- faults: real processes under faults, with a verdict; reports in var/faults

CASE ?=
SEED ?=

.PHONY: faults soak
faults: install ## the fault bench: every case, CASE=name, or a mixed schedule SEED=n; on DATABASE=postgres or sqlite
	$(BIN)/python -m faults $(if $(CASE),--case $(CASE)) $(if $(SEED),--seed $(SEED)) \
	  --database '$(if $(filter command line environment,$(origin DATABASE)),$(DATABASE),postgres)'

soak: install ## twenty minutes under faults: nothing may grow
	$(BIN)/python -m faults --soak 1200 --database '$(if $(filter command line environment,$(origin DATABASE)),$(DATABASE),postgres)'

# -- tests: real servers as local processes, started and stopped by the tests themselves

.PHONY: test test-quick test-cluster test-long
test: test-quick test-cluster ## every test, on SQLite and PostgreSQL, with real workers, beat and Redis

test-quick: install ## all but the tests with real workers
	$(BIN)/pytest -n 2 --dist loadfile --ignore tests/cluster

test-cluster: install ## real celery workers and beat as local processes
	$(BIN)/pytest tests/cluster $(addprefix --ignore ,$(LONG))

# What takes minutes: engines that die at many moments, on each database; the examples; rolling deploys; what deploy/ runs.
LONG := tests/cluster/worst_moments tests/cluster/examples tests/cluster/test_rolling_deploy.py tests/cluster/deploy \
        tests/cluster/releases tests/cluster/fault_bench tests/cluster/operator

test-long: install ## owners killed at the worst moments, rolling deploys, the examples and what deploy/ runs as processes
	$(BIN)/pytest $(LONG)

.PHONY: released-schema
released-schema: install ## keep the schema of this commit as that of VERSION, for the tests of later releases
	PYTHONPATH=. $(BIN)/python tests/migrations/release.py '$(VERSION)'

.PHONY: matrix
matrix: install ## the quick tests on every supported Python that is here, with the lowest and the highest versions
	$(BIN)/nox

# -- benchmarks: what each does, and what was measured, is in docs/performance.md

NODE_PG := var/benchmarks/node
BENCH   ?=

.PHONY: bench bench-peers bench-check bench-guard bench-docs
bench-peers: install ## what the benchmarks are compared with: Python packages, and `pg` for Node if there is one
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint $(LOCKED) --editable '.[bench]'
	if command -v npm >/dev/null; then npm install --silent --no-audit --no-fund --prefix $(NODE_PG) pg; fi

bench: bench-peers ## all benchmarks, half an hour, or those of BENCH='NAME …'; prints the table
	$(BIN)/python -m benchmarks.table run $(BENCH)

bench-check: install ## the last `make bench` against benchmarks/baseline.json
	$(BIN)/python -m benchmarks.table check

bench-guard: install ## the short benchmarks, reduced (two minutes), against benchmarks/baseline.json: what CI runs next
	$(BIN)/python -m benchmarks.table guard

bench-docs: bench-peers ## docs/performance.md and its pictures from the last `make bench`
	$(BIN)/python -m benchmarks.table docs

# -- checks

.PHONY: check format lint types layers
check: lint types layers test ## format, lint, types, layers and tests: what CI runs first

format: install ## write the format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: install
	$(BIN)/mypy

layers: install
	$(BIN)/lint-imports
