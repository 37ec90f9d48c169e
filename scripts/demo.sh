#!/usr/bin/env bash
# Sets up, builds and runs the demo: scripts/demo.sh [ARGUMENTS of examples/demo.py]
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh build demo
scripts/build.sh dev
exec .venv/bin/python examples/demo.py "$@"
