"""A cluster of `podwire up` below a directory, driven by the commands of podwire."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from podwire.durable.locks import lock_file
from podwire.linux.errors import DeadlinePassed
from podwire.linux.proc.processes import run
from podwire.testing.trace import Trace

COMMAND_SECONDS = 120.0
CNI_BIN, CNI_CONF = "/opt/cni/bin", "/etc/cni/net.d"


class CommandFailed(AssertionError):
    """A command failed; says which one, with its output."""


def run_podwire(*words: object, seconds: float = COMMAND_SECONDS, codes: Sequence[int] = (0,)) -> str:
    """Runs a podwire command; returns its output. Raises CommandFailed."""
    return run_command(sys.executable, "-m", "podwire.cli.main", *words, seconds=seconds, codes=codes)


def run_command(
    *words: object,
    seconds: float = COMMAND_SECONDS,
    codes: Sequence[int] = (0,),
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
) -> str:
    argv = [str(word) for word in words]
    try:
        done = run(argv, env={**os.environ, **(env or {})}, deadline=seconds, stdin=stdin)
    except DeadlinePassed as error:
        raise CommandFailed(f"{' '.join(argv)}: did not end within {seconds:g} s") from error
    output, errors = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
    if done.code not in codes:
        raise CommandFailed(f"{' '.join(argv)}: exit code {done.code}\n{output}{errors}")
    return output


@dataclass(frozen=True, slots=True)
class Node:
    """A node: programs run on it with its links and standard paths."""

    prefix: Path
    name: str

    def exec(self, *words: object, seconds: float = COMMAND_SECONDS, codes: Sequence[int] = (0,)) -> str:
        """Runs a program on the node; returns its output."""
        return run_podwire(
            "node", "exec", "--prefix", self.prefix, self.name, "--", *words, seconds=seconds, codes=codes
        )


@dataclass(frozen=True, slots=True)
class TestCluster:
    """A cluster below a prefix."""

    __test__ = False  # pytest collects classes of this name

    prefix: Path
    options: tuple[str, ...] = field(default=())
    """Of `podwire up`."""

    @property
    def kubeconfig(self) -> Path:
        return self.prefix / "var/lib/podwire/kubeconfig"

    @property
    def cni_bin(self) -> Path:
        """The directory of CNI plugins of the first node, on this machine."""
        return self.prefix / CNI_BIN.lstrip("/")

    @property
    def cni_conf(self) -> Path:
        return self.prefix / CNI_CONF.lstrip("/")

    @property
    def environment(self) -> dict[str, str]:
        """Variables for programs that use the cluster."""
        return {
            "KUBECONFIG": str(self.kubeconfig),
            "PODWIRE_PREFIX": str(self.prefix),
            "PODWIRE_CNI_BIN": str(self.cni_bin),
            "PODWIRE_CNI_CONF": str(self.cni_conf),
        }

    def up(self) -> None:
        """Starts it, unless it is up. Several processes may call this. Raises CommandFailed."""
        self.prefix.mkdir(parents=True, exist_ok=True)
        with lock_file(self.prefix.with_name(f"{self.prefix.name}.lock"), wait=COMMAND_SECONDS):
            if not self.is_up():
                run_podwire("up", "--detach", "--prefix", self.prefix, *self.options)

    def is_up(self) -> bool:
        text = run_podwire("status", "--prefix", self.prefix, "-o", "json", codes=(0, 1))
        return bool(json.loads(text)["state"] == "up")

    def down(self) -> None:
        run_podwire("down", "--prefix", self.prefix)

    def leftovers(self) -> str:
        """Returns resources that podwire created and no pod uses; empty when there are none."""
        text = run_podwire("leakcheck", "--prefix", self.prefix, codes=(0, 1))
        return "" if text == "no leftovers\n" else text

    def node(self, name: str = "node-1") -> Node:
        return Node(self.prefix, name)

    def kubectl(self, *words: object, stdin: str = "", codes: Sequence[int] = (0,)) -> str:
        """Runs the kubectl on PATH."""
        return run_command("kubectl", *words, env=self.environment, stdin=stdin.encode(), codes=codes)

    def trace(self, pod: str, namespace: str = "default") -> Trace:
        """Returns the calls of a pod, by name or UID."""
        words = ("trace", pod, "--namespace", namespace, "--prefix", self.prefix, "--format", "json")
        return Trace.from_records(json.loads(run_podwire(*words)))
