"""Starts the training program as a user would, watches its log, and kills it without warning."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "peers"))
from accounting import process_tree

REPOSITORY = Path(__file__).resolve().parents[2]
TRAIN = REPOSITORY / "examples" / "train.py"
POLL_SECONDS = 0.01
HELPER = b"headrace.checkpoint.helper"  # the module that a checkpoint helper runs


class AttemptError(Exception):
    """The training program failed, or ended before it was to be killed."""


@dataclass(frozen=True)
class Training:
    """What is the same in all attempts of all runs."""

    dataset: Path
    num_classes: int
    global_batch_size: int
    image_size: int
    epochs: int
    checkpoint_every: int
    seed: int
    batches_per_epoch: int

    @property
    def total(self) -> int:
        return self.epochs * self.batches_per_epoch

    def command(self, world: int, checkpoints: Path, log: Path) -> list[str]:
        return [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node", str(world), str(TRAIN), str(self.dataset)),
            *("--checkpoints", str(checkpoints), "--checkpoint-every", str(self.checkpoint_every)),
            *("--epochs", str(self.epochs), "--global-batch-size", str(self.global_batch_size)),
            *("--image-size", str(self.image_size), "--classes", str(self.num_classes)),
            *("--seed", str(self.seed), "--journal", str(log)),
        ]


def environment() -> dict[str, str]:
    """One computing thread a process, and all talk over the loopback device."""
    settings = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    return {**os.environ, **settings}


def batches_done(log: Path, world: int, batches_per_epoch: int) -> int:
    """Global batches behind the run according to the newest whole line of its slowest rank."""
    done = []
    for rank in range(world):
        try:
            lines = (log / f"rank-{rank}-of-{world}.jsonl").read_bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            return 0
        if not lines:
            return 0
        epoch, batch = (int(part.split(b":")[1]) for part in lines[-1].split(b",")[:2])
        done.append(epoch * batches_per_epoch + batch + 1)
    return min(done)


def arguments_of(pid: int) -> list[bytes]:
    """The command line of a process; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def kill(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def kill_tree(root: int) -> int:
    """SIGKILL a process and all below it but checkpoint helpers; returns how many there were.

    torchrun gives each worker a process group of its own, so killing torchrun's would spare them. The
    helpers are what such a death leaves: a scheduler that kills all would kill them, too.
    """
    family = [pid for pid in process_tree(root) if HELPER not in arguments_of(pid)]
    kill(family)
    return len(family)


def helpers(below: Path) -> list[int]:
    """The checkpoint helpers of all stores below a folder, whoever started them."""
    inside = os.fsencode(os.path.abspath(below)) + b"/"
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    commands = {pid: arguments_of(pid) for pid in pids}
    return [
        pid
        for pid, command in commands.items()
        if HELPER in command and any(part.startswith(inside) for part in command)
    ]


def end_helpers(below: Path) -> None:
    """SIGKILL the checkpoint helpers of all stores below a folder, and wait for their end."""
    kill(helpers(below))
    while helpers(below):
        time.sleep(POLL_SECONDS)


def attempt(
    training: Training,
    world: int,
    checkpoints: Path,
    log: Path,
    kill_after: int | None,
    report: Callable[[int], None],
) -> int:
    """Run the training program until its end, or until `kill_after` global batches are done.

    Returns the number of processes killed. Calls `report` with the number of batches done so far.
    Raises AttemptError with the end of the program's output if it fails or is not there to be killed.
    """
    output = log.with_suffix(".out")
    log.mkdir(parents=True)
    with open(output, "wb") as file:
        program = subprocess.Popen(
            training.command(world, checkpoints, log), stdout=file, stderr=file, env=environment()
        )
    killed = 0
    try:
        while program.poll() is None:
            done = batches_done(log, world, training.batches_per_epoch)
            report(done)
            if kill_after is not None and done >= kill_after:
                killed = kill_tree(program.pid)
                break
            time.sleep(POLL_SECONDS)
    except BaseException:
        kill_tree(program.pid)
        raise
    finally:
        program.wait()
    if killed == 0 and (program.returncode != 0 or kill_after is not None):
        end = "\n".join(output.read_text(errors="replace").splitlines()[-25:])
        raise AttemptError(
            f"expected the training program to {'be killed' if kill_after else 'end well'}, found that it "
            f"ended with exit code {program.returncode}. The end of {output}:\n{end}"
        )
    report(batches_done(log, world, training.batches_per_epoch))
    return killed
