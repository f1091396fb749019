# `make demo` and `make test` need nothing but a fresh clone, Python >= 3.11 and Java 17 or 21.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
MINUTES ?= 10
FIRST ?= $(shell date +%s)
TIMES ?= 50
STAMP := .venv/.complete
PYTEST := $(BIN)/python -m pytest -q
JUNIT := --junitxml=artifacts/junit
LOWEST := .venv/lowest
LOWEST_TESTS := tests/unit/record_batch/test_round_trip.py tests/spark/test_batch.py \
	tests/spark/test_latest.py

# The tests start hundreds of processes: without compiled files each of them compiles 275 modules, a quarter second.
unexport PYTHONDONTWRITEBYTECODE

# Java is looked for before .venv is set up, also where make is told to do things at once.
.NOTPARALLEL:
.PHONY: help setup java demo durations test test-all test-unit test-simulation test-integration test-spark simulate \
	soak bench bench-quick \
	bench-setup check docs rules stubs sync format clean test-console test-lowest

help:
	@echo "make demo     start three brokers, run the Spark job on real data, show the result"
	@echo "make test     run the test suite: test-unit, test-simulation, test-integration, test-spark, each alone too"
	@echo "make test-all     the suite, and its long tests: ill will, masses, kills"
	@echo "make durations    write down how long the tests of the last .ci/run took"
	@echo "make test-lowest    the connector's basic tests with the lowest versions that it takes, PySpark 4.2 among them"
	@echo "make test-console   the console in a real browser; needs chromium and chromedriver"
	@echo "make simulate whole clusters in one thread on virtual time, for MINUTES=$(MINUTES), from seed FIRST=$(FIRST)"
	@echo "make soak     real brokers killed, hung and cut off, and Spark killed as it copies, TIMES=$(TIMES) of each"
	@echo "make bench    minilog beside Kafka, in turns (hours); make bench-quick for T1, T3, T5 and T11 (8 minutes)"
	@echo "make check    format, lint, types, architecture, wire contract, documents"
	@echo "make docs     the site of the documents, in artifacts/site/html"
	@echo "make rules    write the documents of the rules from tests/rules; python -m tools.rules HW.4 shows one"
	@echo "make stubs    generate client/minilog/v1 from proto/"
	@echo "make sync     generate the blocking clients of client/minilog/sync from those of client/minilog/aio"
	@echo "make clean    remove .venv and what was built"

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed, and $(PYTHON) is older: set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "setting up .venv (once; a few minutes)"
	@$(PYTHON) -m venv .venv || \
		{ echo "python -m venv failed: install it (Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 1; }
	@PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

java:
	@tools/check_java.sh

demo: java setup
	@$(BIN)/minilog demo $(DEMO_OPTIONS)

test: java setup test-unit test-simulation test-integration test-spark

test-console: setup
	@tools/check_chromium.sh
	$(PYTEST) tests/console

test-unit: setup
	$(PYTEST) -n 2 $(JUNIT)/unit.xml tests/unit

test-simulation: setup
	$(PYTEST) -n 2 $(JUNIT)/simulation.xml tests/simulation

test-integration: setup
	$(PYTEST) -n 4 --dist loadfile $(JUNIT)/integration.xml tests/integration

test-spark: java setup
	$(PYTEST) -n 3 --dist loadfile $(JUNIT)/spark.xml tests/spark

# Ill will, masses, kills, and what takes a minute: for a change of what they are about, and before a release.
test-all: test
	$(PYTEST) -n 3 --dist loadfile -m "long and not quiet" tests
	$(PYTEST) -m "long and quiet" tests

durations: setup
	$(BIN)/python -m tools.durations

# The ordinary suite has the newest versions, and these tests have the lowest that pyproject.toml allows.
test-lowest: java $(LOWEST)/.complete
	$(LOWEST)/bin/python -m pytest -q -p no:cacheprovider $(JUNIT)/lowest.xml $(LOWEST_TESTS)

$(LOWEST)/.complete: $(STAMP) tools/lowest_versions.py
	@$(BIN)/python -m venv --clear $(LOWEST)
	@$(BIN)/python tools/lowest_versions.py > $(LOWEST)/constraints.txt
	@PIP_CONSTRAINT= $(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint $(LOWEST)/constraints.txt --editable '.[broker,spark]' hypothesis pandas psutil pytest pytest-timeout
	@touch $@

simulate: setup
	$(BIN)/python -m tests.simulation --first $(FIRST) --minutes $(MINUTES) $(SIMULATE_OPTIONS)

soak: java setup
	for mode in leader controller both hang cut isolate rolling all voters; do \
		$(BIN)/python -m tests.integration.kill_runs $$mode --times $(TIMES) || exit 1; done
	$(BIN)/python -m tests.integration.kill_runs members --minutes 10 --members 50
	$(BIN)/python -m tests.integration.kill_runs queues --minutes 10 --workers 50
	$(BIN)/python -m tests.integration.kill_runs compaction --times $(TIMES)
	for mode in leader controller both all; do \
		$(BIN)/python -m tests.integration.kill_runs $$mode --typed --times $(TIMES) || exit 1; done
	$(BIN)/python -m tests.spark.kills --times $(TIMES)
	$(BIN)/python -m tests.spark.kills --typed --times $(TIMES)
	$(PYTEST) -m long tests

bench: java bench-setup
	$(BIN)/python -m benchmarks --report artifacts/bench $(BENCH_OPTIONS)

bench-quick: java bench-setup
	$(BIN)/python -m benchmarks --quick $(BENCH_OPTIONS)

bench-setup: setup
	@PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/buf lint
	$(BIN)/python tools/generate_stubs.py --check
	$(BIN)/python tools/generate_sync.py --check
	$(BIN)/python -m tools.rules --check
	$(BIN)/python -m tools.build_site

rules: setup
	$(BIN)/python -m tools.rules --write

docs: setup
	$(BIN)/python -m tools.build_site

stubs: setup
	$(BIN)/python tools/generate_stubs.py

sync: setup
	$(BIN)/python tools/generate_sync.py

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .cache spark-warehouse artifacts
	find client broker operator_tools spark_connector jobs tests tools benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
