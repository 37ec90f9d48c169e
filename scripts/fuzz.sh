#!/usr/bin/env bash
# Fuzzes each parser: scripts/fuzz.sh SECONDS [NAME...]   (SECONDS for each target, two at a time)
#
# Starts from fuzz/corpus/NAME and from what earlier runs found (.cache/fuzz/NAME). An input that
# crashes lands in .cache/fuzz/crashes; put it into the corpus together with the fix.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:?seconds for each target}
shift

scripts/setup.sh build test
if ! command -v clang++-19 >/dev/null; then
  echo "fuzz: clang 19 is not installed; the corpus is replayed by ctest, nothing is fuzzed"
  exit 0
fi
[ -f build-asan/fuzzers.txt ] || scripts/build.sh asan headrace_tests
[ -s build-asan/fuzzers.txt ] || { echo "fuzz: there are no fuzz targets"; exit 0; }
scripts/build.sh asan headrace_fuzzers
mkdir -p .cache/fuzz/crashes

fuzz_one() {
  local program=$1 corpus=$2 seconds=$3 name log
  name=$(basename "$program")
  log=.cache/fuzz/$name.log
  mkdir -p ".cache/fuzz/$name"
  if "build-asan/$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix=".cache/fuzz/crashes/$name-" ".cache/fuzz/$name" "fuzz/corpus/$corpus" >"$log" 2>&1; then
    echo "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs in $seconds s, no fault"
  else
    tail -n 40 "$log"
    echo "$name: FAULT, see $log and .cache/fuzz/crashes/"
    return 1
  fi
}
export -f fuzz_one
export UBSAN_OPTIONS=print_stacktrace=1

while read -r program corpus; do
  if [ $# -eq 0 ] || [[ " $* " == *" $(basename "$program") "* ]]; then echo "$program $corpus $seconds"; fi
done <build-asan/fuzzers.txt | xargs -r -P 2 -L 1 bash -c 'fuzz_one "$@"' fuzz
