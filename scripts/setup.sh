#!/usr/bin/env bash
# Installs what is missing for the named sets: scripts/setup.sh SET...   (build test check demo wheel)
#
# Debian packages come from scripts/debian-packages.txt, Python packages from requirements/SET.txt into
# .venv. What is already there is left alone, so that a second run takes well under a second. Asks
# nothing. Installs Debian packages as root, or through sudo where that needs no password; otherwise it
# says which command to run. Settings:
#   HEADRACE_PYTHON   the Python to use (default: the first of python3.13 ... python3.10, python3 that fits)
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "setup: $*"; }
fail() { echo "setup: $*" >&2; exit 1; }

[ $# -gt 0 ] || fail "name at least one set: build test check demo wheel"
mkdir -p .cache
if command -v flock >/dev/null; then
  exec 9>.cache/setup.lock
  flock -n 9 || { say "another setup is running here; waiting for it"; flock 9; }
fi

# --- Debian packages -----------------------------------------------------------------------------

apt_log=.cache/apt.log

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }
may_install() { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }
known_to_apt() { [ -n "$(apt-cache policy "$1" 2>/dev/null | grep 'Candidate: [^(]')" ]; }

# Prints one line per entry of the sets: "PACKAGE [ALTERNATIVE...] [?]".
entries() {
  local set
  for set in "$@"; do
    sed -n "s/^$set: *//p" scripts/debian-packages.txt | tr -d '|'
  done
}

# Sets `missing` (an array of entries) from the entries on standard input.
find_missing() {
  local installed line name found
  installed=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' 2>/dev/null |
    sed -n 's/ installed$//p')
  missing=()
  while read -r line; do
    found=no
    for name in ${line%\?}; do
      if grep -qxF "$name" <<<"$installed"; then found=yes; fi
    done
    [ $found = yes ] || missing+=("$line")
  done
}

# Sets `wanted` to the package that answers each missing entry, and leaves out optional ones that apt
# does not know. `unknown` gets the entries that no package answers.
choose_packages() {
  local line name chosen
  wanted=() unknown=() skipped=()
  for line in "${missing[@]}"; do
    chosen=
    for name in ${line%\?}; do
      if known_to_apt "$name"; then chosen=$name; break; fi
    done
    if [ -n "$chosen" ]; then wanted+=("$chosen")
    elif [[ $line == *\? ]]; then skipped+=("${line%% *}")
    else unknown+=("${line%% *}"); fi
  done
}

apt_install() {
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q --no-install-recommends "$@" </dev/null >>"$apt_log" 2>&1
}

apt_update() {
  say "refreshing the package lists (apt-get update)"
  # One unreachable extra source must not stop the rest: what matters is whether the install succeeds.
  as_root apt-get update -q </dev/null >>"$apt_log" 2>&1 || say "apt-get update reported errors (in $apt_log); going on"
}

install_debian_packages() {
  if ! command -v dpkg-query >/dev/null; then
    say "not a Debian or Ubuntu machine: taking for granted what scripts/debian-packages.txt lists"
    return 0
  fi
  find_missing < <(entries "$@")
  [ ${#missing[@]} -gt 0 ] || return 0
  choose_packages
  local needed=$((${#wanted[@]} + ${#unknown[@]}))
  local skip_note=.cache/skipped-packages
  if [ $needed -eq 0 ] && [ "$(cat $skip_note 2>/dev/null)" = "${skipped[*]}" ]; then return 0; fi
  if ! may_install; then
    local required=()
    local line
    for line in "${missing[@]}"; do [[ $line == *\? ]] || required+=("${line%% *}"); done
    if [ ${#required[@]} -eq 0 ]; then
      [ $needed -eq 0 ] || say "going on without: ${wanted[*]} (to add: sudo apt-get install ${wanted[*]})"
      return 0
    fi
    echo "setup: Debian packages are missing, and this user is neither root nor may use sudo without" >&2
    echo "       a password. Run this, then the same command again:" >&2
    echo "         sudo apt-get update && sudo apt-get install --no-install-recommends ${wanted[*]} ${unknown[*]}" >&2
    exit 1
  fi
  if [ ${#unknown[@]} -gt 0 ] || [ ${#skipped[@]} -gt 0 ]; then
    apt_update
    choose_packages
  fi
  [ ${#unknown[@]} -eq 0 ] || fail "apt knows no package for: ${unknown[*]}"
  [ ${#skipped[@]} -eq 0 ] || say "not in this distribution, left out: ${skipped[*]}"
  echo "${skipped[*]}" >$skip_note
  [ ${#wanted[@]} -gt 0 ] || return 0
  say "installing Debian packages: ${wanted[*]}"
  if ! apt_install "${wanted[@]}"; then
    apt_update
    apt_install "${wanted[@]}" || {
      tail -n 20 "$apt_log" >&2
      fail "apt-get could not install: ${wanted[*]} (all it said: $apt_log)"
    }
  fi
}

# Puts the programs of a Debian package into .venv/bin without installing it: a service that it brings
# must not run on this machine. What cannot be had is left out.
unpack_programs() {
  local package=$1 folder=$PWD/.cache/$1 program
  if [ ! -x ".venv/bin/$package" ]; then
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 0
    say "unpacking the Debian package $package for the tests"
    rm -rf "$folder"
    mkdir -p "$folder"
    if ! (cd "$folder" && apt-get download -q "$package" && dpkg-deb -x ./*.deb .) </dev/null >>"$apt_log" 2>&1; then
      say "$package cannot be had: its tests are left out"
      return 0
    fi
    for program in "$folder"/usr/bin/*; do ln -sfn "$program" .venv/bin/; done
  fi
}

# --- Python --------------------------------------------------------------------------------------

# True if the command is a Python from 3.10 on with venv, pip and C headers.
fits() {
  "$1" - >/dev/null 2>&1 <<'PY'
import ensurepip, os, sys, sysconfig, venv
ok = sys.version_info >= (3, 10) and os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
sys.exit(0 if ok else 1)
PY
}

choose_python() {
  if [ -n "${HEADRACE_PYTHON:-}" ]; then
    fits "$HEADRACE_PYTHON" || fail "HEADRACE_PYTHON=$HEADRACE_PYTHON must be Python 3.10 or newer with venv and headers"
    echo "$HEADRACE_PYTHON"
    return 0
  fi
  local candidate
  for candidate in python3.13 python3.12 python3.11 python3.10 python3; do
    if fits "$candidate"; then echo "$candidate"; return 0; fi
  done
  fail "no Python from 3.10 on with venv and headers found (Debian: python3 python3-venv python3-dev)"
}

make_venv() {
  if [ -x .venv/bin/python ] && .venv/bin/python -c '' 2>/dev/null &&
    { [ -z "${HEADRACE_PYTHON:-}" ] || [ "$(cat .venv/made-with 2>/dev/null)" = "$HEADRACE_PYTHON" ]; }; then
    return 0
  fi
  local python
  python=$(choose_python)
  say "making .venv with $("$python" --version) ($python)"
  rm -rf .venv
  "$python" -m venv .venv
  echo "$python" >.venv/made-with
  link_package
}

# Lets .venv see the package in python/ and the program that the build puts there.
link_package() {
  local site
  site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  echo "$PWD/python" >"$site/headrace-development.pth"
  ln -sfn ../../python/headrace/bin/headrace .venv/bin/headrace
}

# Installs requirements/SET.txt unless that was done with the same files before.
install_python_packages() {
  local set=$1 file=requirements/$1.txt stamp=.venv/installed-$1 key
  [ -f "$file" ] || return 0
  key=$(cat requirements/*.txt scripts/setup.sh | sha256sum | cut -d' ' -f1)
  [ "$(cat "$stamp" 2>/dev/null)" != "$key $PWD" ] || return 0
  say "installing Python packages of $file into .venv"
  link_package
  .venv/bin/python -m pip install --no-input --disable-pip-version-check -q -r "$file" </dev/null
  echo "$key $PWD" >"$stamp"
}

sets=(build)
for set in "$@"; do
  case $set in
    build) ;;
    test | check | demo | wheel) sets+=("$set") ;;
    *) fail "no set named '$set': build test check demo wheel" ;;
  esac
done
install_debian_packages "${sets[@]}"
make_venv
# Every other file includes build.txt.
[ ${#sets[@]} -eq 1 ] || sets=("${sets[@]:1}")
for set in "${sets[@]}"; do install_python_packages "$set"; done
case " ${sets[*]} " in *" test "*) unpack_programs prometheus ;; esac
