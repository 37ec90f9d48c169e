#!/usr/bin/env python3
"""The demo: train on photographs, kill it twice, resume with other numbers of processes, check the order.

    make demo      or      .venv/bin/python examples/demo/run.py [--photos FOLDER] [--work FOLDER] ...

Says what it does and asks nothing. Ends with 1 if the order was not the same to the last sample.
Everything it makes lies in one folder (.demo); it can be run again at any time.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from attempt import REPOSITORY, AttemptError, Training, attempt, end_helpers
from comparison import Comparison, ContenderError, compare
from picture import draw
from saves import Saves, read_saves, stalls_in_words
from stall import of_attempt, of_pass
from stream import Attempt, Run, StreamError, first_difference, join, read_attempt
from terminal import Steps, line_chart, share_chart, table

sys.path.insert(0, str(REPOSITORY / "examples"))
import photos as photographs

HEADRACE = Path(sys.executable).parent / "headrace"
SEED = 1
REFERENCE_WORLD = 2
STALL_CELLS = 40  # of a line of blocks


@dataclass(frozen=True)
class Leg:
    """One attempt of the run that is killed: its processes, and where in which epoch the end comes."""

    world: int
    epoch: int = 0
    share: float | None = None  # of the epoch's batches; None = not killed

    def kill_after(self, training: Training) -> int | None:
        """Global batches after which to kill: half-way between two checkpoints, in mid-epoch."""
        if self.share is None:
            return None
        every = training.checkpoint_every
        checkpoints = max(1, int(self.share * training.batches_per_epoch) // every)
        return self.epoch * training.batches_per_epoch + checkpoints * every + every // 2


LEGS = (Leg(2, 0, 0.62), Leg(1, 1, 0.42), Leg(3))


class DemoError(Exception):
    """The demo cannot go on. The message says why and what to do."""


class Demo:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.work: Path = args.work
        self.photos: Path = args.photos or self.work / "photos"
        self.dataset = self.work / "photos.hr"
        self.steps = Steps(7 if args.repeats else 6)

    def run(self) -> int:
        self.cut()
        training = self.pack()
        try:
            reference = self.train_reference(training)
            attempts, saves, run = self.train_and_kill(training)
        finally:
            end_helpers(self.work)  # those of a run that failed; the others have ended
        verdict = self.check(training, reference, run)
        compared = self.compare() if self.args.repeats else None
        self.show(training, reference, attempts, saves, run, compared)
        print(f"\n{verdict[1]}")
        return verdict[0]

    def cut(self) -> None:
        if self.args.photos:
            self.steps.begin(f"Take the photographs in {self.photos}")
        else:
            self.steps.begin(
                f"Cut {self.args.images:,} JPEGs of about 500 x 375 out of large photographs"
            )
            self.steps.say("The label of each is the photograph that it comes from.")
            made = photographs.make(
                self.photos,
                self.args.images,
                report=lambda done, total: self.steps.progress("photographs", done, total),
            )
            kb = made["bytes"] / made["count"] / 1e3
            self.steps.say(f"{made['count']:,} images of {kb:.0f} kB, {len(made['labels'])} labels")
        self.steps.end()

    def pack(self) -> Training:
        self.steps.begin("Pack them into shards: tar files with an index beside each")
        shutil.rmtree(self.dataset, ignore_errors=True)
        command = ["pack", str(self.photos), str(self.dataset)]
        command += ["--shard-size", self.args.shard_size, "--shuffle", "1"]
        self.steps.say("$ headrace " + " ".join(command))
        self.steps.say(headrace(command).strip())
        import headrace as package

        samples = len(package.open(self.dataset))
        args = self.args
        training = Training(
            dataset=self.dataset,
            num_classes=sum(entry.is_dir() for entry in self.photos.iterdir()),
            global_batch_size=args.global_batch_size,
            image_size=args.image_size,
            epochs=args.epochs,
            checkpoint_every=args.checkpoint_every,
            seed=SEED,
            batches_per_epoch=samples // args.global_batch_size,
        )
        checkpoints = training.batches_per_epoch // training.checkpoint_every
        if checkpoints < 2 or training.epochs < 2:
            raise DemoError(
                "expected at least 2 epochs and 2 checkpoints in each, found "
                f"{training.epochs} and {checkpoints}: give more images, or a smaller --global-batch-size "
                "or --checkpoint-every"
            )
        self.steps.end()
        return training

    def train_reference(self, training: Training) -> Run:
        self.steps.begin(
            f"Train a small CNN, {REFERENCE_WORLD} processes under torchrun, never stopped"
        )
        self.steps.say(
            f"{training.epochs} epochs of {training.batches_per_epoch} global batches of "
            f"{training.global_batch_size} images, {training.image_size} x {training.image_size}"
        )
        folder = self.fresh_folder("reference")
        self.train(training, REFERENCE_WORLD, folder, 0, None)
        whole = read_attempt(folder / "log-1", training.batches_per_epoch)
        reference = join([whole], training.total)
        self.steps.say(losses_in_words(reference))
        self.steps.end()
        return reference

    def train_and_kill(self, training: Training) -> tuple[list[Attempt], list[Saves], Run]:
        worlds = ", then ".join(str(leg.world) for leg in LEGS)
        self.steps.begin(f"Train the same again, but kill it twice: {worlds} processes")
        folder = self.fresh_folder("killed")
        attempts, saves = [], []
        for index, leg in enumerate(LEGS):
            killed = self.train(training, leg.world, folder, index, leg.kill_after(training))
            log = read_attempt(folder / f"log-{index + 1}", training.batches_per_epoch)
            attempts.append(log)
            saves.append(read_saves(folder / f"log-{index + 1}"))
            processes = "1 process" if leg.world == 1 else f"{leg.world} processes"
            begin, end = place(log.start, training), place(max(log.whole), training)
            self.steps.say(f"{'resumed' if index else 'started'} with {processes} at {begin}")
            restored = saves[-1].restored
            if restored:
                self.steps.say(f"  {restored.in_words}")
            self.steps.say(
                f"  SIGKILL to torchrun and its workers after {end}"
                if killed
                else f"  ended with {end}"
            )
        run = join(attempts, training.total)
        self.steps.say(
            f"{run.redone} batches were done twice: those between a checkpoint and a kill"
        )
        self.steps.say(stalls_in_words(saves))
        self.steps.say(losses_in_words(run))
        self.steps.end()
        return attempts, saves, run

    def train(
        self, training: Training, world: int, folder: Path, index: int, kill_after: int | None
    ) -> int:
        return attempt(
            training,
            world,
            folder / "checkpoints",
            folder / f"log-{index + 1}",
            kill_after,
            lambda done: self.steps.progress("global batches", done, training.total),
        )

    def check(self, training: Training, reference: Run, run: Run) -> tuple[int, str]:
        """Compare the killed run's stream with the program's and the reference's: (exit code, verdict)."""
        self.steps.begin("Check: the sample ids that the training state saw, over all processes")
        expected: list[list[str]] = []
        for epoch in range(training.epochs):
            command = ["order", str(self.dataset), "--seed", str(training.seed)]
            command += [
                "--epoch",
                str(epoch),
                "--global-batch-size",
                str(training.global_batch_size),
            ]
            self.steps.say("$ headrace " + " ".join(command))
            expected += [line.split("\t") for line in headrace(command).splitlines()]
        against = {
            "what headrace order prints": first_difference(run.keys, expected),
            "the run that was never stopped": first_difference(run.keys, reference.keys),
        }
        for other, difference in against.items():
            self.steps.say(f"against {other}: {difference or 'equal to the last id'}")
        self.steps.end()
        samples = sum(map(len, run.keys))
        distinct = len({key for keys in run.keys for key in keys})
        if any(against.values()):
            return 1, "DIFFERENT ORDER: see the differences in the step that checks"
        first, *others = (str(leg.world) for leg in LEGS)
        return 0, (
            f"SAME ORDER: {samples:,} of {samples:,} sample ids ({distinct:,} images, {len(run.keys):,} "
            f"global batches);\n{first} processes, killed {len(others)} times, resumed with "
            f"{' and '.join(others)}"
        )

    def compare(self) -> Comparison | None:
        self.steps.begin("Compare with PyTorch's DataLoader: the same images, 224 x 224 float32")
        self.steps.say(
            "Random crop, resize, flip, normalize. First as fast as each goes, then in front of an\n"
            "emulated accelerator: the consumer sleeps for its computing time. In turns, medians."
        )
        try:
            compared = compare(
                self.photos,
                self.dataset,
                self.args.repeats,
                lambda done, total: self.steps.progress("passes", done, total),
            )
        except ContenderError as error:
            self.steps.say(f"left out: {error}")
            return None
        self.steps.end()
        return compared

    def show(
        self,
        training: Training,
        reference: Run,
        attempts: list[Attempt],
        saves: list[Saves],
        run: Run,
        compared: Comparison | None,
    ) -> None:
        self.steps.begin("The result")
        kills = [max(a.whole) / training.total for a in attempts[:-1]]
        below = f"global batch 0 to {training.total - 1}; ↑ killed and resumed"
        self.steps.say("\nLoss\n" + line_chart([b.loss for b in run.batches], 8, below, kills))
        self.steps.say("\nInput stall over time (a full block: nothing but waiting)")
        stalls = [of_attempt(attempt) for attempt in attempts]
        seconds = sum(stall.seconds for stall in stalls)
        cells = [max(1, round(STALL_CELLS * stall.seconds / seconds)) for stall in stalls]
        shares = [s for stall, n in zip(stalls, cells, strict=True) for s in stall.shares(n)]
        self.steps.say(share_chart("the training above", shares, f"{seconds:.1f} s"))
        if compared:
            self.show_comparison(compared)
        picture, figures = self.work / "run.png", self.work / "result.json"
        draw(picture, reference, attempts, saves, compared)
        figures.write_text(json.dumps(result(reference, saves, run, compared), indent=1) + "\n")
        self.steps.say(f"\npicture {picture}, figures {figures}, journals {self.work}/*/log-*")

    def show_comparison(self, compared: Comparison) -> None:
        stalls = [of_pass(loader.paced[-1]) for loader in compared.loaders]
        longest = max(stall.seconds for stall in stalls)
        for loader, stall in zip(compared.loaders, stalls, strict=True):
            cells = max(1, round(STALL_CELLS * stall.seconds / longest))
            self.steps.say(share_chart(loader.name, stall.shares(cells), f"{stall.seconds:.1f} s"))
        self.steps.say("\n" + table(compared.rows()))
        self.steps.say(
            f"Medians of {compared.repeats} passes in turns, batches of {compared.batch_size}, warm files.\n"
            "CPU-seconds count the whole process tree. Stall and AU (computing / total\n"
            f"time) are those at an accelerator of {compared.rate:,.0f} images/s."
        )

    def fresh_folder(self, name: str) -> Path:
        folder = self.work / name
        end_helpers(folder)  # of a demo that was itself killed
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder


def result(reference: Run, saves: list[Saves], run: Run, compared: Comparison | None) -> dict:
    """What result.json holds."""
    return {
        "samples": sum(map(len, run.keys)),
        "redone_batches": run.redone,
        "loss": [batch.loss for batch in run.batches],
        "reference_loss": [batch.loss for batch in reference.batches],
        "save_stall_seconds": [seconds for attempt in saves for seconds in attempt.stalls],
        "restores": [asdict(attempt.restored) for attempt in saves if attempt.restored],
        "comparison": compared and compared.figures(),
    }


def headrace(arguments: list[str]) -> str:
    """Run the program `headrace`; returns what it prints. Its progress goes to the terminal."""
    done = subprocess.run([str(HEADRACE), *arguments], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise DemoError(
            f"headrace {arguments[0]} ended with exit code {done.returncode}; see above"
        )
    return done.stdout


def place(number: int, training: Training) -> str:
    epoch, batch = divmod(number, training.batches_per_epoch)
    return f"batch {batch} of epoch {epoch}"


def losses_in_words(run: Run) -> str:
    losses = [batch.loss for batch in run.batches]
    share = max(1, len(losses) // 10)
    first, last = sum(losses[:share]) / share, sum(losses[-share:]) / share
    return f"loss {first:.3f} over the first {share} batches, {last:.3f} over the last {share}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--work", type=Path, default=Path(".demo"), help="where everything goes (.demo)"
    )
    parser.add_argument("--photos", type=Path, help="JPEGs of your own, in one sub-folder a class")
    parser.add_argument("--images", type=int, default=2400, help="how many to cut (2,400)")
    parser.add_argument("--shard-size", default="8MiB", help="of a shard (8MiB)")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--global-batch-size", type=int, default=48)
    parser.add_argument(
        "--image-size", type=int, default=96, help="pixels on a side in training (96)"
    )
    parser.add_argument("--checkpoint-every", type=int, default=10, help="batches")
    parser.add_argument("--repeats", type=int, default=3, help="of the comparison; 0 leaves it out")
    return parser.parse_args()


def main() -> int:
    began = time.monotonic()
    args = arguments()
    args.work.mkdir(parents=True, exist_ok=True)
    try:
        code = Demo(args).run()
    except KeyboardInterrupt:
        print("\ndemo: stopped; run it again at any time", file=sys.stderr)
        return 130
    except (DemoError, AttemptError, StreamError, photographs.PhotosError) as error:
        print(f"\ndemo: {error}", file=sys.stderr)
        return 1
    print(f"The demo took {time.monotonic() - began:.0f} s.")
    return code


if __name__ == "__main__":
    sys.exit(main())
