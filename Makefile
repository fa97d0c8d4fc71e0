# Two commands do everything on a machine with Python 3.11+ and make: `make demo` and `make test`.
# Written for GNU make 3.81, which is what macOS ships.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

# How many tests run side by side: most of them wait for processes and sockets. 0 runs them one by one, for a debugger.
WORKERS ?= 4
# Tests with programs of others, most of them from npm: what they do takes long, and changes of ours rarely break it.
EXTERNAL := $(addprefix tests/,conformance http_clients real_authorities real_clients real_servers) \
            tests/sharing/test_command_line_clients.py $(wildcard tests/seeing/page/test_browser*.py) tests/seeing/test_metrics_prometheus.py
# Passed on to pytest, for example: make test PYTEST_ARGS="-k framing -x"
PYTEST_ARGS ?=
BENCH_ARGS  ?=
# make faults LOAD=1: with busy processes and another workbench beside it
LOAD ?=
# make test AGAIN=1, also test-external: the few tests that failed run once more, alone, before they count
AGAIN ?=
# make coverage FLOOR=83: percent of lines and branches of the last run with --cov
FLOOR ?= 0
# make mutants MODULE=team/policy/limit_step [TESTS="tests/team tests/bridge"] [MUTANTS_ARGS="--processes --sample 100"]
MODULE ?=
TESTS ?=
MUTANTS_ARGS ?=
# make cluster-trial REPETITIONS=20
REPETITIONS ?= 20
# For example: make soak SOAK_ARGS="--minutes 5 --clients 200 --servers 20"
SOAK_ARGS   ?=
# For example: make conformance CONFORMANCE_ARGS="server --only stdio-modern --keep kept"
CONFORMANCE_ARGS ?=

# Stamps: a target is installed again only when what decides its content has changed.
BASE    := $(VENV)/.stamp-base
RUNTIME := $(VENV)/.stamp-runtime
DEV     := $(VENV)/.stamp-dev

.PHONY: help demo install dev test coverage quick other-pythons mutants lint format format-check types check faults soak soak-sharing soak-signin cluster-demo cluster-trial bench bench-context bench-jobs build release-trial docs sbom bundle pictures constraints conformance first-minutes clean

help:
	@echo 'make demo         install into $(VENV) and walk through a short session on the included servers'
	@echo 'make install      install into $(VENV) and say where the program is'
	@echo 'make dev          the same with the tools for tests, linting and type checks'
	@echo 'make test         install and run the tests (PYTEST_ARGS="-k name" for some of them)'
	@echo 'make test-external  the official conformance suite, identity providers, clients and servers of others'
	@echo '                  (needs npm and the network; skipped with a reason where they are missing)'
	@echo 'make coverage     what the last run with PYTEST_ARGS=--cov did not reach'
	@echo 'make quick        the tests that start no programs and open no sockets: under a minute'
	@echo 'make other-pythons  the same on every other Python of this machine, the system one as an ordinary user'
	@echo 'make mutants MODULE=team/policy/limit_step   small mistakes in a module that no test notices'
	@echo 'make check        lint, format-check, types, docs, test and test-external: what CI runs'
	@echo 'make lint         ruff check'
	@echo 'make format       ruff format, and what ruff can fix by itself'
	@echo 'make types        mypy --strict over source, tests, scripts and bench'
	@echo 'make faults       the fault suite alone (it is part of make test); LOAD=1 with a second workload beside it'
	@echo 'make soak         1,000 clients, 100 servers and random kills, an hour by default; writes docs/internals/soak.md'
	@echo 'make soak-sharing 20 clients on one shared workbench with published servers and kills (needs npm)'
	@echo 'make soak-signin  one sign-in and tokens of ten seconds, an hour by default (needs npm)'
	@echo 'make cluster-demo three instances, Redis and HAProxy on this machine: users move, one of each is killed'
	@echo 'make cluster-trial  users of a cluster, killed instances, state that is away, rolling restarts, again and again'
	@echo 'make bench        measure calls, start-up and memory against a bare forwarder'
	@echo 'make bench-context DATA=folder   measure search and token costs on real tool catalogues,'
	@echo '                  for docs/internals/performance.md'
	@echo 'make bench-jobs   six jobs on published servers: one call at a time, with lists, as programs (needs npm);'
	@echo '                  TOKENIZER=file has the ranks of o200k_base'
	@echo 'make conformance  the official conformance suite through the workbench (needs npm)'
	@echo 'make docs         build the site of the documents into build/site, strictly'
	@echo 'make build        sdist and wheel into dist/'
	@echo 'make release-trial  build, check, install and try what a release would publish; NAME= for another name'
	@echo 'make sbom         mcp-workbench.cdx.json, the bill of materials of a release'
	@echo 'make first-minutes  print how long a newcomer waits, from a clone to a first call in three clients'
	@echo 'make bundle       dist/*.mcpb, the bundle that Claude Desktop installs by a double click'
	@echo 'make pictures     draw the pictures in docs/images again; best on a quiet machine'
	@echo 'make constraints  resolve the dependencies anew and write the constraints files'
	@echo 'make clean        remove $(VENV) and everything that tools left behind'

demo: $(RUNTIME)
	@$(BIN)/mcp-workbench demo

first-minutes: $(DEV)
	@$(BIN)/python -m scripts.first_minutes

install: $(RUNTIME)
	@echo 'mcp-workbench is installed at $(abspath $(BIN))/mcp-workbench'

dev: $(DEV)

test: $(DEV)
	@$(BIN)/python $(if $(AGAIN),-m scripts.second_try) -m pytest -n $(WORKERS) $(EXTERNAL:%=--ignore=%) $(PYTEST_ARGS)

test-external: $(DEV)
	@$(BIN)/python $(if $(AGAIN),-m scripts.second_try) -m pytest -n $(WORKERS) $(EXTERNAL) $(PYTEST_ARGS)

coverage: $(DEV)
	@$(BIN)/coverage report --skip-covered --fail-under=$(FLOOR)

# One worker more than cores: a quarter of the time these tests wait, for timers and threads.
quick: $(DEV)
	@$(BIN)/python -m pytest -n 3 -q -m "not processes" --hypothesis-profile quick $(PYTEST_ARGS)

other-pythons: $(DEV)
	@$(BIN)/python -m scripts.other_pythons

mutants: $(DEV)
	@test -n "$(MODULE)" || { echo 'make mutants MODULE=<below src/mcp_workbench, for example team/policy/limit_step>' >&2; exit 2; }
	@$(BIN)/python -m scripts.mutants $(MUTANTS_ARGS) $(MODULE) $(TESTS)

# They look into processes of ours, which are hidden otherwise.
faults soak soak-sharing soak-signin bench: export WORKBENCH_DEBUGGER = 1

faults: $(DEV)
	@$(BIN)/python $(if $(LOAD),-m soak.beside $(BIN)/python) -m pytest -n $(WORKERS) tests/faults $(PYTEST_ARGS)

cluster-demo: $(DEV)
	@$(BIN)/python -m scripts.cluster_demo

# Slow on purpose: calls of 30 s, and the state server away for 30 s.
cluster-trial: $(DEV)
	@CLUSTER_REPETITIONS=$(REPETITIONS) $(BIN)/python -m pytest -q -s tests/end_to_end/test_cluster*.py tests/cluster tests/signin/test_shared_sign_ins.py $(PYTEST_ARGS)

soak: $(DEV)
	@$(BIN)/python -m soak $(SOAK_ARGS)

soak-sharing: $(DEV)
	@$(BIN)/python -m soak.sharing $(SOAK_ARGS)

soak-signin: $(DEV)
	@$(BIN)/python -m soak.sign_ins $(SOAK_ARGS)

lint: $(DEV)
	@$(BIN)/ruff check .

format: $(DEV)
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

format-check: $(DEV)
	@$(BIN)/ruff format --check .

types: $(DEV)
	@$(BIN)/mypy

check: lint format-check types docs test test-external

bench: $(DEV)
	@$(BIN)/python -m bench $(BENCH_ARGS)

# DATA is a folder of tool catalogues and labelled needs; docs/internals/performance.md says what is in it.
bench-context: $(DEV)
	@test -n "$(DATA)" || { echo 'make bench-context DATA=<folder with tool catalogues>' >&2; exit 2; }
	@$(BIN)/python -m bench.context $(DATA) --write docs/internals/performance.md $(BENCH_ARGS)

# TOKENIZER is a file with the ranks of o200k_base; without it, tokens are our own estimate.
bench-jobs: $(DEV)
	@$(BIN)/python -m bench.jobs $(if $(TOKENIZER),--tokenizer "$(TOKENIZER)") $(BENCH_ARGS)

conformance: $(DEV)
	@$(BIN)/python -m conformance $(CONFORMANCE_ARGS)

build: $(DEV)
	@rm -rf dist
	@$(BIN)/python -m hatchling build

release-trial: $(DEV)
	@$(BIN)/python -m scripts.release_trial $(if $(NAME),--name $(NAME))

docs: $(DEV)
	@$(BIN)/python -m scripts.build_site
	@echo 'to read it: $(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site'

sbom: $(RUNTIME)
	@$(BIN)/python -m scripts.write_sbom mcp-workbench.cdx.json

pictures: $(DEV)
	@$(BIN)/python -m scripts.draw_pictures

bundle: $(RUNTIME)
	@$(BIN)/python scripts/build_bundle.py

constraints: $(BASE)
	@$(BIN)/python scripts/update_constraints.py

clean:
	rm -rf $(VENV) .cache dist build mcp-workbench.cdx.json .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find src tests scripts soak -name __pycache__ -type d -prune -exec rm -rf {} +

$(BASE):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo 'MCP Workbench needs Python 3.11 or newer; `$(PYTHON)` is' "`$(PYTHON) --version 2>&1`." >&2; \
		echo >&2; \
		echo 'hint: name another one, for example: make PYTHON=python3.12 demo' >&2; \
		exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
		echo >&2; \
		echo 'hint: this Python cannot create virtual environments; on Debian and Ubuntu install `python3-venv`' >&2; \
		exit 1; }
	@touch $@

$(RUNTIME): $(BASE) pyproject.toml constraints.txt scripts/install.py
	@$(BIN)/python scripts/install.py
	@touch $@

$(DEV): $(RUNTIME) constraints-dev.txt
	@$(BIN)/python scripts/install.py --dev
	@touch $@
