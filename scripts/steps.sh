# Sourced by the scripts that run several steps: names each one, times it, and keeps its output in
# .cache/logs. A step that fails does not stop the ones after it; `finish` makes the script fail.

step_names=() step_seconds=() step_results=()
logs=.cache/logs
mkdir -p $logs

# step NAME COMMAND...: runs it. Returns 0 if it succeeded; the caller may stop there if it did not.
step() {
  local name=$1 started=$SECONDS result=ok log
  shift
  log=$logs/${name// /-}.log
  echo
  echo "=== $name"
  "$@" </dev/null 2>&1 | tee "$log"
  [ "${PIPESTATUS[0]}" -eq 0 ] || result=FAILED
  step_names+=("$name") step_seconds+=($((SECONDS - started))) step_results+=($result)
  echo "=== $name: $result, $((SECONDS - started)) s"
  [ $result = ok ]
}

# Adds up the closing lines of ctest and pytest in the logs of this run's steps. What passed when it was
# run again counts as passed.
count_tests() {
  local name log
  for name in "${step_names[@]}"; do
    log=$logs/${name// /-}.log
    sed -nE 's/^[0-9]+% tests passed, ([0-9]+) tests? failed out of ([0-9]+).*/ctest \1 \2/p' "$log"
    sed -nE 's/^again: ([0-9]+) passed.* in .*s.*/again \1/p' "$log"
    grep -E '^(=+ )?[0-9]+ [a-z]+.* in [0-9.]+s' "$log" | grep -oE '[0-9]+ (passed|failed|error|errors|skipped)' || true
  done | awk '
    $1 == "ctest" { failed += $2; passed += $3 - $2; next }
    $1 == "again" { failed -= $2; passed += $2; next }
    $2 == "passed" { passed += $1 }
    $2 ~ /failed|error/ { failed += $1 }
    $2 == "skipped" { skipped += $1 }
    END { printf "total: %d passed, %d failed, %d skipped\n", passed, failed, skipped }'
}

# Prints the table of steps and ends the script, with 1 if a step failed.
finish() {
  local i failed=0
  echo
  for i in "${!step_names[@]}"; do
    printf '  %-28s %6s  %5d s\n' "${step_names[$i]}" "${step_results[$i]}" "${step_seconds[$i]}"
    [ "${step_results[$i]}" = ok ] || failed=1
  done
  printf '  %-28s %6s  %5d s\n' all "" "$SECONDS"
  [ "${1:-}" != tests ] || count_tests
  exit $failed
}
