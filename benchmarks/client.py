"""Measures how long a client takes to list and to watch 5,000 pods: ours, and those of others that are installed."""

import importlib.util
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from benchmarks.client_program import CLIENTS
from benchmarks.figures import MEASURED, Figure, Peer
from benchmarks.machine import CannotMeasure, on_core
from benchmarks.server import DEADLINE, TOKEN, Server, serving
from benchmarks.workload import NAMESPACE, PODS, pod
from podwire.protocols.k8sapi.kubeconfig import Access, write_kubeconfig

OURS = "podwire.client"
COUNT = 5000
BUDGET = 0.5
"""Of a peer's time: twice as fast."""


def measure(seconds: float) -> Iterator[Figure]:
    yield from compare(COUNT, rounds=max(1, round(seconds)))


def compare(count: int, rounds: int) -> Iterator[Figure]:
    """The clients take turns, each in a process of its own; the median of the rounds counts."""
    with serving() as server, ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="podwire-bench-")))
        kubeconfig = folder / "kubeconfig"
        access = Access(server=f"https://127.0.0.1:{server.port}", token=TOKEN, verify=False, namespace=NAMESPACE)
        kubeconfig.write_text(write_kubeconfig(access), encoding="utf-8")
        _fill(server, count)
        installed = [name for name in CLIENTS if name == OURS or importlib.util.find_spec(name) is not None]
        programs = {name: stack.enter_context(_Program(name, kubeconfig, count)) for name in installed}
        for program in programs.values():
            program.round()  # imports, connects, and fills the caches of both sides
        times: dict[str, list[float]] = {name: [] for name in programs}
        for _ in range(rounds):
            for name, program in programs.items():
                times[name].append(program.round())
    milliseconds = {name: statistics.median(values) * 1e3 for name, values in times.items()}
    ours = milliseconds.pop(OURS)
    group = f"list and watch {count:,} pods".replace(",", " ")
    if not milliseconds:
        yield Figure(group=group, what=OURS, value=ours, unit=" ms")
    for name, value in milliseconds.items():
        yield Figure(
            group=group, what=f"beside {name}", value=ours, unit=" ms", peer=Peer(name, value, BUDGET, MEASURED)
        )


def _fill(server: Server, count: int) -> None:
    server.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    server.fill(PODS, (pod(f"pod-{number}") for number in range(count)))


class _Program:
    """A client that waits for its turn."""

    def __init__(self, name: str, kubeconfig: Path, count: int) -> None:
        self._name = name
        command = [*on_core(-1), sys.executable, "-m", "benchmarks.client_program"]
        self._process = subprocess.Popen(
            [*command, name, str(kubeconfig), NAMESPACE, str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.kill()
        self._process.communicate(timeout=DEADLINE)

    def round(self) -> float:
        process = self._process
        if process.stdin is None or process.stdout is None:
            raise CannotMeasure(f"{self._name} has no pipes")
        process.stdin.write("\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise CannotMeasure(f"{self._name} failed: {process.communicate()[1].strip()[-1000:]}")
        return float(line)
