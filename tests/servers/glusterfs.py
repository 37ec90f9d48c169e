"""GlusterFS on 127.0.0.1, for tests: ``with glusterfs.file_system(folder) as fs, fs.mounted() as mount``.

Two bricks (folders, each behind a server of its own) over which files are spread. No glusterd: the
graphs of servers and clients are written here, so that all state lies below the folder. Mounting needs
root. Debian package: glusterfs-client (which brings the server's program too).
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import fuse_mount
import local

PROGRAMS = ("glusterfs", "glusterfsd")
BRICKS = 2

SERVER = """
volume posix
  type storage/posix
  option directory {folder}
end-volume
volume locks
  type features/locks
  subvolumes posix
end-volume
volume brick
  type performance/io-threads
  subvolumes locks
end-volume
volume server
  type protocol/server
  option transport-type tcp
  option transport.socket.bind-address 127.0.0.1
  option transport.socket.listen-port {port}
  option rpc-auth-allow-insecure on
  option auth-path brick
  option auth.addr.brick.allow 127.0.0.1
  subvolumes brick
end-volume
"""
CLIENT = """
volume client{number}
  type protocol/client
  option transport-type tcp
  option remote-host 127.0.0.1
  option remote-port {port}
  option remote-subvolume brick
end-volume
"""
# Without caches of contents: what one node has written, another one sees.
SPREAD = """
volume spread
  type cluster/distribute
  subvolumes {clients}
end-volume
volume write-behind
  type performance/write-behind
  subvolumes spread
end-volume
"""


def file_system_obstacle() -> str:
    """Return why the file system cannot be mounted here, or an empty string."""
    return fuse_mount.obstacle(PROGRAMS, "glusterfs-client")


def _start_brick(folder: Path, number: int, port: int) -> local.Daemon:
    brick = folder / f"brick{number}"
    brick.mkdir()
    graph = folder / f"brick{number}.vol"
    graph.write_text(SERVER.format(folder=brick, port=port))
    log = folder / f"brick{number}.log"
    command = ["glusterfsd", "-N", "-f", graph, "-l", log, "-p", folder / f"brick{number}.pid"]
    server = local.Daemon(f"glusterfsd {number}", command, log)
    return server


@contextlib.contextmanager
def file_system(folder: Path, remember_seconds: int = 0) -> Iterator[fuse_mount.SharedFileSystem]:
    """Start servers whose data lie in the empty ``folder``, and stop them in the end.

    A mount remembers so long what names stand for; other file systems do so for a second or more.
    """
    if obstacle := file_system_obstacle():
        raise RuntimeError(obstacle)
    folder.mkdir(parents=True, exist_ok=True)
    ports = local.free_ports(BRICKS)
    graph = folder / "client.vol"
    clients = [CLIENT.format(number=number, port=port) for number, port in enumerate(ports)]
    names = " ".join(f"client{number}" for number in range(BRICKS))
    graph.write_text("".join(clients) + SPREAD.format(clients=names))

    def command(path: Path) -> list[str | Path]:
        known = [f"--{what}-timeout={remember_seconds}" for what in ("attribute", "entry")]
        log = folder / f"{path.name}.log"
        return ["glusterfs", "-N", "-f", graph, "-l", log, *known, path]

    with contextlib.ExitStack() as stack:
        for number, port in enumerate(ports):
            server = _start_brick(folder, number, port)
            stack.callback(server.stop, 5)
            server.wait_for("its port", lambda: local.is_open(port))  # noqa: B023
        yield fuse_mount.SharedFileSystem("GlusterFS", folder, command)
