"""Shared file systems that are mounted by a FUSE client, several times if need be: as on several nodes.

What ceph.py and glusterfs.py have in common. Mounting needs root, CAP_SYS_ADMIN and /dev/fuse.
"""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import local

# No call that touches a mount waits longer: a mount whose server hangs blocks for minutes.
PATIENCE_SECONDS = 60


def obstacle(programs: Sequence[str], packages: str) -> str:
    """Return why no such file system can be mounted here, or an empty string."""
    return local.obstacle(
        programs, packages, capabilities=("CAP_SYS_ADMIN",), devices=("/dev/fuse",)
    )


def is_mounted(path: Path) -> bool:
    """Tell whether something is mounted there, without asking it."""
    place = str(path).replace(" ", "\\040")
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return any(line.split()[4] == place for line in lines)


@dataclass
class Mount:
    """A mount and the client behind it."""

    path: Path
    client: local.Daemon

    def break_off(self) -> None:
        """End the client by force. From now on each call below ``path`` fails."""
        self.client.kill()

    def unmount(self) -> None:
        """Take it away, also when it does not answer."""
        for command in (["umount", self.path], ["umount", "--lazy", self.path]):
            if not is_mounted(self.path):
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run(command, check=False, capture_output=True, timeout=PATIENCE_SECONDS)
        self.client.stop(5)


@dataclass
class SharedFileSystem:
    """A file system whose servers run."""

    name: str
    folder: Path  # for mount points and logs
    command: Callable[[Path], list[str | Path]]  # of a client in the foreground, by its mount point
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @contextlib.contextmanager
    def mounted(self) -> Iterator[Mount]:
        """Mount it once more; each mount has a client of its own, and so caches of its own."""
        name = f"mount-{next(self._numbers)}"
        path = self.folder / name
        path.mkdir()
        client = local.Daemon(name, self.command(path), self.folder / f"{name}.out")
        mount = Mount(path.resolve(), client)
        try:
            client.wait_for("its mount", lambda: is_mounted(mount.path))
            yield mount
        finally:
            mount.unmount()
