"""The limits of the machine, measured in the same run: copy, CRC32C, disk, bare decode, the floor."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from pathlib import Path

from contenders import BENCH
from harness import run_program

FLOOR = BENCH / "floor"
TIMEOUT_S = 120

# name in the results -> arguments of headrace_floor: mode, threads
FLOOR_MODES = {
    "floor float32": ("train-float32", 1),
    "floor float32, two at once": ("train-float32", 2),
    "floor uint8": ("train-uint8", 1),
    "floor uint8, two at once": ("train-uint8", 2),
    "decode of the crop": ("decode-region", 1),
    "decode of the whole image": ("decode-full", 1),
}
RATES = ("copy", "crc32c", "disk")


def build_floor() -> Path:
    """Build bench/floor if it has changed; returns the program."""
    build = FLOOR / "build"
    commands = (
        ["cmake", "-S", str(FLOOR), "-B", str(build), "-DCMAKE_BUILD_TYPE=Release"],
        ["cmake", "--build", str(build)],
    )
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(
                f"the floor could not be built: {done.stdout[-500:]}{done.stderr[-500:]}"
            )
    return build / "headrace_floor"


def measure_floor(program: Path, name: str, file_list: Path, seconds: float) -> dict:
    """One of FLOOR_MODES."""
    mode, threads = FLOOR_MODES[name]
    command = [str(program), mode, str(file_list), str(seconds), str(threads)]
    return run_program(command, TIMEOUT_S)


def measure_rate(program: Path, name: str, folder: Path, seconds: float) -> dict:
    """One of RATES, in GB/s. The disk is measured by fio where it is installed."""
    if name == "disk" and shutil.which("fio"):
        return {"gb_per_s": disk_by_fio(folder, seconds), "tool": "fio"}
    return run_program([str(program), name, str(folder), str(seconds)], TIMEOUT_S)


def disk_by_fio(folder: Path, seconds: float) -> float:
    """Sequential direct writes of 1 MiB, four in flight, in GB/s."""
    target = folder / "fio.tmp"
    command = [
        "fio",
        "--name=write",
        f"--filename={target}",
        "--rw=write",
        "--bs=1M",
        "--size=1G",
        "--direct=1",
        "--ioengine=libaio",
        "--iodepth=4",
        "--end_fsync=1",
        "--time_based",
        f"--runtime={max(1, round(seconds))}",
        "--output-format=json",
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S
        )
        report = json.loads(done.stdout[done.stdout.index("{") :])
        return report["jobs"][0]["write"]["bw_bytes"] / 1e9
    finally:
        target.unlink(missing_ok=True)


def describe_machine() -> dict:
    """What kind of machine this is, without its name."""
    model = ""
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return {
        "processor": model or platform.machine(),
        "architecture": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": platform.freedesktop_os_release().get("PRETTY_NAME", platform.system()),
        "kernel": platform.release(),
    }
