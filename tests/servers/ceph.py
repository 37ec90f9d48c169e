"""A Ceph cluster of one node on 127.0.0.1, for tests: ``with ceph.running(folder)`` gives its S3 gateway,
``with ceph.file_system(folder)`` its file system.

A monitor, one storage daemon that keeps everything in memory, and radosgw or a metadata server: no
systemd, no manager. Any user may run it; mounting the file system needs root. Debian packages: ceph-mon
ceph-osd ceph-common, and radosgw or ceph-mds ceph-fuse. From a shell, with the gateway:

    python tests/servers/ceph.py COMMAND...    # runs it with the variables set that AWS tools read
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import fuse_mount
import local

CORE = ("ceph", "ceph-authtool", "ceph-mon", "ceph-osd", "monmaptool")
GATEWAY = (*CORE, "radosgw", "radosgw-admin")
FILE_SYSTEM = (*CORE, "ceph-mds", "ceph-fuse")
# What each part may do. All keys go into the monitor's first store, so nothing is asked for later.
KEYS = {
    "mon.": {"mon": "allow *"},
    "client.admin": {"mon": "allow *", "osd": "allow *", "mgr": "allow *", "mds": "allow *"},
    "osd.0": {"mon": "allow profile osd", "osd": "allow *"},
    "mds.a": {"mon": "allow profile mds", "osd": "allow *", "mds": "allow *"},
    "client.rgw": {"mon": "allow rw", "osd": "allow rwx"},
}
CONF = """
[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{mon}]
public addr = 127.0.0.1
ms bind ipv6 = false
ms bind msgr1 = false
ms bind port min = {low}
ms bind port max = {high}
keyring = {folder}/keyring
run dir = {sockets}
pid file =
admin socket = {sockets}/$name.asok
log file = {folder}/$name.log
crash dir = {folder}/crash
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pgp num = 8
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon warn on pool no redundancy = false
mon max pg per osd = 1000

[mon]
mon data = {folder}/mon
mon data avail warn = 2
mon data avail crit = 1
paxos propose interval = 0.05
mon memory autotune = false
mon memory target = 268435456

[osd]
osd data = {folder}/osd
osd objectstore = memstore
memstore device bytes = 4294967296
osd max object name len = 2048
osd class update on start = false

[mds]
mds data = {folder}/mds
mds cache memory limit = 134217728
# What one client has changed another one sees when the journal has been written, once in a tick.
mds tick interval = 0.1

[client]
admin socket =
rgw data = {folder}/rgw
# Without tcp_nodelay each small range waits for a delayed acknowledgement.
rgw frontends = beast endpoint=127.0.0.1:{rgw} tcp_nodelay=1
rgw enable usage log = false
rgw enable quota threads = false
rgw run sync thread = false
"""


def missing() -> list[str]:
    """Return the programs of a cluster with a gateway that are not installed."""
    return [name for name in GATEWAY if not shutil.which(name)]


def file_system_obstacle() -> str:
    """Return why the file system cannot be mounted here, or an empty string."""
    return fuse_mount.obstacle(FILE_SYSTEM, "ceph-mon ceph-osd ceph-common ceph-mds ceph-fuse")


class Cluster:
    """The folder of a cluster, and the commands that work on it."""

    def __init__(self, folder: Path, sockets: Path) -> None:
        """Lay out the folder and write the settings."""
        for name in ("mon", "osd", "mds", "rgw", "crash"):
            (folder / name).mkdir(parents=True)
        self.folder = folder
        self.conf = folder / "ceph.conf"
        self.mon_port, self.rgw_port = local.free_ports(2)
        others = local.free_range(41)
        self.fsid = str(uuid.uuid4())
        text = CONF.format(
            fsid=self.fsid,
            mon=self.mon_port,
            rgw=self.rgw_port,
            low=others[0],
            high=others[-1],
            folder=folder,
            sockets=sockets,
        )
        self.conf.write_text(text)

    def call(self, *command: str | Path, timeout: float = local.CALL_SECONDS) -> str:
        """Run a program to its end; raise with its output when it fails."""
        done = subprocess.run(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]} failed: {done.stdout[-1500:]}{done.stderr[-1500:]}")
        return done.stdout

    def ceph(self, *arguments: str, timeout: float = local.CALL_SECONDS) -> str:
        """Ask the monitor."""
        wait = str(int(timeout))
        return self.call(
            "ceph", "-c", self.conf, "--connect-timeout", wait, *arguments, timeout=timeout + 30
        )

    def answers(self, words: str, *arguments: str) -> bool:
        """Tell whether the monitor answers with these words."""
        try:
            return words in self.ceph(*arguments, timeout=30)
        except (RuntimeError, subprocess.TimeoutExpired):
            return False

    def make(self) -> str:
        """Make keys, monitor map and stores; return the id of the storage daemon."""
        keyring = self.folder / "keyring"
        for number, (name, caps) in enumerate(KEYS.items()):
            parts = [part for pair in caps.items() for part in ("--cap", *pair)]
            create = [] if number else ["--create-keyring"]
            self.call("ceph-authtool", *create, keyring, "--gen-key", "-n", name, *parts)
        monmap = self.folder / "monmap"
        address = f"[v2:127.0.0.1:{self.mon_port}]"
        self.call(
            *("monmaptool", "--create", "--fsid", self.fsid, "--enable-all-features"),
            *("--addv", "a", address, monmap),
        )
        mon = ("ceph-mon", "-c", self.conf, "--mkfs", "-i", "a")
        self.call(*mon, "--monmap", monmap, "--keyring", keyring)
        osd = str(uuid.uuid4())
        # It would wait for the monitor, which does not run yet.
        self.call(
            *("ceph-osd", "-c", self.conf, "--no-mon-config", "-i", "0", "--mkfs"),
            *("--osd-uuid", osd),
        )
        return osd

    def start(
        self, stack: contextlib.ExitStack, program: str, *arguments: str | Path
    ) -> local.Daemon:
        """Start a part of the cluster; the stack ends it."""
        command = [program, *arguments, "-c", self.conf, "-f"]
        daemon = local.Daemon(program, command, self.folder / f"{program}.out")
        stack.callback(daemon.stop, 5)
        return daemon

    def start_core(self, stack: contextlib.ExitStack) -> None:
        """Make the stores and start the monitor and the storage daemon."""
        osd_id = self.make()
        monitor = self.start(stack, "ceph-mon", "-i", "a")
        monitor.wait_for("an answer", lambda: self.answers("quorum", "mon", "stat"))
        self.ceph("osd", "new", osd_id, "0")
        storage = self.start(stack, "ceph-osd", "-i", "0")
        storage.wait_for("its start", lambda: self.answers("1 up", "osd", "stat"))

    def start_gateway(self, stack: contextlib.ExitStack, buckets: Sequence[str]) -> local.S3Server:
        """Start the S3 gateway, with a user and buckets."""
        server = local.S3Server(
            endpoint=f"http://127.0.0.1:{self.rgw_port}",
            access_key="headracetest00000001",
            secret_key="headracetestonly000000000000000000000001",
            buckets=tuple(buckets),
            dialect="ceph",
            region="default",
        )
        self.call(
            *("radosgw-admin", "-c", self.conf, "user", "create", "--uid=test"),
            *("--display-name=test", f"--access-key={server.access_key}"),
            f"--secret={server.secret_key}",
        )
        gateway = self.start(stack, "radosgw", "-n", "client.rgw")
        for bucket in buckets:
            gateway.wait_for(f"the bucket {bucket}", lambda: server.make_bucket(bucket))  # noqa: B023
        return server

    def start_file_system(self, stack: contextlib.ExitStack) -> None:
        """Make a file system and start its metadata server."""
        for pool in ("metadata", "data"):
            self.ceph("osd", "pool", "create", f"files.{pool}", "8")
        self.ceph("fs", "new", "files", "files.metadata", "files.data")
        metadata = self.start(stack, "ceph-mds", "-i", "a")
        metadata.wait_for("its start", lambda: self.answers("up:active", "mds", "stat"))

    def mount_command(self, path: Path) -> list[str | Path]:
        """Return the command of a client of the file system."""
        return ["ceph-fuse", "-f", "-c", self.conf, "-n", "client.admin", path]


@contextlib.contextmanager
def _cluster(folder: Path) -> Iterator[tuple[Cluster, contextlib.ExitStack]]:
    with contextlib.ExitStack() as stack:
        # The path of a socket has at most 107 bytes.
        sockets = stack.enter_context(tempfile.TemporaryDirectory(prefix="ceph-"))
        cluster = Cluster(folder, Path(sockets))
        cluster.start_core(stack)
        yield cluster, stack


@contextlib.contextmanager
def running(folder: Path, buckets: Sequence[str] = ("headrace-test",)) -> Iterator[local.S3Server]:
    """Make a cluster in the empty ``folder``, start it, make buckets, and stop it in the end."""
    if lacking := missing():
        raise FileNotFoundError(
            f"{', '.join(lacking)}: apt-get install ceph-mon ceph-osd radosgw ceph-common"
        )
    with _cluster(folder) as (cluster, stack):
        yield cluster.start_gateway(stack, buckets)


@contextlib.contextmanager
def file_system(folder: Path) -> Iterator[fuse_mount.SharedFileSystem]:
    """Make a cluster in the empty ``folder`` with a file system that can be mounted; stop it in the end."""
    if obstacle := file_system_obstacle():
        raise RuntimeError(obstacle)
    with _cluster(folder) as (cluster, stack):
        cluster.start_file_system(stack)
        yield fuse_mount.SharedFileSystem("CephFS", folder, cluster.mount_command)


def main() -> int:
    """Run a command beside a cluster."""
    if len(sys.argv) < 2:
        print("usage: ceph.py COMMAND...", file=sys.stderr)
        return 2
    with (
        tempfile.TemporaryDirectory(prefix="headrace-ceph-") as folder,
        running(Path(folder) / "cluster") as server,
    ):
        return subprocess.run(sys.argv[1:], env=server.environment(), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
