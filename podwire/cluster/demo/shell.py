"""Runs the commands of the demo as a user would type them, in a directory of their own."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from podwire.cluster.demo.signals import SignalGuard
from podwire.cluster.kubectl import NoKubectl, find_kubectl

SECONDS = 60.0
"""Timeout of a step."""


@dataclass(frozen=True, slots=True)
class Ran:
    """Exit code and output of a program, with stdout and stderr interleaved."""

    code: int
    output: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """Runs commands without a shell: kubeconfig, caches and manifests are in one directory."""

    kubectl: str
    minor: int = 0
    """kubectl's minor version."""
    folder: Path
    kubeconfig: Path
    signals: SignalGuard
    columns: int = 120
    """The width of the terminal that programs see."""

    def run(self, command: str) -> Ran:
        """Runs a command to its end, or until the timeout."""
        try:
            started = self.start(command)
        except OSError as error:  # not found, or not executable
            return Ran(127, f"{error.filename}: {error.strerror}")
        with started as process:
            try:
                with self.signals.waiting():
                    output, _ = process.communicate(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                output, _ = process.communicate()
                return Ran(124, f"{output}(nothing more after {SECONDS:g} s)")
            finally:
                process.kill()  # if interrupted; else it has ended
        return Ran(process.returncode, output)

    def start(self, command: str) -> subprocess.Popen[str]:
        """Starts a command in its own session: Ctrl-C reaches only the demo, which then stops everything in order."""
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
        """Drops variables of the user's own cluster and of proxies."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("KUBE") and name != "PODWIRE_PREFIX" and not name.lower().endswith("_proxy")
        }
        home, config = str(self.folder), str(self.kubeconfig)
        path = f"{kept.get('PATH', os.defpath)}:{Path(sys.executable).parent}"  # for programs on a node
        return {**kept, "PATH": path, "HOME": home, "KUBECONFIG": config, "COLUMNS": str(self.columns)}


def shell(folder: Path, kubeconfig: Path, signals: SignalGuard, columns: int) -> Shell:
    """Uses the kubectl on PATH, else the one that setup unpacked. Raises NoKubectl."""
    program = find_kubectl()
    untested = Shell(kubectl=program, folder=folder, kubeconfig=kubeconfig, signals=signals, columns=columns)
    result = untested.run("kubectl version --client -o json")
    try:
        minor = int(json.loads(result.output)["clientVersion"]["minor"].rstrip("+"))
    except (ValueError, KeyError) as error:
        raise NoKubectl(f"{program} does not print its version: {result.output.strip()}") from error
    return replace(untested, minor=minor)
