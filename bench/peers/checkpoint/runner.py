"""One contender in a process of its own: runner.py VERB NAME --state dense --folder F ...

speed   saves twice and more (the first and the steady ones), restores cold and warm; checks all bits
faults  saves, then flips bits and blanks blocks in copies of the files: who notices?
once    saves one version of the state (for a kill in the midst of it)
which   says which version a folder holds

Prints JSON lines as protocol.py does.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import savers
import states
import torch
from accounting import machine_busy_seconds, tree_cpu_seconds

FLIPS = 24  # places in each of the two largest files


def say(**message: object) -> None:
    print(json.dumps(message), flush=True)


def resident_bytes(field: str) -> int:
    """VmRSS: of this process now. VmHWM: at most, since the peak was forgotten."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return 0


def forget_peak() -> int:
    """Let the kernel remember the peak of the memory anew; bytes resident now."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return resident_bytes("VmRSS")


def sync_tree(folder: Path) -> None:
    """What durable means, whoever wrote it: each file and each folder."""
    for path in [folder.parent, folder, *folder.rglob("*")]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def forget(folder: Path) -> None:
    """Drop the files from the page cache."""
    sync_tree(folder)
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def remember(folder: Path) -> None:
    """Bring the files into the page cache, also those that went around it."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.read(1 << 20):
                    pass


def measured(work: Callable[[], object]) -> dict:
    """Seconds and CPU of a call; `machine` counts helpers that are not this process's children."""
    cpu, machine, start = tree_cpu_seconds(), machine_busy_seconds(), time.perf_counter()
    work()
    return {
        "s": time.perf_counter() - start,
        "cpu_s": tree_cpu_seconds() - cpu,
        "machine_cpu_s": machine_busy_seconds() - machine,
    }


def save_once(saver: savers.Saver, state: savers.State, folder: Path, step: int) -> dict:
    """One timed save: stall, end, durable."""
    marks: list[float] = []

    def work() -> None:
        start = time.perf_counter()
        wait = saver.save(state, folder, step)
        marks.append(time.perf_counter() - start)
        if wait is not None:
            wait()
        marks.append(time.perf_counter() - start)
        sync_tree(folder)

    whole = measured(work)
    return {"stall_s": marks[0], "ended_s": marks[1], "durable_s": whole.pop("s"), **whole}


def speed(args: argparse.Namespace) -> dict:
    saver = savers.make(args.name)
    state = states.make(args.state)
    into = states.empty(args.state)
    result: dict = {"bytes": states.size_of(args.state), "saves": [], "restores": []}
    folder = args.folder
    warm_up(saver, args)
    before = forget_peak()
    if saver.saves:
        if isinstance(saver, savers.Headrace):
            saver.take_memory(state, folder / "store")
        for step in range(args.saves):
            states.change(state, step)
            target = folder / ("store" if saver.store else f"save{step}")
            target.mkdir(parents=True, exist_ok=True)
            os.sync()
            result["saves"].append(save_once(saver, state, target, step))
            if isinstance(saver, savers.Headrace):
                saver.tidy(target)
            elif step > 0:
                shutil.rmtree(folder / f"save{step - 1}")
        # Helper processes are not counted; none of the contenders has one.
        result["more_mb"] = (resident_bytes("VmHWM") - before) / 1e6
        result["file_bytes"] = sum(p.stat().st_size for p in target.rglob("*") if p.is_file())
    else:
        target = args.fixture
        for step in range(args.saves):
            states.change(state, step)  # as the fixture's writer has
    if saver.restores:
        for cold in (True, False):
            (forget if cold else remember)(target)
            restored = measured(lambda: saver.restore(target, into))
            result["restores"].append({"cold": cold, **restored})
        result["wrong"] = states.differing(into, state)
    if args.keep:
        shutil.rmtree(args.keep, ignore_errors=True)
        shutil.move(target, args.keep)
    saver.close()
    return result


def warm_up(saver: savers.Saver, args: argparse.Namespace) -> None:
    """A tiny save and restore: imports and threads that come at the first use are not timed."""
    folder = args.folder / "warm-up"
    folder.mkdir(parents=True, exist_ok=True)
    state = states.make("tiny")
    if saver.saves:
        if not isinstance(saver, savers.Copy):
            wait = saver.save(state, folder, 0)
            if wait is not None:
                wait()
            if saver.restores:
                saver.restore(folder, state)
    else:
        savers_of = savers.make(saver.reads)
        savers_of.save(state, folder, 0)
        saver.restore(folder, state)
    if isinstance(saver, savers.Headrace):
        saver.close()
    shutil.rmtree(folder)


# ---- faults ----


def damages(folder: Path) -> list[tuple[Path, int, str]]:
    """Places in the largest files: a bit to flip, or a block to blank."""
    files = sorted((p for p in folder.rglob("*") if p.is_file()), key=lambda p: -p.stat().st_size)
    places = []
    for path in files[:2]:
        size = path.stat().st_size
        if size < 65536:
            continue
        for turn in range(FLIPS):
            # Behind the headers, in tensors' bytes.
            places.append((path, size // 4 + turn * (size // 2) // FLIPS, "bit"))
        places.append((path, size // 2 // 4096 * 4096, "block"))
    return places


def damage(path: Path, offset: int, kind: str) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        old = file.read(1 if kind == "bit" else 4096)
        file.seek(offset)
        file.write(bytes([old[0] ^ 8]) if kind == "bit" else bytes(len(old)))


def faults(args: argparse.Namespace) -> dict:
    """How many damages were noticed, did no harm, or gave wrong tensors without a word."""
    state = states.make(args.state)
    whole = args.folder / "whole"
    whole.mkdir(parents=True)
    saver = savers.make(args.name)
    writer = saver if saver.saves else savers.make(saver.reads)
    wait = writer.save(state, whole, 1)
    if wait is not None:
        wait()
    writer.close()
    counts = {"tried": 0, "noticed": 0, "harmless": 0, "silent": 0}
    for path, offset, kind in damages(whole):
        copy = args.folder / f"copy{counts['tried']}"
        shutil.copytree(whole, copy)
        damage(copy / path.relative_to(whole), offset, kind)
        counts["tried"] += 1
        into = states.empty(args.state)
        reader = savers.make(args.name)
        try:
            reader.restore(copy, into)
            counts["silent" if states.differing(into, state) else "harmless"] += 1
        except Exception:
            counts["noticed"] += 1
        shutil.rmtree(copy)
    return counts


# ---- a kill in the midst of a save ----


def once(args: argparse.Namespace) -> dict:
    """Save one version; "saving" is said just before, so that the harness can kill."""
    saver = savers.make(args.name)
    state = states.make(args.state, args.version)
    warm_up(saver, argparse.Namespace(folder=args.folder.parent / f"w{os.getpid()}"))
    args.folder.mkdir(parents=True, exist_ok=True)
    say(event="saving")
    result = save_once(saver, state, args.folder, args.version)
    saver.close()
    return result


def which(args: argparse.Namespace) -> dict:
    """The version that comes back: old, new, mixed, or none."""
    saver = savers.make(args.name)
    into = states.empty(args.state)
    try:
        saver.restore(args.folder, into)
    except Exception as error:
        return {"found": "none", "error": f"{type(error).__name__}: {error}"[:200]}
    for version, name in ((1, "old"), (2, "new")):
        if states.differing(into, states.make(args.state, version)) == 0:
            return {"found": name}
    return {"found": "mixed"}


VERBS = {"speed": speed, "faults": faults, "once": once, "which": which}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verb", choices=VERBS)
    parser.add_argument("name", choices=savers.SAVERS)
    parser.add_argument("--state", default="dense")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--saves", type=int, default=3)
    parser.add_argument("--fixture", type=Path, help="what a contender restores that saves nothing")
    parser.add_argument("--keep", type=Path, help="leave the last checkpoint there")
    parser.add_argument("--version", type=int, default=1)
    parser.add_argument("--try", dest="only_try", action="store_true", help="can it be imported?")
    args = parser.parse_args()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    if args.only_try:
        savers.make(args.name)
        say(result={})
    else:
        say(result=VERBS[args.verb](args))
    sys.stdout.flush()
    os._exit(0)  # some leave threads behind that never end


if __name__ == "__main__":
    main()
