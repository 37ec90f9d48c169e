#!/usr/bin/env bash
# Runs the tests: scripts/test.sh [--full]. Without --full what fits into CI; with it also the long ones.
# Ends with a table of the steps and the number of tests; fails if any step failed.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/steps.sh

fuzz_seconds=5
# What passed once passes again: new random cases are for --full (docs/decisions/0074-tests-hold-on-any-machine.md).
selection=(-m "not full" --hypothesis-seed=20)
export RC_PARAMS=seed=20
if [ "${1:-}" = --full ]; then
  fuzz_seconds=120
  selection=()
  unset RC_PARAMS
fi
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:die_after_fork=0
[ ! -x /usr/bin/llvm-symbolizer-19 ] ||
  export ASAN_SYMBOLIZER_PATH=/usr/bin/llvm-symbolizer-19 TSAN_SYMBOLIZER_PATH=/usr/bin/llvm-symbolizer-19

cxx_tests() { ctest --test-dir "$1" -j 2 --output-on-failure --no-tests=error "${@:2}"; }

# The tests in two processes; then the few that failed once more, by themselves and with nothing beside
# them. One that passes then is named as unstable and has to be mended, but stops nobody's landing
# (docs/decisions/0074-tests-hold-on-any-machine.md).
python_tests() {
  local pytest=(.venv/bin/python -m pytest -q "${selection[@]}") failed=.cache/pytest/v/cache/lastfailed
  rm -f $failed
  "${pytest[@]}" -rs -n 2 --dist loadfile && return
  [ -f $failed ] && [ "$(grep -c : $failed)" -le 5 ] || return
  echo "Once more, by themselves: those that failed"
  "${pytest[@]}" -p no:xdist --last-failed --last-failed-no-failures none 2>&1 | sed 's/^/again: /'
  [ "${PIPESTATUS[0]}" -eq 0 ] && echo "UNSTABLE: each of them passed by itself"
}

address_sanitizer() {
  scripts/build.sh asan headrace_tests headrace_fuzzers && cxx_tests build-asan -L unit
}

# Those in which several threads run at once.
thread_sanitizer() {
  scripts/build.sh tsan headrace_tests_threads headrace_tests_cache &&
    cxx_tests build-tsan -L '^(threads|cache)$'
}

step "set-up" scripts/setup.sh build test || finish
step "build" scripts/build.sh dev || finish
step "C++ tests" cxx_tests build || true
step "address sanitizer" address_sanitizer || true
step "fuzzers" scripts/fuzz.sh $fuzz_seconds || true
step "thread sanitizer" thread_sanitizer || true
step "Python tests" python_tests || true
finish tests
