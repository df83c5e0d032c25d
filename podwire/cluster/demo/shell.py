"""Commands as a visitor types them, run in a folder of their own."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from podwire.cluster.demo.signals import SignalGuard

UNPACKED = Path(sys.prefix) / "debian" / "usr" / "bin" / "kubectl"
"""Where set-up puts one for machines that have none."""

SECONDS = 60.0
"""No step of a demo takes so long unless something hangs."""


class NoKubectl(Exception):
    """Says where it was looked for."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What a program said, errors and all, in the order in which it said it."""

    code: int
    output: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """Runs commands without the help of a shell: their kubeconfig, caches and manifests are in one folder."""

    kubectl: str
    minor: int = 0
    """The version of kubectl."""
    folder: Path
    kubeconfig: Path
    stops: SignalGuard
    columns: int = 120
    """How wide the output may be of who asks for the terminal's width."""

    def run(self, command: str) -> Ran:
        """To its end, or for as long as we have patience."""
        try:
            started = self.start(command)
        except OSError as error:  # the program is not there, or is none
            return Ran(127, f"{error.filename}: {error.strerror}")
        with started as process:
            try:
                with self.stops.waiting():
                    output, _ = process.communicate(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                output, _ = process.communicate()
                return Ran(124, f"{output}(nothing more after {SECONDS:g} s)")
            finally:
                process.kill()  # when we are interrupted; else it has ended
        return Ran(process.returncode, output)

    def start(self, command: str) -> subprocess.Popen[str]:
        """In a session of its own: Ctrl-C reaches the demo alone, which then ends everything in good order."""
        program, *arguments = shlex.split(command)
        return subprocess.Popen(  # noqa: S603 - the commands of the demo
            [*self._programs().get(program, [program]), *arguments],
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def _programs(self) -> Mapping[str, list[str]]:
        return {"kubectl": [self.kubectl], "podwire": [sys.executable, "-m", "podwire.cli.main"]}

    def _environment(self) -> dict[str, str]:
        """Nothing of the visitor's own cluster, and no proxy between programs of one machine."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("KUBE") and not name.lower().endswith("_proxy")
        }
        home, config = str(self.folder), str(self.kubeconfig)
        path = f"{kept.get('PATH', os.defpath)}:{Path(sys.executable).parent}"  # for what runs on a node
        return {**kept, "PATH": path, "HOME": home, "KUBECONFIG": config, "COLUMNS": str(self.columns)}


def shell(folder: Path, kubeconfig: Path, stops: SignalGuard, columns: int) -> Shell:
    """With the kubectl on PATH, else the one that set-up unpacked. Raises NoKubectl."""
    program = shutil.which("kubectl") or (str(UNPACKED) if os.access(UNPACKED, os.X_OK) else "")
    if not program:
        raise NoKubectl(f"no kubectl: neither on PATH nor at {UNPACKED}")
    found = Shell(kubectl=program, folder=folder, kubeconfig=kubeconfig, stops=stops, columns=columns)
    told = found.run("kubectl version --client -o json")
    try:
        minor = int(json.loads(told.output)["clientVersion"]["minor"].rstrip("+"))
    except (ValueError, KeyError) as error:
        raise NoKubectl(f"{program} does not tell its version: {told.output.strip()}") from error
    return replace(found, minor=minor)
