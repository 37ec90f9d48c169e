#!/usr/bin/env bash
# Cuts the power at many points of what checkpoints do: scripts/crash.sh [POINTS]
#
# Save and publish, prune, sweep, drain, export and import run on a file system in memory that knows what a
# power cut loses; it is cut at each write boundary, for as many random states as it takes to come to POINTS
# cuts (default 10,000), and with each cut unsynced writes are dropped, kept (as when the process is killed)
# or torn. After each, the newest checkpoint or the one before must restore bit for bit. These cuts are the
# same in each run. As root, where there is a loop device, the real writer's file system is shut down in its
# midst, too.
set -euo pipefail
cd "$(dirname "$0")/.."
points=${1:-10000}
[[ $points =~ ^[0-9]+$ ]] || { echo "crash: '$points' is no number of points" >&2; exit 2; }

scripts/setup.sh build
scripts/build.sh dev headrace_tests_checkpoint
tests=$(find build -name checkpoint_test -type f -perm -u+x | head -n 1)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
HEADRACE_CRASH_POINTS=$points "$tests" --gtest_filter='*CrashTest*' | tee "$log"
sum=$(awk '/^crash points:/ {sum += $3} END {print sum + 0}' "$log")
echo "crash: $sum cuts, after each of them a whole checkpoint"
[ "$sum" -ge "$points" ] || { echo "crash: fewer than the $points that were asked for" >&2; exit 1; }
