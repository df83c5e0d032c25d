"""Networks as a node has them: chains of plugins, called one after the other as a runtime does, and killed at work."""

import json
import os
import random
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from podwire.cluster.runtime import Options
from podwire.cniplugins.skeleton import PLUGINS
from podwire.failpoints import KNOWN
from podwire.inspect.leakcheck import Leftover, leaks
from podwire.inspect.leftovers import find_resources
from podwire.ipam import ranges
from podwire.ipam.entries import Owner
from podwire.ipam.leases import Leases
from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import Veth
from podwire.protocols.cni.errors import CniError
from tests.eventually import eventually

SOAK = bool(os.environ.get("PODWIRE_SOAK"))
SEED = int(os.environ.get("PODWIRE_CRASH_SEED", "0")) or int(time.time()) // 3600
"""The same for all workers of a run, another one every hour; set it to repeat a run."""

CHAINS = {
    "bridge": ("bridge", "portmap", "firewall", "bandwidth", "tuning"),
    "ptp": ("ptp", "portmap", "firewall", "bandwidth"),
    "macvlan": ("macvlan", "sbr", "tuning"),
    "host-device": ("host-device", "tuning"),
}
NOT_ON_EVERY_KERNEL = ("ipvlan", "vlan", "dummy", "vrf")
"""Plugins that need modules which many kernels lack: their tests use stand-ins in the test's own process, and that
cannot be killed."""
FAMILIES = ("cni", "ipam")
THE_RUNTIMES = "cni.leaving"
"""A failpoint of the runtime side."""
SUBNETS = ("10.88.0.0/29", "fd88::/125")
CHANGING = (
    "sendto,sendmsg,write,writev,pwrite64,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,symlink,"
    "symlinkat,link,linkat,fsync,fdatasync,ftruncate,fchmod,mount,umount2,unshare,setns,openat"
)
"""System calls that change something, of this process or of the world; of openat, those that make a file."""
_CALLED = re.compile(r"^(?P<pid>\d+) +(?P<name>\w+)\((?P<arguments>.*)$")


class Point(NamedTuple):
    """The n-th call of a kind by one thread; a process killed there dies before it is done."""

    name: str
    number: int


def points_of(trace: str) -> list[Point]:
    """Every point of a recorded run, in order of appearance."""
    counts: Counter[tuple[str, str]] = Counter()
    found: dict[Point, None] = {}
    for line in trace.splitlines():
        called = _CALLED.match(line)
        if called is not None:
            counts[called["pid"], called["name"]] += 1
            if called["name"] != "openat" or "O_CREAT" in called["arguments"]:
                found[Point(called["name"], counts[called["pid"], called["name"]])] = None
    return list(found)


class Network:
    """A chain on a host. Its calls are made in this process, but for those that are to be killed."""

    def __init__(self, host, kind: str) -> None:
        self.host, self.kind = host, kind
        self.results: dict[str, list[dict]] = {}

    def begin(self, id_: str) -> None:
        """A pod, and what its plugins need to be there."""
        self.host.pod(id_)
        with KernelNetwork() as here:
            if self.kind in ("macvlan", "host-device"):
                here.links.add(Veth(f"dev-{id_}", f"far-{id_}", up=True))

    def configs(self, id_: str) -> list[dict]:
        """As its runtime sends them."""
        base = {"cniVersion": "1.1.0", "name": "net", "dataDir": str(self.host.records)}
        main = self.host.bridge(*SUBNETS, type=self.kind)
        del main["isDefaultGateway"]
        port = 8000 + sum(id_.encode())
        ports = [{"hostPort": port, "containerPort": 80, "protocol": name} for name in ("tcp", "udp")]
        keys = {
            "bridge": {"isDefaultGateway": True, "ipMasq": True, "ipspoofchk": True, "hairpinMode": True},
            "ptp": {"ipMasq": True},
            "macvlan": {"master": f"dev-{id_}"},
            "host-device": {"device": f"dev-{id_}"},
            "portmap": {"runtimeConfig": {"portMappings": ports}},
            "firewall": {"ingressPolicy": "isolated" if self.kind == "bridge" else "open"},
            "bandwidth": {"ingressRate": 8_000_000, "egressRate": 8_000_000},
            "sbr": {},
            "tuning": {"sysctl": {"net.core.somaxconn": "500"}, "mtu": 1300},
        }
        return [(main if at == 0 else base | {"type": each}) | keys[each] for at, each in enumerate(CHAINS[self.kind])]

    def config(self, id_: str, at: int) -> dict:
        """With what the plugin before has printed."""
        results = self.results.get(id_, [])
        previous = {"prevResult": results[at - 1]} if 0 < at <= len(results) else {}
        return self.configs(id_)[at] | previous

    def add(self, id_: str, until: int | None = None) -> None:
        """ADD by all plugins, or by those before one."""
        results = self.results.setdefault(id_, [])
        for at in range(len(CHAINS[self.kind]) if until is None else until):
            results.append(self.host.add(id_, self.config(id_, at)))

    def delete(self, id_: str, down_to: int = -1, netns: str | None = None) -> None:
        """DEL by all plugins in reverse, or by those after one; with the last result, if all of them gave one."""
        results = self.results.get(id_, [])
        whole = len(results) == len(CHAINS[self.kind])
        for config in reversed(self.configs(id_)[down_to + 1 :]):
            self.host.delete(id_, config | ({"prevResult": results[-1]} if whole else {}), netns)

    def collect(self, *valid: str) -> None:
        stay = [{"containerID": item, "ifname": "eth0"} for item in valid]
        for config in self.configs("a"):
            assert self.host.call("GC", "", config | {"cni.dev/valid-attachments": stay}, "") is None

    def check(self, id_: str) -> None:
        for config in self.configs(id_):
            self.host.check(id_, config, self.results[id_][-1])

    def recover(self, how: str) -> None:
        """As a runtime does after whatever has happened to pod a; b lives on, if it is there."""
        if how != "DEL" and self.kind != "host-device":  # with its namespace a device that is not hardware ends
            self.host.namespaces.remove("a")
        if how == "GC":
            self.collect(*(result for result in self.results if result != "a"))
        else:
            self.delete("a", netns=None if how == "DEL" else "")

    def capacity(self) -> int:
        """How many pods there is an address for, found by giving all of them."""
        leases = Leases(str(self.host.leases))
        sets = ranges.parse_sets(self.configs("a")[0]["ipam"])
        probes = [Owner(f"probe{number}", "eth0") for number in range(CAPACITY + 1)]
        with suppress(CniError):
            for probe in probes:
                leases.take(probe, sets)
        return sum(bool(leases.release(probe)) for probe in probes)

    def dies(self, verb: str, id_: str, config: dict, point: str) -> bool:
        """Whether the plugin's program passes a failpoint, and so is killed there; else it must succeed."""
        process = self.host.run(verb, id_, config, PODWIRE_FAILPOINTS=f"{point}=kill")
        stdout, stderr = process.communicate(timeout=60)
        assert process.returncode in (0, -signal.SIGKILL), stdout
        assert stderr == b""
        if verb == "ADD" and process.returncode == 0:
            self.results[id_].append(json.loads(stdout))
        return process.returncode != 0

    def is_home(self, id_: str) -> bool:
        """Whether the device of a pod is where it was."""
        with KernelNetwork() as here:
            there = {link.name: link for link in here.links.list()}
        return self.kind != "host-device" or (there[f"dev-{id_}"].up, there[f"dev-{id_}"].alias) == (True, "")

    def settled(self, how: str) -> None:
        """After all is given back: nothing is left of pod a, b has noticed nothing, and the pool is whole."""
        others = [result for result in self.results if result != "a"]
        for other in others:
            self.check(other)
            assert self.capacity() == CAPACITY - len(others), how
            self.delete(other)
        assert self.host.left() == {}, how
        assert not SOAK or leakcheck(self.host) == [], how
        assert self.capacity() == CAPACITY, how
        assert self.is_home("a"), how


def leakcheck(host) -> list[Leftover]:
    """The report of `podwire leakcheck`, where nobody has a pod."""
    return leaks(find_resources(Options(socket=host.root / "cri.sock", prefix=host.root)), ())


CAPACITY = min(
    ranges.size(set_) for set_ in ranges.parse_sets({"ranges": [[{"subnet": subnet}] for subnet in SUBNETS]})
)


Called = Callable[..., tuple[int, str]]
"""A plugin is asked under the eyes of strace: its exit code, and what was seen."""


class Attack(NamedTuple):
    """The plugin, chain and verb to kill, and the number of failpoints to try; 0 is all."""

    kind: str
    at: int
    verb: str
    points: int

    def __str__(self) -> str:
        plugin = CHAINS[self.kind][self.at]
        return f"{self.verb} of {plugin}" + (f" after {self.kind}" if self.at else "")

    def arrange(self, network: Network, *, beside: bool) -> None:
        """Up to the call that is attacked; maybe another pod is there that must not notice anything."""
        if beside:
            network.begin("b")
            network.add("b")
        network.begin("a")
        network.add("a", self.at if self.verb == "ADD" else None)
        if self.verb == "DEL":
            network.delete("a", down_to=self.at)

    def config(self, network: Network) -> dict:
        if self.verb == "ADD":
            return network.config("a", self.at)
        return network.configs("a")[self.at] | {"prevResult": network.results["a"][-1]}

    def recorded(self, network: Network, called: Called) -> list[Point]:
        """All points of it, from a run to its end."""
        self.arrange(network, beside=False)
        code, trace = called(network.host, self.verb, self.config(network), f"trace={CHANGING}")
        assert code == 0, f"{self} failed"
        return points_of(trace)

    def chosen(self, points: list[Point]) -> list[Point]:
        chance = random.Random(f"{SEED} {self}")
        return points if not self.points else chance.sample(points, min(self.points, len(points)))

    def struck(self, network: Network, point: Point, called: Called) -> bool:
        """Whether somebody died: who was called, or a process of its own."""
        rules = f"trace={point.name}", f"inject={point.name}:signal=KILL:when={point.number}"
        return "killed by SIGKILL" in called(network.host, self.verb, self.config(network), *rules)[1]


def by_program(host, verb: str, config: dict, *rules: str, programs: Path | None = None) -> tuple[int, str]:
    """A plugin's program under strace: its exit code, and what was seen."""
    trace = host.root / "strace"
    words = ["strace", "-f", "-qq", "-o", trace, *(word for rule in rules for word in ("-e", rule))]
    done = subprocess.run(
        [*words, (programs or host.programs) / config["type"]],
        input=json.dumps(config).encode(),
        env=host.environment(verb, "a"),
        capture_output=True,
        check=False,
        timeout=60,
    )
    return done.returncode, trace.read_text(errors="replace")


def by_forwarder(host, verb: str, config: dict, *rules: str) -> tuple[int, str]:
    """The same, when a daemon does the work: it goes on without the program."""
    return by_program(host, verb, config, *rules, programs=host.begin())


def by_daemon(host, verb: str, config: dict, *rules: str) -> tuple[int, str]:
    """The same, when it is the daemon that is watched."""
    trace = host.root / "strace"
    words = ["strace", "-f", "-qq", "-o", trace, *(word for rule in rules for word in ("-e", rule))]
    with host.daemon_process() as daemon, subprocess.Popen([*words, "-p", str(daemon.pid)]) as watching:
        eventually(lambda: watching.poll() is not None or _is_watched(daemon.pid))
        process = host.run(verb, "a", config)
        process.communicate(timeout=60)
        _end(watching)
    return process.returncode, trace.read_text(errors="replace")


def _end(watching: subprocess.Popen) -> None:
    """strace may wait for ever for threads of a process that it has killed."""
    watching.terminate()
    try:
        watching.wait(2)
    except subprocess.TimeoutExpired:
        watching.kill()


def _is_watched(pid: int) -> bool:
    tasks = list(Path(f"/proc/{pid}/task").iterdir())
    try:
        return all("\nTracerPid:\t0\n" not in (task / "status").read_text() for task in tasks)
    except FileNotFoundError:
        return False  # a thread has ended meanwhile: look again


def attacks(how_many: int, points: int) -> list[Attack]:
    every = [
        Attack(kind, at, verb, 0 if SOAK else points)
        for kind, plugins in CHAINS.items()
        for at in range(len(plugins))
        for verb in ("ADD", "DEL")
    ]
    return every if SOAK else random.Random(SEED).sample(every, how_many)


class Step(NamedTuple):
    """A failpoint, and the plugin of a chain that passes it."""

    point: str
    kind: str
    at: int

    def __str__(self) -> str:
        return self.point


def declared() -> set[str]:
    """All failpoints that plugins and their IPAM pass, on any kernel."""
    for plugin in PLUGINS.values():
        import_module(plugin)
    others = (THE_RUNTIMES, *(f"cni.{plugin}-" for plugin in NOT_ON_EVERY_KERNEL))
    return {point for point in KNOWN if point.partition(".")[0] in FAMILIES and not point.startswith(others)}


def steps() -> list[Step]:
    """Every failpoint once: in the chain that begins with its plugin, or in the longest."""
    found: dict[str, Step] = {}
    for kind, plugins in CHAINS.items():
        for at, plugin in enumerate(plugins):
            own = f"cni.{plugin}-", *(("ipam.",) if at == 0 else ())
            for item in sorted(declared()):
                if item.startswith(own):
                    found.setdefault(item, Step(item, kind, at))
    return list(found.values())
