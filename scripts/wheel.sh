#!/usr/bin/env bash
# Builds dist/headrace-*.whl: scripts/wheel.sh [OUT_DIR]. The wheel carries the libraries it needs, so
# that it runs on a machine without a compiler and without development packages.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-dist}

scripts/setup.sh build wheel
raw=$(mktemp -d)
trap 'rm -rf "$raw"' EXIT
# The compiler by the name that build/ calls it, so that ccache finds what that build compiled.
export CXX=${CXX:-c++} CC=${CC:-cc}
echo "wheel: building"
.venv/bin/python -m pip wheel . --no-deps --no-build-isolation --no-input --disable-pip-version-check -q \
  -w "$raw" </dev/null
mkdir -p "$out"
rm -f "$out"/headrace-*.whl
echo "wheel: adding the libraries it needs"
PATH="$PWD/.venv/bin:$PATH" .venv/bin/python -m auditwheel repair --strip -w "$out" "$raw"/headrace-*.whl \
  >"$raw/repair.log" 2>&1 || { cat "$raw/repair.log" >&2; exit 1; }
ls -l "$out"/headrace-*.whl
