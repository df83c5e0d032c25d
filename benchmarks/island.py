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
cd "$1" && mkdir host-etc host-work host-lib || exit 1
mount -t tmpfs none /run && mount -t tmpfs none /var/log && mount --bind host-lib /var/lib || exit 1
mount -t overlay none -o lowerdir=/etc,upperdir=host-etc,workdir=host-work /etc && ip link set lo up || exit 1
cd "$OLDPWD" && shift || exit 1
exec 3<&0
{ cat <&3; kill -KILL -1; } &
"$@" </dev/null
"""
"""Files of programs in /etc, /run, /var/lib and /var/log are theirs alone.

When our end of stdin closes, by whatever, all is killed.
"""


class Island:
    """The environment of a program: its files are in `place`, the cgroups of its containers below `cgroup_parent`."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.cgroup_parent = place.name
        self.cgroups = [self.cgroup_parent]
        """All that are removed in the end."""
        self.log = place / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, command: Sequence[str], ready: Callable[[], bool]) -> None:
        """Start the program and wait until it is ready."""
        words = ["unshare", "-nmpf", "--mount-proc", "--propagation", "private", "sh", "-c", _SCRIPT, "sh"]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*words, str(self.place), *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env=environment,
            )
        until = time.perf_counter() + DEADLINE
        while not ready():
            if self._process.poll() is not None or time.perf_counter() > until:
                output = self.log.read_text(encoding="utf-8", errors="replace").strip()
                raise CannotMeasure(f"{command[0]} did not come up: {output[-1000:]}")
            time.sleep(0.01)

    def inside(self, command: Sequence[str]) -> list[str]:
        """The words that run another program on the island; what it starts ends with the island."""
        if self._process is None:
            raise CannotMeasure(f"nothing runs that {command[0]} could stand beside")
        first = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text(encoding="ascii").split()
        return ["nsenter", "-n", "-m", "-p", "-t", first[0], "--", *command]

    def close(self) -> None:
        if self._process is not None:
            self._process.communicate()
        for parent in self.groups():
            for folder, _, _ in os.walk(parent, topdown=False):
                Path(folder).rmdir()

    def groups(self) -> list[Path]:
        """In every hierarchy: runc uses some that hold no controller, too."""
        return [path for name in self.cgroups for way in ("", "*/") for path in CGROUPS.glob(f"{way}{name}")]


@contextlib.contextmanager
def island() -> Iterator[Island]:
    with tempfile.TemporaryDirectory(dir=DISK, prefix="podwire-bench-") as folder:
        made = Island(Path(folder))
        try:
            yield made
        finally:
            made.close()
