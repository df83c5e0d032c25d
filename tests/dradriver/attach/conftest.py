"""A host of its own for every test that asks for one, with pods that are namespaces."""

import json
import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from podwire.dradriver.attach.attachments import Attachments
from podwire.dradriver.claims.allocations import Allocation, ClaimRef, Device, PodRef
from podwire.dradriver.parameters.settings import Made, Settings
from podwire.linux.net import link_sysctls
from podwire.linux.net.ethtool import Ethtool
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.sysfs import Hardware
from podwire.linux.proc.namespaces import KernelNamespaces, visit
from tests.eventually import eventually

PATIENCE = 60.0
MOMENTARY = {
    *("ifindex", "link_index", "link_netnsid", "valid_life_time", "preferred_life_time", "operstate", "stats"),
    *("topology_change", "root_id"),
}
CARRIER = {"LOWER_UP", "NO-CARRIER"}


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if "host" not in pyfuncitem.fixturenames:
        return None
    arguments = {argname: pyfuncitem.funcargs[argname] for argname in pyfuncitem._fixtureinfo.argnames}
    host = pyfuncitem.funcargs["host"]

    def run() -> None:
        at_once()
        try:
            pyfuncitem.obj(**arguments)
        finally:
            host.end()

    host.alone(run)
    return True


def at_once() -> None:
    """AddressStore can be used as soon as they are there: a test waits for nobody who might have the same."""
    for name in ("all", "default"):
        Path(f"/proc/sys/net/ipv6/conf/{name}/accept_dad").write_text("0")


def ran(*command: str, netns: str = "") -> str:
    entered = ("nsenter", f"--net={netns}", "--", *command) if netns else command
    done = subprocess.run(entered, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, f"{command}: {done.stderr}{done.stdout}"
    return done.stdout


def is_momentary(key: str) -> bool:
    return key in MOMENTARY or key.endswith("_timer")


def lasting(reported: object) -> object:
    """Without what changes by itself."""
    match reported:
        case {"qdisc": "noop", **others}:
            return lasting({**others, "qdisc": "noqueue"})  # of a link that is down, and was or was not up before
        case dict():
            return {key: lasting(each) for key, each in reported.items() if not is_momentary(key)}
        case list():
            return [lasting(item) for item in reported if item and not (isinstance(item, str) and item in CARRIER)]
    return reported


def differences(where: str, was: object, is_now: object) -> list[str]:
    """In few words, by their places."""
    match was, is_now:
        case (dict(), dict()):
            keys = [*was, *(item for item in is_now if item not in was)]
            return [found for key in keys for found in differences(f"{where}.{key}", was.get(key), is_now.get(key))]
        case (list(), list()) if len(was) == len(is_now):
            pairs = enumerate(zip(was, is_now, strict=True))
            return [found for i, (one, two) in pairs for found in differences(f"{where}[{i}]", one, two)]
    return [] if was == is_now else [f"{where}: was {was}, is {is_now}"]


class Host:
    def __init__(self, directory: Path, alone: Callable[[Callable[[], None]], None]) -> None:
        self.state = directory / "state"
        self.alone = alone
        self._spaces = KernelNamespaces(directory / "ns")
        self._open: list[Attachments] = []
        self._claims = 0

    def attachments(self, **more: Any) -> Attachments:
        self._open.append(Attachments(self.state, **more))
        return self._open[-1]

    def pod(self, name: str = "pod") -> str:
        made = self._spaces.create(name).path
        self.ip("link set lo up", made)
        with visit(made):
            at_once()
        return made

    def netns(self, name: str) -> str:
        return self._spaces.path(name)

    def remove(self, name: str = "pod") -> None:
        self._spaces.remove(name)

    def ip(self, words: str, netns: str = "") -> list:
        return json.loads(ran("ip", "-j", "-d", *words.split(), netns=netns) or "[]")

    def run(self, words: str, netns: str = "") -> str:
        return ran(*words.split(), netns=netns)

    def nic(self, name: str = "nic0", far: str = "far0", mac: str = "02:00:00:00:00:01") -> None:
        """A link of the host with all that one can have, whose cable ends in a machine of its own."""
        if not any(space.name == "far" for space in self._spaces.list()):
            self.pod("far")
        self.ip(f"link add {name} address {mac} txqueuelen 777 type veth peer name {far}")
        self.ip(f"link set {far} netns {self.far}")
        self.ip(f"link set {far} address 02:00:00:00:00:fe up", self.far)
        self.ip(f"link set {name} mtu 1400 alias cable up")
        eventually(lambda: "fe80" in json.dumps(self.ip(f"addr show {name}")))
        self._not_tentative()

    def say(self, source: str, target: str, address: str, netns_port: int = 7077) -> None:
        """A word from one namespace to an address in another, and the answer."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with visit(target):
            listener = socket.socket(family, socket.SOCK_DGRAM)
        with visit(source):
            speaker = socket.socket(family, socket.SOCK_DGRAM)
        with listener, speaker:
            listener.bind((address, netns_port))
            for item in (listener, speaker):
                item.settimeout(PATIENCE)
            speaker.sendto(b"hello", (address, netns_port))
            word, where = listener.recvfrom(100)
            listener.sendto(word.upper(), where)
            assert speaker.recv(100) == b"HELLO"

    def bridge(self, name: str = "br0") -> None:
        self.ip(f"link add {name} address 02:00:00:00:00:b0 type bridge forward_delay 0")
        self.ip("link add port0 type veth peer name port1")
        for item in ("port0", "port1"):
            self.ip(f"link set {item} addrgenmode none up")
        self.ip(f"link set {name} addrgenmode none up")
        self.ip(f"link set port0 master {name}")

    @property
    def far(self) -> str:
        return self._spaces.path("far")

    def furnish(self, name: str = "nic0") -> None:
        self.ip(f"addr add 10.9.1.1/24 dev {name} brd + label {name}:one")
        self.ip(f"addr add 10.9.1.7/24 dev {name}")
        self.ip(f"addr add fd09::1/96 dev {name} nodad")
        self.ip(f"route add 10.77.0.0/16 via 10.9.1.254 dev {name} metric 7 mtu 1300")
        self.ip(f"route add 10.78.0.0/16 dev {name} proto static")
        self.ip(f"route add 10.79.0.0/16 via 10.9.1.254 dev {name} table 100")
        self.ip(f"-6 route add fd77::/64 via fd09::fe dev {name}")
        self.ip("rule add from 10.9.1.0/24 table 100 priority 500")
        self.ip(f"rule add iif {name} table 100 priority 501")
        self.ip(f"neigh add 10.9.1.254 lladdr 02:00:00:00:00:fe dev {name} nud permanent")
        self.ip(f"neigh add fd09::fe lladdr 02:00:00:00:00:fe dev {name} nud permanent")
        ran("tc", "qdisc", "add", "dev", name, "root", "handle", "9:", "pfifo", "limit", "77")
        link_sysctls.write(name, {"ipv4/arp_ignore": "2", "ipv4/rp_filter": "2", "ipv6/accept_ra": "0"})
        with Ethtool() as ethtool, KernelNetwork() as network:
            ethtool.set_features(network.links.get(name).ifindex, {"tx-tcp-segmentation": False})

    def dump(self) -> dict[str, object]:
        """All of the host, but for counters and indexes."""
        with Ethtool() as ethtool, KernelNetwork() as network:
            links = network.links.list()
            own = {
                link.name: (
                    ethtool.features(link.ifindex),
                    link_sysctls.read_all(link.name) if link.name != "lo" else {},
                    network.traffic.shaped(link.ifindex),
                )
                for link in links
            }
        document = {
            "addresses": self.ip("addr show"),
            "routes": self.ip("-4 route show table all"),
            "routes6": self.ip("-6 route show table all"),
            "rules": self.ip("rule show"),
            "rules6": self.ip("-6 rule show"),
            "neighbours": self.ip("neigh show nud permanent"),
            "proxies": self.ip("neigh show proxy"),
            "queues": sorted(ran("tc", "qdisc", "show").splitlines()),
        }
        ordered = {
            key: sorted((lasting(item) for item in value if item), key=json.dumps) for key, value in document.items()
        }
        return {**ordered, "own": own}

    def settled(self, before: dict[str, object]) -> None:
        """Until the kernel's own addresses are back, too."""
        self._not_tentative()
        with suppress(AssertionError):  # what differs says more
            eventually(lambda: self.dump() == before)
        now = self.dump()
        assert [difference for part in now for difference in differences(part, before[part], now[part])] == []

    def _not_tentative(self) -> None:
        eventually(lambda: "tentative" not in json.dumps(self.ip("addr show")))

    def allocation(
        self, device: str = "nic0", *, link: str = "", made: Made | None = None, **more: object
    ) -> Allocation:
        self._claims += 1
        pod = str(more.pop("pod", "pod-uid"))
        share = str(more.pop("share", "share-1" if made else ""))
        with KernelNetwork() as network:
            found = {link.name: link for link in network.links.list()}.get(link or device)
        return Allocation(
            claim=ClaimRef(namespace="default", name=f"claim-{self._claims}", uid=f"claim-uid-{self._claims}"),
            pod=PodRef(namespace="default", name="web", uid=pod),
            request="nic",
            pool="node-1",
            share_id=share,
            device=Device(
                name=device,
                link=link or device,
                ifindex=found.ifindex if found else 0,
                kind=found.kind if found else "",
                mac=found.mac if found else "",
                mtu=found.mtu if found else 1500,
                shared=made is not None,
                hardware=Hardware(),
            ),
            settings=Settings(name=str(more.pop("name", "net1")), made=made or Made(), **more),
        )

    def attached(self, *allocations: Allocation) -> tuple[Attachments, str]:
        """The owner of these in a pod, or a link of the host as it is; and the pod's namespace."""
        attachments, pod = self.attachments(), self.pod()
        attachments.prepare(allocations or [self.allocation()])
        attachments.attach("pod-uid", pod)
        return attachments, pod

    def end(self) -> None:
        for item in self._open:
            item.close()
        for space in self._spaces.list():
            self._spaces.remove(space.name)


@pytest.fixture
def host(tmp_path, alone):
    return Host(tmp_path, alone)
