"""ADD and DEL of bridge with host-local, each a program that is started: ours with and without its daemon, beside the
reference plugins."""

import contextlib
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.figures import MEASURED, Figure, Peer
from benchmarks.machine import DISK, CannotMeasure
from benchmarks.runtimes import network, reference_plugins
from benchmarks.server import DEADLINE, PODWIRE
from podwire.cniplugins.install import install
from podwire.linux import syscalls
from podwire.linux.namespaces import KernelNamespaces, in_thread
from podwire.linux.network import KernelNetwork

GROUP = "CNI, bridge + host-local, one program after the other"
PODS = 4.0
"""For each second that a measurement may take."""
KINDS = {"plain": False, "ipMasq": True}
VERBS = ("ADD", "DEL")
OURS = {"daemon": "through the daemon", "python": "each a Python"}
REFERENCE = "reference"
BUDGETS = {"plain": 1 / 2, "ipMasq": 1 / 5}
"""Through the daemon, against the reference plugins."""
_PRIVATE = 1 << 14 | 1 << 18  # MS_REC | MS_PRIVATE

Times = dict[tuple[str, str], list[float]]


def measure(seconds: float) -> Iterator[Figure]:
    """All take turns, pod by pod, on one host: a thread with namespaces that end with it."""
    with tempfile.TemporaryDirectory(dir=DISK, prefix="podwire-bench-") as folder:
        sides = {each: Path(folder, each) for each in OURS}
        for programs in sides.values():
            install(str(programs), socket=str(_socket(programs)))
        pods = max(2, round(PODS * seconds))
        taken = in_thread(lambda: _pods(Path(folder), sides | {REFERENCE: reference_plugins()}, pods))
    yield from figures(taken)


def figures(taken: dict[str, Times]) -> Iterator[Figure]:
    for side, told in OURS.items():
        for key, times in taken[side].items():
            budget = BUDGETS[key[1]] if side == "daemon" else None
            peer = Peer("reference plugins", statistics.median(taken[REFERENCE][key]) * 1e3, budget, MEASURED)
            what, value = f"{', '.join(key)}, {told}", statistics.median(times) * 1e3
            yield Figure(group=GROUP, what=what, value=value, unit=" ms", peer=peer)


def _socket(programs: Path) -> Path:
    return programs / "cni.sock"


def _pods(folder: Path, sides: dict[str, Path], pods: int) -> dict[str, Times]:
    syscalls.unshare(syscalls.NEWNET | syscalls.NEWNS)
    syscalls.mount(None, "/", None, _PRIVATE, None)
    syscalls.mount("none", "/run", "tmpfs", 0, None)  # iptables has its lock there
    with KernelNetwork() as host:
        host.links.change("lo", up=True)
    namespaces = KernelNamespaces(folder / "netns")
    taken: dict[str, Times] = {side: {(verb, kind): [] for kind in KINDS for verb in VERBS} for side in sides}
    # The first of each finds the bridge and the chains missing.
    with _daemon(_socket(sides["daemon"])):
        for number in range(-1, pods):
            # There and back: whoever follows waits for what the kernel still tidies up for the one before.
            for side, programs in sorted(sides.items(), reverse=bool(number % 2)):
                for kind in KINDS:
                    pod = f"{side}-{kind}-{number}".lower()
                    for verb, took in _pod(namespaces, pod, programs, _config(folder, side, kind)):
                        taken[side][verb, kind] += [took] if number >= 0 else []
    return taken


@contextlib.contextmanager
def _daemon(place: Path) -> Iterator[None]:
    """On the host of the thread that starts it."""
    with subprocess.Popen([*PODWIRE, "cni", "daemon", "--socket", place, "--log-level", "error"]) as process:
        try:
            until = time.monotonic() + DEADLINE
            while not place.exists():
                if process.poll() is not None or time.monotonic() > until:
                    raise CannotMeasure("the daemon of our CNI plugins does not listen")
                time.sleep(0.01)
            yield
        finally:
            process.terminate()


def _config(folder: Path, side: str, kind: str) -> dict[str, Any]:
    """Each side has a bridge and leases of its own, so that none finds what the other made."""
    told = network(bridge=f"{side[:4]}-{kind}", ipMasq=KINDS[kind], dataDir=str(folder / f"{side}-records"))
    ipam = {**told["ipam"], "dataDir": str(folder / f"{side}-leases")}
    subnet = f"10.{list(KINDS).index(kind) + 77 + 10 * (len(OURS) - [*OURS, REFERENCE].index(side))}.0.0/16"
    return {**told, "cniVersion": "1.0.0", "name": kind, "ipam": {**ipam, "ranges": [[{"subnet": subnet}]]}}


def _pod(namespaces: KernelNamespaces, pod: str, programs: Path, config: dict[str, Any]) -> Iterator[tuple[str, float]]:
    netns = namespaces.create(pod).path
    try:
        for verb in VERBS:
            yield verb, _call(programs, verb, pod, netns, config)
    finally:
        namespaces.remove(pod)


def _call(programs: Path, verb: str, pod: str, netns: str, config: dict[str, Any]) -> float:
    """Seconds."""
    environment = {"CNI_COMMAND": verb, "CNI_CONTAINERID": pod, "CNI_NETNS": netns, "CNI_IFNAME": "eth0"}
    environment |= {"CNI_PATH": str(programs), "PATH": os.environ["PATH"]}
    stdin = json.dumps(config).encode()
    begin = time.perf_counter()
    done = subprocess.run(
        [programs / "bridge"], input=stdin, env=environment, capture_output=True, check=False, timeout=DEADLINE
    )
    took = time.perf_counter() - begin
    if done.returncode:
        raise CannotMeasure(f"{programs / 'bridge'} {verb}: {done.stdout.decode()[:1000]}")
    return took
