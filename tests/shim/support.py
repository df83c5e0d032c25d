"""Containers for the tests: bundles, the shim's command line, its files and its socket."""

import json
import os
import select
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tests.eventually import eventually

PATIENCE, LEAVING = 30.0, 10.0
FRAME = struct.Struct(">III")
OWN_NAMESPACES = ("mount", "uts", "ipc", "network", "pid")


def environment(reports: Path) -> dict[str, str]:
    log = f"log_path={reports}/report:exitcode=66"
    return {"PATH": os.environ["PATH"], "ASAN_OPTIONS": f"{log}:detect_leaks=1", "UBSAN_OPTIONS": log}


def alive(pid: int) -> bool:
    """Running, and not only a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def start_ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def children(pid: int) -> list[int]:
    return [int(part) for part in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def logged(path: Path) -> list[tuple[str, str, bytes]]:
    """The log's lines as (stream, tag, text); a log that is not well-formed fails here."""
    raw = path.read_bytes()
    assert not raw or raw.endswith(b"\n")
    lines = [part.split(b" ", 3) for part in raw.split(b"\n")[:-1]]
    stamps = [stamp.decode() for stamp, *_ in lines]
    assert all(len(stamp) == len("2026-01-02T03:04:05.123456789Z") and stamp.endswith("Z") for stamp in stamps)
    return [(stream.decode(), tag.decode(), text) for _, stream, tag, text in lines]


def make_cgroups(name: str) -> list[Path]:
    """In two version 1 hierarchies, or in the one of version 2."""
    top = Path("/sys/fs/cgroup")
    parents = [top] if (top / "cgroup.procs").exists() else [top / "pids", top / "freezer"]
    made = [parent / name for parent in parents]
    for item in made:
        item.mkdir()
    return made


def members(cgroup: str | Path) -> list[int]:
    return [int(part) for part in Path(cgroup, "cgroup.procs").read_text().split()]


def remove_cgroups(made: Sequence[Path]) -> None:
    for item in made:
        while item.exists() and (left := members(item)):
            for pid in left:
                end(pid)
        eventually(lambda item=item: not item.exists() or removed(item))


def removed(cgroup: Path) -> bool:
    try:
        cgroup.rmdir()
    except OSError:
        return False
    return True


def end(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


class Asked:
    """A connection to a shim's control socket, after its request."""

    def __init__(self, state: Path, request: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        folder = os.open(state, os.O_PATH)
        try:
            self.socket.connect(f"/proc/self/fd/{folder}/shim.sock")  # however long the real path is
        except OSError:
            self.socket.close()
            raise
        finally:
            os.close(folder)
        with suppress(BrokenPipeError):  # the reader finds out
            self.socket.sendall(request.encode() + b"\n" if request else b"")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def line(self) -> str:
        """Byte by byte: frames may follow it."""
        line = b""
        while not line.endswith(b"\n") and (byte := self.socket.recv(1)):
            line += byte
        return line.decode().rstrip("\n")

    def exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (more := self.socket.recv(size - len(data))):
            data += more
        return data

    def frame(self) -> tuple[int, int, bytes] | None:
        """Channel, bytes lost before it, data; None at the end."""
        head = self.exactly(FRAME.size)
        if not head:
            return None
        channel, lost, length = FRAME.unpack(head)
        return channel, lost, self.exactly(length)


@dataclass
class Box:
    """One container and its shim."""

    id: str
    bundle: Path
    state: Path
    log: Path
    argv: list[str]
    """The whole command line of the shim."""
    env: dict[str, str]
    oci: list[str]
    result: subprocess.CompletedProcess[str] | None = None
    connections: list[Asked] = field(default_factory=list)

    def run(self, **options: Any) -> "Box":
        """Start it, whatever comes of it."""
        self.result = subprocess.run(
            self.argv, env=self.env, capture_output=True, text=True, check=False, timeout=PATIENCE, **options
        )
        return self

    def start(self, **options: Any) -> "Box":
        self.run(**options)
        assert self.result.returncode == 0, self.result.stderr
        return self

    @property
    def started(self) -> dict[str, Any]:
        return json.loads((self.state / "started").read_text())

    @property
    def pid(self) -> int:
        return self.started["pid"]

    @property
    def shim_pid(self) -> int:
        return self.started["shim"]

    def ask(self, request: str) -> str:
        with Asked(self.state, request) as asked:
            return asked.line()

    def listens(self) -> bool:
        """Its file is there a moment before."""
        with suppress(FileNotFoundError, ConnectionRefusedError), Asked(self.state, ""):
            return True
        return False

    def open(self, request: str) -> Asked:
        """A connection that is closed at the end of the test, if not before."""
        self.connections.append(Asked(self.state, request))
        return self.connections[-1]

    def opened(self, request: str) -> Asked:
        """For those that are answered with ok, and then go on."""
        asked = self.open(request)
        assert asked.line() == "ok"
        return asked

    def exited(self) -> dict[str, Any]:
        """As the contract says: ask; where nobody answers, there is the file."""
        try:
            answer = self.ask("wait")
        except OSError:
            answer = ""
        exit_status = json.loads((self.state / "exit").read_text())
        assert not answer or json.loads(answer) == exit_status
        return exit_status

    def gone(self) -> "Box":
        """Wait until the shim has left."""
        pid = self.shim_pid
        eventually(lambda: not alive(pid))
        return self

    def remove(self) -> None:
        """End what still runs. A shim leaves by itself then; only one that does not is killed."""
        for connection in self.connections:
            connection.socket.close()
        for pid in self._pids("pid"):
            end(pid)
        until = time.monotonic() + LEAVING
        while (shims := self._pids("shim")) and time.monotonic() < until:
            time.sleep(0.005)
        for pid in shims:
            end(pid)
        subprocess.run(
            [*self.oci, "delete", "--force", self.id], env=self.env, capture_output=True, check=False, timeout=PATIENCE
        )

    def _pids(self, name: str) -> list[int]:
        """Those that are still there and ours: a number may be another process's by now."""
        path = self.state / "started"
        found = [json.loads(path.read_text())[name]] if path.exists() else []
        return [pid for pid in found if alive(pid) and is_ours(pid, self.bundle)]


def is_ours(pid: int, bundle: Path) -> bool:
    """A shim has our bundle on its command line, a container a word of ours in its environment."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
        return str(bundle).encode() in line or b"podwire-box" in Path(f"/proc/{pid}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False


@dataclass
class Boxes:
    shim: tuple[str, ...]
    rootfs: Path
    reports: Path
    folder: Path
    oci: str
    made: list[Box] = field(default_factory=list)

    def box(
        self,
        *args: str,
        flags: Sequence[str] = (),
        cgroups: Sequence[str] = (),
        namespaces: Sequence[str] = OWN_NAMESPACES,
        data: Path | None = None,
        log: Path | None = None,
        before: Sequence[str] = (),
    ) -> Box:
        """A container that is not started yet. `before`: what the runtime's command line begins with."""
        name = f"podwire-test-{os.urandom(6).hex()}"
        bundle = self.folder / f"b{len(self.made)}"
        state = bundle / "s"
        state.mkdir(parents=True)
        spec = self._spec(args, tty="--tty" in flags, namespaces=namespaces, data=data)
        (bundle / "config.json").write_text(json.dumps(spec))
        log = log or bundle / "log"
        argv = [
            *self.shim,
            "run",
            "--id",
            name,
            "--bundle",
            str(bundle),
            "--state",
            str(state),
            "--log",
            str(log),
            *flags,
        ]
        for cgroup in cgroups:
            argv += ["--cgroup", cgroup]
        root = ["--root", str(self.folder / self.oci)]
        runtime = ["crun", *root, "--cgroup-manager=disabled"] if self.oci == "crun" else ["runc", *root]
        argv += ["--cover-unified"] if self.oci == "crun" else []
        argv += ["--", *before, *runtime, "run", "--detach", "--bundle", str(bundle), "--pid-file", f"{state}/pid"]
        argv += ["--console-socket", f"{state}/console.sock"] if "--tty" in flags else []
        env = environment(self.reports)
        covered = [*self.shim, "exec", *(["--cover-unified"] if self.oci == "crun" else []), "--", *runtime]
        made = Box(name, bundle, state, log, [*argv, name], env, covered)
        self.made.append(made)
        return made

    def _spec(self, args: Sequence[str], *, tty: bool, namespaces: Sequence[str], data: Path | None) -> dict[str, Any]:
        mounts = [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
            {
                "destination": "/dev/pts",
                "type": "devpts",
                "source": "devpts",
                "options": ["newinstance", "ptmxmode=0666"],
            },
            {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"},
        ]
        if data is not None:
            mounts.append({"destination": "/data", "type": "bind", "source": str(data), "options": ["rbind", "ro"]})
        capabilities = {name: ["CAP_KILL"] for name in ("bounding", "effective", "permitted")}
        env = ["PATH=/bin", "BOX=podwire-box"]
        process = {"terminal": tty, "user": {"uid": 0, "gid": 0}, "args": list(args), "env": env, "cwd": "/"}
        return {
            "ociVersion": "1.0.2",
            "process": {**process, "capabilities": capabilities, "noNewPrivileges": True},
            "root": {"path": str(self.rootfs), "readonly": True},
            "hostname": "box",
            "mounts": mounts,
            "linux": {"namespaces": [{"type": namespace} for namespace in namespaces]},
        }

    def sweep(self) -> None:
        for item in self.made:
            item.remove()


def readable(fd: int, seconds: float) -> bool:
    return bool(select.select([fd], [], [], seconds)[0])
