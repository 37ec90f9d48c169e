"""What a process tree costs, read from /proc.

CPU seconds are user + system time of a process, of its live descendants, and of the descendants
already reaped by them: workers count whether or not they have ended. `getrusage(RUSAGE_CHILDREN)`
would miss workers that are still alive when a pass ends.

Memory is PSS: a page shared by n processes counts 1/n in each, so the sum over a tree counts it once.
"""

from __future__ import annotations

import os

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def _stat_fields(pid: str) -> list[bytes] | None:
    """The fields of /proc/PID/stat after the command name; None if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    return text[text.rindex(b")") + 2 :].split()


def process_tree(root: int | None = None) -> dict[int, float]:
    """CPU seconds so far of each process at and below `root` (default: this process), by its id."""
    children: dict[int, list[int]] = {}
    seconds: dict[int, float] = {}
    for name in os.listdir("/proc"):
        fields = _stat_fields(name) if name.isdigit() else None
        if fields is None:
            continue
        parent = int(fields[1])
        user, system, reaped_user, reaped_system = map(int, fields[11:15])
        children.setdefault(parent, []).append(int(name))
        seconds[int(name)] = (user + system + reaped_user + reaped_system) / TICKS_PER_SECOND
    tree: dict[int, float] = {}
    pending = [root or os.getpid()]
    while pending:
        pid = pending.pop()
        if pid in seconds:
            tree[pid] = seconds[pid]
            pending += children.get(pid, [])
    return tree


def tree_cpu_seconds(root: int | None = None) -> float:
    """CPU seconds so far of the whole process tree below `root` (default: this process)."""
    return sum(process_tree(root).values())


def tree_pss_bytes(root: int) -> int:
    """Proportional set size of the whole process tree below `root`."""
    total = 0
    for pid in process_tree(root):
        try:
            with open(f"/proc/{pid}/smaps_rollup") as file:
                for line in file:
                    if line.startswith("Pss:"):
                        total += int(line.split()[1]) * 1024
                        break
        except OSError:
            continue  # ended meanwhile
    return total


def machine_busy_seconds() -> float:
    """CPU seconds that all processes of the machine have used so far."""
    with open("/proc/stat") as file:
        user, nice, system, _idle, _iowait, irq, softirq, _steal = map(
            int, file.readline().split()[1:9]
        )
    return (user + nice + system + irq + softirq) / TICKS_PER_SECOND
