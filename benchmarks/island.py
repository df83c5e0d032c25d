"""A place for one program: namespaces, a directory and a cgroup of its own. All of it ends with the program."""

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.machine import DISK, CannotMeasure
from benchmarks.server import DEADLINE, ROOT

CGROUPS = Path("/sys/fs/cgroup")

_SCRIPT = """
mount -t tmpfs none /run && mount -t tmpfs none /var/lib && ip link set lo up || exit 1
exec 3<&0
{ cat <&3; kill -KILL -1; } &
"$@" </dev/null
"""
"""What programs keep in /run and /var/lib is theirs alone. When our end of stdin closes, by whatever, all is killed."""


class Island:
    """Where a program runs: its files lie in `place`, its containers' groups below `cgroup_parent`."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.cgroup_parent = place.name
        self.log = place / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, command: Sequence[str], ready: Callable[[], bool]) -> None:
        """Start the program and wait until it is ready."""
        words = ["unshare", "-nmpf", "--mount-proc", "--propagation", "private", "sh", "-c", _SCRIPT, "sh", *command]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=ROOT, env=environment
            )
        until = time.perf_counter() + DEADLINE
        while not ready():
            if self._process.poll() is not None or time.perf_counter() > until:
                told = self.log.read_text(encoding="utf-8", errors="replace").strip()
                raise CannotMeasure(f"{command[0]} did not come up: {told[-1000:]}")
            time.sleep(0.01)

    def close(self) -> None:
        if self._process is not None:
            self._process.communicate()
        for parent in self.groups():
            for folder, _, _ in os.walk(parent, topdown=False):
                Path(folder).rmdir()

    def groups(self) -> list[Path]:
        """In every hierarchy: runc uses some that hold no controller, too."""
        return [each for way in ("", "*/") for each in CGROUPS.glob(f"{way}{self.cgroup_parent}")]


@contextlib.contextmanager
def island() -> Iterator[Island]:
    with tempfile.TemporaryDirectory(dir=DISK, prefix="podwire-bench-") as folder:
        made = Island(Path(folder))
        try:
            yield made
        finally:
            made.close()
