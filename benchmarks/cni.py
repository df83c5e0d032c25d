"""ADD and DEL of bridge with host-local, each a program that is started: ours beside the reference plugins."""

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
from benchmarks.server import DEADLINE
from podwire.cniplugins.install import install
from podwire.linux import syscalls
from podwire.linux.namespaces import KernelNamespaces, in_thread
from podwire.linux.network import KernelNetwork

GROUP = "CNI, bridge + host-local, one program after the other"
PODS = 4.0
"""For each second that a measurement may take."""
KINDS = {"plain": False, "ipMasq": True}
VERBS = ("ADD", "DEL")
_PRIVATE = 1 << 14 | 1 << 18  # MS_REC | MS_PRIVATE

Times = dict[tuple[str, str], list[float]]


def measure(seconds: float) -> Iterator[Figure]:
    """Both take turns, pod by pod, on one host: a thread with namespaces that end with it."""
    with tempfile.TemporaryDirectory(dir=DISK, prefix="podwire-bench-") as folder:
        programs = Path(folder, "bin")
        install(str(programs))
        pods = max(2, round(PODS * seconds))
        sides = {"ours": programs, "reference": reference_plugins()}
        taken = in_thread(lambda: _pods(Path(folder), sides, pods))
    yield from figures(taken["ours"], taken["reference"])


def figures(ours: Times, theirs: Times) -> Iterator[Figure]:
    for key, times in ours.items():
        peer = Peer("reference plugins", statistics.median(theirs[key]) * 1e3, None, MEASURED)
        yield Figure(group=GROUP, what=", ".join(key), value=statistics.median(times) * 1e3, unit=" ms", peer=peer)


def _pods(folder: Path, sides: dict[str, Path], pods: int) -> dict[str, Times]:
    syscalls.unshare(syscalls.NEWNET | syscalls.NEWNS)
    syscalls.mount(None, "/", None, _PRIVATE, None)
    syscalls.mount("none", "/run", "tmpfs", 0, None)  # iptables has its lock there
    with KernelNetwork() as host:
        host.links.change("lo", up=True)
    namespaces = KernelNamespaces(folder / "netns")
    taken: dict[str, Times] = {side: {(verb, kind): [] for kind in KINDS for verb in VERBS} for side in sides}
    # The first of each finds the bridge and the chains missing.
    for number in range(-1, pods):
        for side, programs in sides.items():
            for kind in KINDS:
                pod = f"{side}-{kind}-{number}".lower()
                for verb, took in _pod(namespaces, pod, programs, _config(folder, side, kind)):
                    taken[side][verb, kind] += [took] if number >= 0 else []
    return taken


def _config(folder: Path, side: str, kind: str) -> dict[str, Any]:
    """Each side has a bridge and leases of its own, so that none finds what the other made."""
    told = network(bridge=f"{side[:4]}-{kind}", ipMasq=KINDS[kind], dataDir=str(folder / side))
    ipam = {**told["ipam"], "dataDir": str(folder / f"{side}-leases")}
    subnet = f"10.{list(KINDS).index(kind) + 77 + 10 * (side == 'ours')}.0.0/16"
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
