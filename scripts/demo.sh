#!/usr/bin/env bash
# Sets up, builds and runs the demo: scripts/demo.sh [ARGUMENTS of examples/demo/run.py]
# Only the Python package and the program are built: the tests are not needed here.
set -euo pipefail
cd "$(dirname "$0")/.."

echo "The demo sets this machine up and builds Headrace if need be (minutes the first time), then trains."
scripts/setup.sh build demo
scripts/build.sh dev headrace_native_in_tree headrace_program_in_tree
exec .venv/bin/python examples/demo/run.py "$@"
