# Two commands on a bare Debian 12, as root: `make demo` and `make test`. Each sets up all that it needs.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo test soak bench lint lock proto packages set-up clean

# Programs that set-up unpacked serve where the machine has none of its own.
export PATH := $(PATH):$(CURDIR)/.venv/debian/current:$(CURDIR)/.venv/debian/usr/bin
# Compiled modules are kept: a program that compiles its imports on every start is slow for no reason.
unexport PYTHONDONTWRITEBYTECODE

help: ## Show this
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | sort | expand -t 10

demo: ## Bring a cluster up, play the flows with real clients, show them, leave nothing behind
	@scripts/setup --run
	@.venv/bin/podwire demo

test: ## Lint, types, import rules and all tests that are not marked `soak`
	@scripts/test

soak: ## The same tests with all their rounds, for as long as they take
	@scripts/test --soak

bench: ## Measure ours and every peer that the machine has, side by side; parts may follow: make bench scale
	@scripts/setup --bench
	@.venv/bin/python -m benchmarks $(PARTS)

ifeq (bench,$(firstword $(MAKECMDGOALS)))
# The words after `bench` are parts of the benchmarks, not targets.
PARTS := $(wordlist 2,$(words $(MAKECMDGOALS)),$(MAKECMDGOALS))
.PHONY: $(PARTS)
$(PARTS): bench
	@:
endif

lint: set-up ## Only lint, types and import rules
	@scripts/lint

lock: set-up ## Resolve requirements/*.in into *.lock anew
	@scripts/lock

proto: set-up ## Make *_pb2.py from *.proto anew
	@.venv/bin/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. $$(find podwire -name '*.proto')

packages: set-up ## Make sdist, wheels, single files and images for both architectures in dist/, twice, and compare
	@scripts/package --check

set-up: ## Only the set-up: .venv and the Debian packages that are missing
	@scripts/setup

clean: ## Remove all that was made here: .venv, caches, builds
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
