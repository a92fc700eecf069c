# `make` alone lists the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help run test sim e2e vm soak bench bench-gates image lint fmt mutants fuzz fuzz-check

CARGO ?= cargo
# For every cargo call; continuous integration sets --locked.
CARGOFLAGS ?=

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The profile of the tests: half the building time of `release`, and `make test` finds most of it built.
run: ## build keelet and run a first pod: init container, sidecar, probes; needs root, Ctrl-C ends it
	@$(CARGO) run $(CARGOFLAGS) --package keelet -- run --logs examples/hello.yaml

test: ## every test that needs no peers: tables, properties, simulations, the list of behaviours, links in the documents
	@scripts/test $(CARGOFLAGS)

# Without the tests' dependencies, which would have tokio and most of the others built a second time.
sim: ## random runs of agent and controller with new seeds on all cores, for SIM_SECONDS (60) or SIM_RUNS; SIM_FIRST chooses the seeds, SIM_SEED replays one
	@$(CARGO) run $(CARGOFLAGS) --quiet --profile sim --package keelet-simulate --bin sim

e2e: ## tests against real peers: containerd (from Debian), a Kubernetes control plane (built with Go), critest and client-go on the embedded runtime; needs root
	@scripts/e2e $(CARGOFLAGS)

vm: ## the tests with real containers in virtual machines: cgroup v2 alone, an old kernel and a new one; needs root and Debian
	@scripts/vm $(CARGOFLAGS)

soak: ## 5000 runs of `make sim` (SIM_RUNS, SIM_SECONDS), and the tests with real containers that take minutes; needs root
	@scripts/soak $(CARGOFLAGS)

bench: ## benchmarks, with the optimisation of a shipped binary; a full node among them
	@$(CARGO) bench $(CARGOFLAGS) --workspace --profile dist --bench '*'

bench-gates: ## `keelet controller` on a real control plane with thousands of nodes: latency, throughput, memory, CPU; needs root and Go
	@scripts/bench-gates

image: ## a container image of a statically linked keelet, without docker: target/keelet-image.tar
	@scripts/image

lint: ## formatting, clippy without a warning, and cargo-deny where it is installed
	@$(CARGO) fmt --all --check
	@$(CARGO) clippy $(CARGOFLAGS) --workspace --all-targets -- -D warnings
	@scripts/deny

fmt: ## format the code
	@$(CARGO) fmt --all

mutants: ## break the rules on purpose and see whether a test notices (takes long)
	@if $(CARGO) mutants --version >/dev/null 2>&1; then \
		$(CARGO) mutants --profile mutants --jobs 2 --shuffle --timeout 60 --package keelet-lifecycle --package keelet-pod \
			-- --tests -- --skip properties; \
	else \
		echo "cargo-mutants is not installed: cargo install --locked cargo-mutants" >&2; exit 1; \
	fi

fuzz: ## feed hostile input to every parser for an hour, or for FUZZ_SECONDS for each target; images need root
	@scripts/fuzz

fuzz-check: ## compile the fuzz targets, without cargo-fuzz
	@$(CARGO) check $(CARGOFLAGS) --quiet --manifest-path fuzz/Cargo.toml
