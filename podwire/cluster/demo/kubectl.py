"""The kubectl of this machine."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

UNPACKED = Path(sys.prefix) / "debian" / "usr" / "bin" / "kubectl"
"""Where set-up puts one for machines that have none."""

SECONDS = 20.0
"""No step of a tour takes so long unless something hangs."""


class NoKubectl(Exception):
    """Says where it was looked for."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What a program said, errors and all, in the order in which it said it."""

    code: int
    output: str


@dataclass(frozen=True, slots=True)
class Kubectl:
    """A kubectl at work in one folder: its kubeconfig, its caches, the manifests that it is given."""

    program: str
    minor: int
    folder: Path

    def run(self, *arguments: str) -> Ran:
        """To its end, or for as long as we have patience."""
        with self.start(*arguments) as process:
            try:
                output, _ = process.communicate(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                output, _ = process.communicate()
                return Ran(124, f"{output}(nothing more after {SECONDS:g} s)")
            finally:
                process.kill()  # when we are interrupted; else it has ended
        return Ran(process.returncode, output)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(  # noqa: S603 - the commands of the tour
            [self.program, *arguments],
            cwd=self.folder,
            env=_environment(self.folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def find(folder: Path) -> Kubectl:
    """The one on PATH, else the one that set-up unpacked; it leaves its traces in `folder` only."""
    program = shutil.which("kubectl") or (str(UNPACKED) if os.access(UNPACKED, os.X_OK) else "")
    if not program:
        raise NoKubectl(f"no kubectl: neither on PATH nor at {UNPACKED}")
    unasked = Kubectl(program, 0, folder)
    told = unasked.run("version", "--client", "-o", "json")
    try:
        minor = int(json.loads(told.output)["clientVersion"]["minor"].rstrip("+"))
    except (ValueError, KeyError) as error:
        raise NoKubectl(f"{program} does not tell its version: {told.output.strip()}") from error
    return Kubectl(program, minor, folder)


def _environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KUBE")}
    return {**kept, "HOME": str(folder), "KUBECONFIG": str(folder / "kubeconfig")}
