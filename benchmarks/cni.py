"""ADD and DEL of bridge with host-local, each a program that is started: ours with and without its daemon, beside the
reference plugins."""

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import cni_crowd
from benchmarks.figures import MEASURED, Figure, Peer
from benchmarks.machine import DISK
from benchmarks.runtimes import network, reference_plugins
from podwire.cniplugins.install import install
from podwire.linux.proc.namespaces import KernelNamespaces, in_thread

GROUP = "CNI, bridge + host-local, one program after the other"
PODS = 4.0
"""For each second that a measurement may take."""
KINDS = {"plain": False, "ipMasq": True, "dual-stack": False}
"""With what is masqueraded."""
VERBS = ("ADD", "DEL")
OURS = {"daemon": "through the daemon", "helper": "without the daemon", "python": "each a Python"}
REFERENCE = "reference"
BUDGETS = {
    "daemon": {"plain": 1 / 2, "ipMasq": 1 / 5, "dual-stack": 1.0},
    "helper": dict.fromkeys(KINDS, 1.0),
    "python": dict.fromkeys(KINDS, 8.0),
}
"""Against the reference plugins."""

Times = dict[tuple[str, str], list[float]]


def measure(seconds: float) -> Iterator[Figure]:
    """All take turns, pod by pod, on one host: a thread with namespaces that end with it."""
    with tempfile.TemporaryDirectory(dir=DISK, prefix="podwire-bench-") as folder:
        sides = {our: Path(folder, our) for our in OURS}
        for our, programs in sides.items():
            helpers = str(programs / "helpers") if our == "helper" else None  # ends with its directory
            install(str(programs), socket=str(_socket(programs)), helpers=helpers)
        pods = max(2, round(PODS * seconds))
        everybody = sides | {REFERENCE: reference_plugins()}
        taken = in_thread(lambda: _pods(Path(folder), everybody, pods))
        yield from figures(taken)
        yield from in_thread(lambda: list(cni_crowd.measured(Path(folder, "crowd"), everybody)))


def figures(taken: dict[str, Times]) -> Iterator[Figure]:
    for side, description in OURS.items():
        for key, times in taken[side].items():
            theirs = statistics.median(taken[REFERENCE][key]) * 1e3
            peer = Peer("reference plugins", theirs, BUDGETS[side][key[1]], MEASURED)
            what, value = f"{', '.join(key)}, {description}", statistics.median(times) * 1e3
            yield Figure(group=GROUP, what=what, value=value, unit=" ms", peer=peer)


def _socket(programs: Path) -> Path:
    return programs / "cni.sock"


def _pods(folder: Path, sides: dict[str, Path], pods: int) -> dict[str, Times]:
    cni_crowd.leave()
    namespaces = KernelNamespaces(folder / "netns")
    taken: dict[str, Times] = {side: {(verb, kind): [] for kind in KINDS for verb in VERBS} for side in sides}
    # The first of each finds the bridge and the chains missing.
    with cni_crowd.daemon(_socket(sides["daemon"])):
        for number in range(-1, pods):
            # There and back: the next one waits for what the kernel still tidies up for the one before.
            for side, programs in sorted(sides.items(), reverse=bool(number % 2)):
                for kind in KINDS:
                    pod = f"{side}-{kind}-{number}".lower()
                    for verb, took in _pod(namespaces, pod, programs, config(folder, side, kind)):
                        taken[side][verb, kind] += [took] if number >= 0 else []
    return taken


def config(folder: Path, side: str, kind: str) -> dict[str, Any]:
    """Each side has a bridge and leases of its own, so that none finds what the other made."""
    bridge = network(bridge=f"{side[:4]}-{kind[:6]}", ipMasq=KINDS[kind], dataDir=str(folder / f"{side}-records"))
    ipam = {**bridge["ipam"], "dataDir": str(folder / f"{side}-leases")}
    subnet = f"10.{list(KINDS).index(kind) + 77 + 10 * (len(OURS) - [*OURS, REFERENCE].index(side))}.0.0/16"
    ranges = [[{"subnet": subnet}], *([[{"subnet": f"fd{subnet[3:5]}::/64"}]] if kind == "dual-stack" else [])]
    return {**bridge, "cniVersion": "1.0.0", "name": kind, "ipam": {**ipam, "ranges": ranges}}


def _pod(namespaces: KernelNamespaces, pod: str, programs: Path, config: dict[str, Any]) -> Iterator[tuple[str, float]]:
    netns = namespaces.create(pod).path
    try:
        for verb in VERBS:
            yield verb, cni_crowd.call(programs, verb, pod, netns, config)
    finally:
        namespaces.remove(pod)
