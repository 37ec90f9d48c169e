#!/usr/bin/env bash
# Configures and builds one build folder: scripts/build.sh KIND [TARGET...]
#
#   dev    build/       everything, with the Python extension placed into python/headrace
#   asan   build-asan/  unit tests and fuzz targets under AddressSanitizer and UBSan (clang if there)
#   tidy   build-tidy/  nothing: how each file is compiled by itself, for clang-tidy
#   tsan   build-tsan/  unit tests under ThreadSanitizer (clang if there)
#
# Configures only when the options changed; ninja does the rest. HEADRACE_JOBS sets the number of
# compilers at once (default: the number of processors, at most one for each 1.5 GB of memory).
set -euo pipefail
cd "$(dirname "$0")/.."

kind=${1:?kind of build: dev, asan, tsan or tidy}
shift
options=(-G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo)
clang=()
if command -v clang++-19 >/dev/null; then
  clang=(-DCMAKE_CXX_COMPILER=clang++-19 -DCMAKE_C_COMPILER=clang-19)
fi
case $kind in
  dev | tidy)
    dir=build
    [ "$kind" = dev ] || dir=build-tidy options+=(-DHEADRACE_TOGETHER=1)
    options+=(-DHEADRACE_PYTHON=ON -DHEADRACE_PYTHON_IN_TREE=ON "-DPython_EXECUTABLE=$PWD/.venv/bin/python")
    ;;
  asan)
    dir=build-asan
    options+=("${clang[@]}" -DHEADRACE_SANITIZE=address,undefined)
    [ ${#clang[@]} -eq 0 ] || options+=(-DHEADRACE_FUZZ=ON)
    ;;
  tsan)
    dir=build-tsan
    options+=("${clang[@]}" -DHEADRACE_SANITIZE=thread)
    ;;
  *)
    echo "build: no kind '$kind': dev, asan, tsan or tidy" >&2
    exit 2
    ;;
esac

jobs=${HEADRACE_JOBS:-}
if [ -z "$jobs" ]; then
  jobs=$(nproc)
  memory_jobs=$(awk '/MemAvailable/ {print int($2 / 1500000)}' /proc/meminfo)
  [ "$memory_jobs" -ge "$jobs" ] || jobs=$((memory_jobs > 1 ? memory_jobs : 1))
fi

if [ ! -f $dir/build.ninja ] || [ "$(cat $dir/options 2>/dev/null)" != "${options[*]}" ]; then
  echo "build: configuring $dir"
  rm -rf $dir/CMakeCache.txt $dir/CMakeFiles
  mkdir -p $dir
  cmake -S . -B $dir "${options[@]}" >$dir/configure.log 2>&1 || {
    cat $dir/configure.log >&2
    exit 1
  }
  echo "${options[*]}" >$dir/options
fi
if [ -t 1 ]; then
  ninja -C $dir -j "$jobs" "$@"
else
  echo "build: compiling in $dir"
  ninja -C $dir -j "$jobs" --quiet "$@" | sed '/^ninja: no work to do/d'
fi
