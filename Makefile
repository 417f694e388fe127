# make run: set everything up and serve.  make test: set everything up and test.
# make help: what else there is.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.kas-installed
SOURCES := $(shell find kas -name '*.py[x]' -o -name '*.px[di]') setup.py pyproject.toml

PIP = $(BIN)/python -m pip install -q --disable-pip-version-check
# What kas and its tests need, for pip; installed while the compiler is at work.
define NEEDED
import tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
print("\n".join(project["dependencies"] + project["optional-dependencies"]["test"]))
endef
export NEEDED
define RECENT
import sys
if sys.version_info < (3, 11):
    sys.exit("kas needs Python 3.11 or later, and this is %d.%d: make PYTHON=python3.13, say" % sys.version_info[:2])
endef
export RECENT

.PHONY: help build run test hostile robustness bench load soak fuzz lint tables docs proto wheel clean
build: $(STAMP)

$(STAMP): $(SOURCES)
	test -x $(BIN)/pip || { $(PYTHON) -c "$$RECENT" && $(PYTHON) -m venv $(VENV); }  # one that Debian's python3 made has no pip
	$(PIP) -U pip "setuptools>=77" "Cython>=3.3,<3.4" wheel build
	$(PIP) --no-build-isolation --no-deps -e . & compiling=$$!; \
	  $(BIN)/python -c "$$NEEDED" | $(PIP) -r /dev/stdin; installed=$$?; wait $$compiling && exit $$installed
	$(BIN)/python -m compileall -q kas
	touch $@

run: build
	$(BIN)/kas serve $(ARGS)

# BACKEND=etcd: every server that a test starts stands on an etcd.
BACKEND ?= lmdb
test: build
	KAS_BACKEND=$(BACKEND) $(BIN)/python -m pytest $(ARGS)

# Attacks alone; FLAGS are more of the server's: "--workers 2", or "--client-ca-file=CA.crt" for the TLS front.
FLAGS ?=
hostile: build
	KAS_BACKEND=$(BACKEND) KAS_HOSTILE_FLAGS="$(FLAGS)" $(BIN)/python -m pytest tests/hostile $(ARGS)

# Faults for minutes, others with each KAS_ROBUSTNESS_SEED. On etcd HOSTS=1: each part in a network namespace of its own; for root.
HOSTS ?=
robustness: build
	KAS_BACKEND=$(BACKEND) KAS_ROBUSTNESS_SECONDS=$${KAS_ROBUSTNESS_SECONDS:-180} $(BIN)/python -m pytest --timeout 900 -s \
	  tests/robustness/$(if $(filter etcd,$(BACKEND)),$(if $(HOSTS),between_hosts,test_etcd_faults),test_watch_promises).py \
	  $(if $(HOSTS),,tests/robustness/test_clock_jumps.py) $(ARGS)

bench: build
	$(BIN)/python -m pytest bench --benchmark-enable --benchmark-only --benchmark-json=.benchmarks/latest.json $(ARGS)

load: build
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["load"], sep="\n")' | $(PIP) -r /dev/stdin
	$(BIN)/python loadtests/run.py $(ARGS)

soak: build
	$(BIN)/python loadtests/soak.py $(ARGS)

# More than 100,000 requests each of two kinds, others in each run; two servers, of KAS_FUZZ_FLAGS, share them.
fuzz: build
	KAS_FUZZ_EXAMPLES=10000 KAS_FUZZ_REQUESTS=100000 KAS_FUZZ_FROM=$${KAS_FUZZ_FROM:-$$(date +%s)} $(BIN)/python -m pytest -n 2 \
	  --timeout 3600 tests/robustness/test_fuzz_http.py tests/robustness/test_fuzz_kinds.py $(ARGS)

lint: build
	$(BIN)/ruff check .
	$(BIN)/mypy

tables: build
	$(BIN)/python tools/tables.py $(ARGS)
docs: build
	$(BIN)/python tools/gen_flags.py

# What etcd.proto says as Python.
proto: build
	$(PIP) grpcio-tools
	$(BIN)/python -m grpc_tools.protoc -I . --python_out=. kas/store/etcd/etcd.proto

wheel: build
	$(BIN)/python -m build

define HELP
build       the environment in .venv, and the compiled units; the others begin with it
run         serves                                      ARGS="--secure-port=auto"
test        all tests                                   ARGS="tests/kinds -x" BACKEND=etcd
lint        ruff and mypy
hostile     attacks on a server                         FLAGS="--workers 2" BACKEND=etcd
robustness  faults for minutes                          KAS_ROBUSTNESS_SECONDS=180 BACKEND=etcd HOSTS=1
fuzz        more than 200,000 damaged requests          KAS_FUZZ_FLAGS="--workers 2"
soak        attacks, writers and watchers side by side  ARGS="--minutes 30"
load        many users for half a minute                ARGS="--users 100 --seconds 60"
bench       the benchmarks of functions                 ARGS="-k test_store"
tables      tables of types, gates and roles, from tools/facts and tools/texts
docs        docs/flags.md, from the flags
proto       kas/store/etcd/etcd_pb2.py, from etcd.proto
wheel       an archive of the source, and a wheel of it, in dist
clean       takes away what was built
endef
export HELP

help:
	@echo "$$HELP"

clean:
	rm -rf $(VENV) build dist *.egg-info
	find kas \( -name '*.so' -o -name '*.c' \) -delete
