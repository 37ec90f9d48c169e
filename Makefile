# Every target does its own set-up, asks nothing and can be run again at once.
# With no target: help.
.DEFAULT_GOAL := help
.PHONY: help build demo test test-full bench crash check format fuzz wheel clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

build: ## Build the library, the program, the tests and the Python package into build/
	@scripts/setup.sh build
	@scripts/build.sh dev

demo: ## Train on real photographs, kill it, resume it, prove the order (examples/)
	@scripts/demo.sh

test: ## Run all tests that fit into CI: C++, Python, sanitizers, fuzzers, wheel
	@scripts/test.sh

test-full: ## Run all tests, also those too long for CI
	@scripts/test.sh --full

bench: ## Measure against other loaders, side by side (downloads them into bench/peers/.venvs)
	@scripts/bench.sh

crash: ## Cut the power at 10,000 points of saves, drains, prunes, exports...: make crash POINTS=20000
	@scripts/crash.sh $(or $(POINTS),10000)

check: ## Check format, layers, banned calls, sizes, types, links; see tools/check
	@scripts/setup.sh check
	@tools/check

format: ## Reformat the C++ and Python sources
	@scripts/setup.sh check
	@tools/format

fuzz: ## Fuzz each parser for a minute: make fuzz SECONDS=600 for longer
	@scripts/fuzz.sh $(or $(SECONDS),60)

wheel: ## Build a wheel into dist/ that needs no compiler and no libraries
	@scripts/wheel.sh

clean: ## Remove what the builds made (keeps .venv)
	rm -rf build build-* .cache/pytest dist .demo python/headrace/bin python/headrace/_native*.so .mypy_cache .ruff_cache
