"""A link of a set rate, for tests: two network namespaces, a veth pair between them, and ``tc ... tbf``.

    with slow_link.running("100mbit") as link:
        with counting_proxy.running(server.endpoint, link.listen()) as proxy:
            subprocess.run(link.near(command))  # reaches proxy.endpoint at that rate, and nothing else

The namespaces have no name and end with the processes that hold them. Needs root with CAP_NET_ADMIN and
CAP_SYS_ADMIN, and the Debian packages iproute2 and util-linux.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import local

NEAR, FAR = "192.0.2.1", "192.0.2.2"  # addresses that are no one's; only these namespaces know them
CLONE_NEWNET = 0x40000000


def obstacle() -> str:
    """Return why there can be no such link here, or an empty string."""
    lacking = local.obstacle(
        ("ip", "tc", "unshare", "nsenter"),
        "iproute2 util-linux",
        capabilities=("CAP_NET_ADMIN", "CAP_SYS_ADMIN"),
    )
    if lacking:
        return lacking
    # A kernel without veth or tbf says so here.
    try:
        with running("1mbit"):
            return ""
    except RuntimeError as error:
        return str(error)


class SlowLink:
    """The two ends of a link."""

    def __init__(self, near: local.Daemon, far: local.Daemon) -> None:
        """Take the processes that hold the namespaces."""
        self._near, self._far = near.process.pid, far.process.pid

    def near(self, command: Sequence[str | Path]) -> list[str | Path]:
        """Return the command as it runs at the near end."""
        return ["nsenter", f"--net=/proc/{self._near}/ns/net", "--", *command]

    def far(self, command: Sequence[str | Path]) -> list[str | Path]:
        """Return the command as it runs at the far end."""
        return ["nsenter", f"--net=/proc/{self._far}/ns/net", "--", *command]

    def listen(self) -> socket.socket:
        """Return a socket bound at the far end, which this process can serve."""
        made: list[socket.socket] = []
        thread = threading.Thread(target=lambda: made.append(self._bind()))
        thread.start()  # only this thread enters the namespace, and it ends there
        thread.join()
        if not made:
            raise RuntimeError("no socket could be bound at the far end of the link")
        return made[0]

    def _bind(self) -> socket.socket:
        with open(f"/proc/{self._far}/ns/net") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        one = socket.socket()
        one.bind((FAR, 0))
        return one

    def set_up(self, rate: str) -> None:
        """Join the namespaces; what the far end sends has this rate ("100mbit")."""
        pair = ["near", "type", "veth", "peer", "name", "far", "netns", str(self._far)]
        self._call(self.near(["ip", "link", "add", *pair]))
        for end, name, address in ((self.near, "near", NEAR), (self.far, "far", FAR)):
            self._call(end(["ip", "addr", "add", f"{address}/30", "dev", name]))
            self._call(end(["ip", "link", "set", name, "up"]))
        shape = ["tbf", "rate", rate, "burst", "128kb", "latency", "300ms"]
        self._call(self.far(["tc", "qdisc", "add", "dev", "far", "root", *shape]))

    @staticmethod
    def _call(command: Sequence[str | Path]) -> None:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=local.CALL_SECONDS
        )
        if done.returncode != 0:
            words = " ".join(str(part) for part in command[3:])
            raise RuntimeError(f"{words}: {done.stderr.strip()}")


@contextlib.contextmanager
def running(rate: str) -> Iterator[SlowLink]:
    """Make a link, and take it away."""
    own = os.readlink("/proc/self/ns/net")

    def is_apart(holder: local.Daemon) -> bool:
        with contextlib.suppress(OSError):
            return os.readlink(f"/proc/{holder.process.pid}/ns/net") != own
        return False

    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-link-")))
        ends = []
        for name in ("near", "far"):
            hold = ["unshare", "--net", "sleep", "infinity"]
            holder = local.Daemon(name, hold, folder / name)
            stack.callback(holder.kill)
            holder.wait_for("its namespace", lambda: is_apart(holder))  # noqa: B023
            ends.append(holder)
        link = SlowLink(*ends)
        link.set_up(rate)
        yield link
