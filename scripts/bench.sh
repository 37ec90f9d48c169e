#!/usr/bin/env bash
# Sets up, builds and runs the benchmarks: scripts/bench.sh [ARGUMENTS of bench/run]
# The other loaders are installed into bench/peers/.venvs at the first run (about 14 GB); one that cannot
# be installed is left out of the table.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh build demo
scripts/build.sh dev headrace_python
bench/peers/setup || echo "bench: none of the other loaders could be installed; measuring Headrace alone"
PYTHON=$PWD/.venv/bin/python exec bench/run "$@"
