# The one door: `make help` lists what is behind it. On a fresh Debian 12 with Rust, g++, make and
# git, `make demo` and `make test` need nothing else.

TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
FUZZ_SECONDS ?= 20
PREFIX ?= /usr/local
KILLS ?= 2000
KILL_WRITES ?= 25000
CUTS ?= 500000

.DEFAULT_GOAL := help
.PHONY: help setup test-tools build run test demo bench bench-peers bench-embedded bench-local fuzz models \
	soak kills cuts mutants log-mutants fmt style lint ci clean-data install-c header wheel node

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

setup: ## check tools, find V8 or fetch it into .v8
	@scripts/setup.sh

test-tools: ## get what only the tests need into .tools
	@scripts/test-tools.sh

build: setup ## build the release binaries, nigh and nigh-bench
	cargo build --release --locked -p nigh-cli -p nigh-bench

install-c: ## build the library for C and install it under PREFIX (/usr/local)
	cargo build --release --locked -p nigh-c
	scripts/install-c.sh $(TARGET_DIR)/release $(PREFIX)

wheel: ## build the library for Python: target/wheels/nigh-*.whl
	@scripts/test-tools.sh python
	cd crates/nigh-py && ../../.tools/venv/bin/maturin build --release

node: ## build the package for Node.js: target/node/nigh-*.tgz
	cargo build --release --locked -p nigh-node
	@scripts/pack-node.sh $(TARGET_DIR)/release $(TARGET_DIR)/node

header: ## make the headers in crates/nigh-c/include anew
	NIGH_WRITE_HEADER=1 cargo test --locked -p nigh-c --test header

run: build ## serve in the foreground on port 6379
	@$(TARGET_DIR)/release/nigh serve

test: setup test-tools ## run all tests: the crates' own, then real clients against the binary
	@scripts/run_tests.py $(ARGS)

demo: build ## load a graph, count friends from the client side and in the store, compare
	@$(TARGET_DIR)/release/nigh-bench demo

bench: setup ## criterion benches of the crates
	cargo bench --locked --workspace --features nigh-js/bench-callback

bench-peers: build test-tools ## run beside Debian's Redis, write docs/benchmarks.md
	@scripts/bench-peers.sh $(ARGS)

# A package of its own, so that nothing else waits for its dependencies. ARGS="--keys 10000000", or
# whatever `run --help` there names.
bench-embedded: ## run the library beside LevelDB, LMDB and others, write docs/benchmarks-embedded.md
	@scripts/bench-embedded-setup.sh
	cd benches/embedded && cargo run --release --locked -- run $(ARGS)
	cd benches/embedded && cargo run --release --locked -- report

bench-local: build test-tools ## run local clients beside Redis, memcached and LMDB, write docs/benchmarks-local.md
	@scripts/bench-local.sh --rounds 7 --seconds 0.3 $(ARGS)

fuzz: setup ## each fuzz target for FUZZ_SECONDS (20)
	@scripts/fuzz.sh $(FUZZ_SECONDS)

models: ## check the rules of journal and log by exhaustive models, and that these find mistakes
	python3 crates/log/models/crash.py

soak: setup ## the long versions of the tests by faults and chance; TIMES=1 takes an hour
	@scripts/soak.sh $(or $(TIMES),1)

kills: setup ## KILLS (2000) SIGKILLs of each mode, with KILL_WRITES (25000) answers between two
	NIGH_KILLS=$(KILLS) NIGH_KILL_WRITES=$(KILL_WRITES) cargo test --release --locked -p nigh-cli \
		--test kills -- kill_many:: --nocapture

cuts: setup ## CUTS (500000) simulated power losses of a log, and a tenth of them of a store in each mode
	@scripts/cuts.sh $(CUTS)

log-mutants: setup ## seed mistakes into journal and log; do tests notice each? hours
	python3 scripts/log_mutants.py

mutants: ## change FILES (or all that keep invariants) in small ways; do tests notice? hours
	@scripts/mutants.sh $(FILES)

fmt: ## format the code
	cargo fmt --all

style: ## formatting and structure; the seeded mistakes still apply
	cargo fmt --all -- --check
	python3 scripts/test_structure.py
	python3 scripts/structure.py
	python3 scripts/log_mutants.py --dry

lint: setup style ## style and clippy, warnings are errors
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo clippy --locked --workspace --features nigh/functions,nigh-client/async \
		--test in_process --test tasks -- -D warnings

ci: ## what CI does
	@.ci/run

clean-data: ## remove arenas that stopped servers left in /dev/shm
	@scripts/clean-data.sh
