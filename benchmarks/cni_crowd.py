"""CNI plugins under many: how long many pods at once take, and what the daemon needs with many attached."""

import contextlib
import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.figures import MEASURED, Figure, Peer
from benchmarks.machine import CannotMeasure
from benchmarks.runtimes import network
from benchmarks.server import DEADLINE, PODWIRE
from podwire.linux import syscalls
from podwire.linux.net.network import KernelNetwork
from podwire.linux.proc.namespaces import KernelNamespaces

GROUP = "CNI, bridge + host-local, masqueraded, dual-stack, many"
AT_ONCE = 64
OURS = {"daemon": "through the daemon", "helper": "without the daemon", "python": "each a Python"}
ATTACHED, PER_NAMESPACE = 1_000, 50
"""A bridge has at most 1 023 ports."""
MEMORY = 40.0
"""Megabytes that the daemon may need with so many."""
_PRIVATE = 1 << 14 | 1 << 18  # MS_REC | MS_PRIVATE


def leave() -> None:
    """The calling thread goes onto a host of its own, which ends with it."""
    syscalls.unshare(syscalls.NEWNET | syscalls.NEWNS)
    syscalls.mount(None, "/", None, _PRIVATE, None)
    syscalls.mount("none", "/run", "tmpfs", 0, None)  # iptables has its lock there
    with KernelNetwork() as host:
        host.links.change("lo", up=True)


@contextlib.contextmanager
def daemon(place: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """On the host of the thread that starts it."""
    with subprocess.Popen([*PODWIRE, "cni", "daemon", "--socket", place, "--log-level", "error"]) as process:
        try:
            until = time.monotonic() + DEADLINE
            while not place.exists():
                if process.poll() is not None or time.monotonic() > until:
                    raise CannotMeasure("the daemon of our CNI plugins does not listen")
                time.sleep(0.01)
            yield process
        finally:
            process.terminate()


def call(programs: Path, verb: str, pod: str, netns: str, config: dict[str, Any], ifname: str = "eth0") -> float:
    """Seconds."""
    environment = {"CNI_COMMAND": verb, "CNI_CONTAINERID": pod, "CNI_NETNS": netns, "CNI_IFNAME": ifname}
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


def measured(folder: Path, sides: dict[str, Path]) -> Iterator[Figure]:
    """In the calling thread, which goes elsewhere."""
    leave()
    namespaces = KernelNamespaces(folder / "netns")
    with daemon(sides["daemon"] / "cni.sock") as process:
        taken = {side: _at_once(folder, namespaces, side, programs) for side, programs in sides.items()}
        for side, description in OURS.items():
            for at, verb in enumerate(("ADD", "DEL")):
                peer = Peer("reference plugins", taken["reference"][at], None, MEASURED)
                what = f"{AT_ONCE} times {verb} at once, {description}"
                yield Figure(group=GROUP, what=what, value=taken[side][at], unit=" s", peer=peer)
        _attach(folder, namespaces, sides["daemon"])
        rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii")
    size = re.search(r"^Pss: +(\d+) kB", rollup, re.MULTILINE)
    if size is None:
        raise CannotMeasure("the kernel does not tell what a process needs")
    budget = Peer("what it may need", MEMORY, 1.0, MEASURED)
    what = f"memory of the daemon with {ATTACHED:,} attachments".replace(",", " ")
    yield Figure(group=GROUP, what=what, value=int(size[1]) / 1024, unit=" MB", peer=budget)


def _config(folder: Path, side: str, number: int) -> dict[str, Any]:
    config = network(bridge=f"crowd-{side[:4]}", ipMasq=True, dataDir=str(folder / f"{side}-records"))
    ranges = [[{"subnet": f"10.{number}.0.0/16"}], [{"subnet": f"fd{number}::/64"}]]
    ipam = {**config["ipam"], "dataDir": str(folder / f"{side}-leases"), "ranges": ranges}
    return {**config, "cniVersion": "1.0.0", "name": "crowd", "ipam": ipam}


def _at_once(folder: Path, namespaces: KernelNamespaces, side: str, programs: Path) -> tuple[float, float]:
    """Seconds until the last of them has ended: ADD, and DEL."""
    config = _config(folder, side, 20 + sorted([*OURS, "reference"]).index(side))
    pods = {f"{side}-{number}": namespaces.create(f"{side}-{number}").path for number in range(AT_ONCE)}
    first = namespaces.create(f"{side}-first").path  # finds the bridge and the chains missing
    call(programs, "ADD", "first", first, config)
    times = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for verb in ("ADD", "DEL"):
            begun = time.perf_counter()
            list(pool.map(lambda pod, verb=verb: call(programs, verb, pod, pods[pod], config), pods))
            times.append(time.perf_counter() - begun)
    call(programs, "DEL", "first", first, config)
    for pod in (*pods, f"{side}-first"):
        namespaces.remove(pod)
    return times[0], times[1]


def _attach(folder: Path, namespaces: KernelNamespaces, programs: Path) -> None:
    config = _config(folder, "daemon", 30) | {"bridge": "attached"}
    for number in range(ATTACHED):
        pod = f"attached-{number // PER_NAMESPACE}"
        if number % PER_NAMESPACE == 0:
            namespaces.create(pod)
        call(programs, "ADD", pod, namespaces.path(pod), config, f"net{number % PER_NAMESPACE}")
    for number in range(ATTACHED // PER_NAMESPACE):
        namespaces.remove(f"attached-{number}")
