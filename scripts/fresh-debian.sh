#!/usr/bin/env bash
# Runs make targets in an empty Debian, as a new user would meet them: that nothing is missing from the
# set-up, and how long it takes. Needs root and the package debootstrap.
#
#   scripts/fresh-debian.sh [OPTIONS] [bookworm|trixie]
#     --run COMMAND   what to run in the checkout; may be given several times
#                     (default: "make demo", then "make test")
#     --bind PATH     show a file or folder of this machine there too, read-only, at the same place
#     --env NAME      pass an environment variable on
#     --keep          keep the Debian root and say where it is
#
# What is committed is tested: the checkout is cloned. Where this machine reaches its package registries
# through a proxy, a mirror or its own certificates, --bind and --env pass those settings on, e.g.
#   scripts/fresh-debian.sh --bind /etc/ssl/certs --bind /etc/pip.conf --env https_proxy bookworm
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "fresh-debian: $*" >&2; exit 1; }
say() { echo "fresh-debian: $*"; }

# In the new mount and process namespace: everything mounted or started here ends with it.
inside() {
  local root=$1 command path started status
  mount --make-rprivate /
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  mount --rbind -o ro /sys "$root/sys"
  for path in "${binds[@]}"; do
    if [ -d "$path" ]; then mkdir -p "$root$path"; else mkdir -p "$root$(dirname "$path")" && touch "$root$path"; fi
    mount --rbind "$path" "$root$path"
    mount -o remount,bind,ro "$root$path" 2>/dev/null || true
  done
  local pass=() name
  for name in "${variables[@]}"; do [ -z "${!name+set}" ] || pass+=("$name=${!name}"); done
  status=0
  for command in "${commands[@]}"; do
    started=$SECONDS
    say "running: $command"
    chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
      LANG=C.UTF-8 TERM="${TERM:-dumb}" "${pass[@]}" bash -c "cd /root/headrace && $command" </dev/null || status=$?
    say "$command: $([ $status = 0 ] && echo ok || echo "FAILED ($status)"), $((SECONDS - started)) s"
    [ $status = 0 ] || break
  done
  return $status
}

suite=bookworm keep=no commands=() binds=() variables=()
while [ $# -gt 0 ]; do
  case $1 in
    --run) commands+=("${2:?--run needs a command}"); shift ;;
    --bind) binds+=("$(realpath -e "${2:?--bind needs a path}")"); shift ;;
    --env) variables+=("${2:?--env needs a name}"); shift ;;
    --keep) keep=yes ;;
    --inside) inside_root=$2; shift ;;
    bookworm | trixie) suite=$1 ;;
    *) fail "unknown argument '$1'; see the head of $0" ;;
  esac
  shift
done
[ ${#commands[@]} -gt 0 ] || commands=("make demo" "make test")
if [ -n "${inside_root:-}" ]; then inside "$inside_root"; exit; fi

[ "$(id -u)" = 0 ] || fail "needs root (it makes a root file system and mounts)"
command -v debootstrap >/dev/null || fail "needs debootstrap: apt-get install debootstrap"
root=$(mktemp -d --tmpdir headrace-debian.XXXXXX)
chmod 755 "$root"
clean_up() {
  if [ $keep = yes ]; then say "kept: $root"; return; fi
  if findmnt -rno TARGET | grep -qF "$root"; then say "still mounted, not removed: $root"; return; fi
  rm -rf --one-file-system "$root"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

say "installing Debian $suite into $root"
# With what a user needs to get this far: git and make.
debootstrap --variant=minbase --include=ca-certificates,git,make "$suite" "$root" >"$root.log" 2>&1 ||
  { tail -n 20 "$root.log" >&2; fail "debootstrap failed; its log: $root.log"; }
rm -f "$root.log"
git clone -q --no-hardlinks . "$root/root/headrace"
# Names are resolved as on this machine.
for file in /etc/resolv.conf /etc/hosts; do cat $file >"$root$file"; done
say "ready after $SECONDS s, $(du -sm "$root" | cut -f1) MB"

again=(--inside "$root")
for one in "${commands[@]}"; do again+=(--run "$one"); done
for one in "${binds[@]}"; do again+=(--bind "$one"); done
for one in "${variables[@]}"; do again+=(--env "$one"); done
unshare --mount --pid --fork --kill-child bash scripts/fresh-debian.sh "${again[@]}"
