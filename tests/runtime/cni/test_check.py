"""Pods' networks are checked, in turn and when they change: with recorder plugins, and with ours on the real kernel."""

import asyncio
import contextlib
import json
import sys
import time
from pathlib import Path

import pytest

from podwire.cniplugins.install import install
from podwire.linux import syscalls
from podwire.linux.net.network import KernelNetwork
from podwire.linux.nft.table import KernelElements
from podwire.linux.proc.namespaces import KernelNamespaces, in_thread
from podwire.protocols.cri import cri_pb2 as pb
from podwire.runtime.cni import Checker, CheckSettings
from podwire.runtime.cni.check import PodCallbacks
from podwire.runtime.cni.check_results import CHECKS, load_results
from podwire.runtime.cni.limits import CniLimits
from podwire.runtime.ports import Attachment
from podwire.transports.clock import SystemClock

SECONDS = 60
REFERENCE = Path("/usr/lib/cni")
MS_REC_PRIVATE = 16384 | 1 << 18
NO = {"exit": 1, "stdout": json.dumps({"cniVersion": "1.1.0", "code": 101, "msg": "the route is gone"})}
LATER = {"exit": 1, "stdout": json.dumps({"cniVersion": "1.1.0", "code": 11, "msg": "not now"})}


SOON = {"first_check": 0.1, "quiet": 0.1, "confirm": 0.1, "after_restart": 0.1}


class Reports:
    """The reports of a checker; all pods are ready until one has lost its network."""

    def __init__(self, network):
        self._caller = network
        self.states = []
        self.lost = []
        self._changed = asyncio.Event()
        self.checker = None

    @property
    def idle(self):
        """Nothing is checked, or to be checked before its turn."""
        return not any(check.busy or check.hinted for check in self.checker._checks.values())

    def on_result_changed(self, id_):
        self.states.append((id_, json.loads(self._caller.check_report(id_))["state"]))
        self._changed.set()

    async def lose_network(self, id_):
        self.lost.append(id_)
        self._changed.set()

    def is_ready(self, id_):
        return id_ not in self.lost

    async def until(self, true):
        async with asyncio.timeout(SECONDS):
            while not true():
                self._changed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.05):  # what plugins did is seen in files, and nobody tells of those
                        await self._changed.wait()


@contextlib.asynccontextmanager
async def checked(node, **settings):
    """A network with its checker, as a runtime has them."""
    network = node.cni(plugin=20.0, **SOON)
    reports = Reports(network)
    pods = PodCallbacks(reports.is_ready, reports.on_result_changed, reports.lose_network)
    reports.checker = Checker(network, CheckSettings(**settings), pods, SystemClock())
    async with reports.checker.running():
        yield network, reports
    await network.close()


def checks(node):
    return [call["plugin"] for call in node.calls() if call["verb"] == "CHECK"]


async def test_a_pod_is_checked_periodically_until_it_is_detached(node, pod):
    node.network("one", "two")
    async with checked(node, interval=0.4) as (network, reports):
        await network.attach(pod)
        assert checks(node) == [], "not before its start is over"
        await reports.until(lambda: len(checks(node)) >= 6)
        assert checks(node)[:4] == ["one", "two", "one", "two"]
        asked = next(call for call in node.calls() if call["verb"] == "CHECK")
        assert asked["env"]["CNI_CONTAINERID"] == pod.id
        assert asked["config"]["prevResult"]["by two"], "receives the last result of ADD"
        assert json.loads(network.check_report(pod.id))["state"] == "ok"
        await network.detach(pod)
        count = len(checks(node))
        await asyncio.sleep(1.0)
        assert len(checks(node)) == count
    assert reports.states == []
    assert node.called()[-1] == "one DEL"
    assert network.check_report(pod.id) == ""
    assert load_results(node.cache.parent / CHECKS) == {}


async def test_a_failure_is_reported_once_and_so_is_the_recovery(node, pod):
    node.network("one", "two")
    async with checked(node, interval=0.3) as (network, reports):
        await network.attach(pod)
        await reports.until(lambda: len(checks(node)) >= 2)
        node.script({"two CHECK": NO})
        await reports.until(lambda: reports.states)
        count = len(checks(node))
        await reports.until(lambda: len(checks(node)) >= count + 4)
        assert reports.states == [(pod.id, "failed")]
        assert json.loads(network.check_report(pod.id))["message"] == (
            "CNI plugin two failed CHECK: code 101: the route is gone"
        )
        node.script({})
        await reports.until(lambda: len(reports.states) == 2)
        await network.detach(pod)
    assert reports.states == [(pod.id, "failed"), (pod.id, "ok")]
    assert reports.lost == []


async def test_the_next_start_continues_where_the_last_one_ended(node, pod):
    node.network("one")
    node.script({"one CHECK": NO})
    async with checked(node, interval=0.3) as (network, reports):
        await network.attach(pod)
        await reports.until(lambda: reports.states)
    since = json.loads(network.check_report(pod.id))["since"]
    count = len(checks(node))
    async with checked(node, interval=0.3) as (network, reports):
        await reports.until(lambda: len(checks(node)) >= count + 2)
        assert reports.states == [], "its failure was reported before"
        assert json.loads(network.check_report(pod.id))["since"] == since
        node.script({})
        await reports.until(lambda: reports.states)
        await network.detach(pod)
    assert reports.states == [(pod.id, "ok")]


@pytest.mark.parametrize(
    ("keys", "interval"),
    [
        pytest.param({"disableCheck": True}, 0.2, id="disableCheck"),
        pytest.param({"cniVersion": "0.3.1"}, 0.2, id="a version without CHECK"),
        pytest.param({}, 0.0, id="an interval of 0"),
    ],
)
async def test_no_plugin_is_called_with(node, pod, keys, interval):
    node.network("one", **keys)
    async with checked(node, interval=interval) as (network, reports):
        await network.attach(pod)
        await asyncio.sleep(0.6)
        await network.detach(pod)
    assert (checks(node), reports.states) == ([], [])


async def test_a_plugin_error_without_a_finding_is_not_reported(node, pod):
    node.network("one")
    async with checked(node, interval=0.3, action="restart") as (network, reports):
        await network.attach(pod)
        await reports.until(lambda: network.check_report(pod.id))
        node.script({"one CHECK": LATER})
        count = len(checks(node))
        await reports.until(lambda: len(checks(node)) >= count + 4)
        assert json.loads(network.check_report(pod.id))["state"] == "ok"
        await network.detach(pod)
    assert (reports.states, reports.lost) == ([], [])


async def test_restart_gives_up_a_pod_that_lost_its_network(node, pod):
    node.network("one")
    async with checked(node, interval=0.3, action="restart") as (network, reports):
        await network.attach(pod)
        await reports.until(lambda: network.check_report(pod.id))
        count = len(checks(node))
        node.script({"one CHECK": NO})
        await reports.until(lambda: reports.lost)
        assert len(checks(node)) >= count + 2, "not at the first word"
        await network.detach(pod)
    assert (reports.states, reports.lost) == ([(pod.id, "failed")], [pod.id])


async def test_a_pod_that_never_passed_a_check_is_reported_not_restarted(node, pod):
    node.network("one")
    node.script({"one CHECK": NO})
    async with checked(node, interval=0.2, action="restart") as (network, reports):
        await network.attach(pod)
        await reports.until(lambda: len(checks(node)) >= 6)
        await network.detach(pod)
    assert (reports.states, reports.lost) == ([(pod.id, "failed")], [])


async def test_a_check_and_the_del_of_its_pod_do_not_overlap(node, pod):
    node.network("one")
    node.script({"one CHECK": {"sleep": 0.3}})
    network = node.cni()
    await network.attach(pod)
    done = []

    async def noted(name, work):
        await work
        done.append(name)

    await asyncio.gather(noted("check", network.check(pod.id, 1.0)), noted("detach", network.detach(pod)))
    assert done == ["check", "detach"]
    assert await network.check(pod.id, 2.0) is None
    await network.close()


async def test_few_pods_are_checked_at_the_same_time(node, pod):
    node.network("one")
    pods = [Attachment(id=f"pod{number}", netns=pod.netns, name="p", namespace="d", uid="u") for number in range(10)]
    now, most, seen = set(), 0, set()
    async with checked(node, interval=0.2) as (network, reports):

        async def check(id_, _wall):
            nonlocal most
            now.add(id_)
            most = max(most, len(now))
            await asyncio.sleep(0.05)
            now.remove(id_)
            seen.add(id_)

        await asyncio.gather(*map(network.attach, pods))
        network.check = check
        await reports.until(lambda: len(seen) == len(pods))
        await asyncio.gather(*map(network.detach, pods))
    assert most == CniLimits().concurrent_checks


# On the real kernel


def configure(node, root):
    ipam = {"type": "host-local", "dataDir": str(root / "ipam"), "ranges": [[{"subnet": "10.78.0.0/24"}]]}
    bridge = {"type": "bridge", "bridge": "pw0", "isDefaultGateway": True, "ipMasq": True, "ipam": ipam}
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    for item in (bridge, portmap):
        item["dataDir"] = str(root / "records")
    node.network(bridge, portmap)
    install(str(node.bin), force=True)


def configure_reference(node, root):
    """The reference plugins know no 1.1.0."""
    ipam = {"type": "host-local", "dataDir": str(root / "ipam"), "ranges": [[{"subnet": "10.78.0.0/24"}]]}
    node.network({"type": "bridge", "bridge": "pw0", "isDefaultGateway": True, "ipam": ipam}, cniVersion="1.0.0")
    for name in ("bridge", "host-local"):
        (node.bin / name).symlink_to(REFERENCE / name)


class Host:
    """A network of its own with two pods, of which `a` has a port; only what changes has them checked."""

    def __init__(self, node, namespaces, network, reports):
        self.node, self.namespaces, self.network, self.reports = node, namespaces, network, reports
        self.pods = [self.pod("a", 8080), self.pod("b", 8081)]

    def pod(self, name, port):
        ports = (pb.PortMapping(protocol=pb.TCP, container_port=80, host_port=port),)
        return Attachment(id=name, netns=self.namespaces.path(name), name=name, namespace="d", uid=name, ports=ports)

    async def checked_once(self):
        await self.reports.until(lambda: all(self.network.check_report(pod.id) for pod in self.pods))

    def checked_at(self, id_):
        return json.loads(self.network.check_report(id_))["checkedAt"]

    async def drift(self, id_, break_, mend):
        """Break something of a pod, and mend it: both are reported of that pod alone."""
        before = len(self.reports.states)
        begun = time.monotonic()
        break_()
        await self.reports.until(lambda: len(self.reports.states) > before)
        sys.stdout.write(f"{self.network.check_report(id_)} after {time.monotonic() - begun:.3f} s\n")
        begun = time.monotonic()
        mend()
        await self.reports.until(lambda: len(self.reports.states) > before + 1)
        sys.stdout.write(f"well again after {time.monotonic() - begun:.3f} s\n")
        assert self.reports.states[before:] == [(id_, "failed"), (id_, "ok")]


def on_the_kernel(node, root, story):
    """In a thread with namespaces of its own; the interval is an hour, so nothing is found in turn."""

    async def live(namespaces):
        async with checked(node, interval=3600.0) as (network, reports):
            host = Host(node, namespaces, network, reports)
            await asyncio.gather(*map(network.attach, host.pods))
            await host.checked_once()
            await story(host)
            await asyncio.gather(*map(network.detach, host.pods))

    def run():
        syscalls.unshare(syscalls.NEWNET | syscalls.NEWNS)
        syscalls.mount(None, "/", None, MS_REC_PRIVATE, None)
        namespaces = KernelNamespaces(root / "netns")
        for letter in "ab":
            namespaces.create(letter)
        with KernelNetwork() as here:
            here.links.change("lo", up=True)
        asyncio.run(live(namespaces))

    in_thread(run)


async def _route(host):
    with KernelNetwork(host.pods[0].netns) as inside:
        default = next(route for route in inside.routes.list(4) if not route.destination.prefixlen)
        await host.drift("a", lambda: inside.routes.delete(default), lambda: inside.routes.replace(default))


async def _link(host):
    with KernelNetwork() as here:
        with KernelNetwork(host.pods[0].netns) as inside:
            name = here.links.get(inside.links.get("eth0").peer).name
        await host.drift("a", lambda: here.links.change(name, up=False), lambda: here.links.change(name, up=True))


async def _port(host):
    elements = KernelElements()
    ours = next(element for element in elements.list("ports4") if " b " in element.comment)
    await host.drift("b", lambda: elements.delete("ports4", ours), lambda: elements.add("ports4", ours))
    elements.close()


async def _others(host):
    """Another pod comes and goes: the two are not checked for that. The first of all made the bridge and the rules."""
    host.namespaces.create("c")
    other = host.pod("c", 8082)
    await asyncio.sleep(2 * CniLimits().netlink_debounce)
    await host.reports.until(lambda: host.reports.idle)
    before = [host.checked_at(letter) for letter in "ab"]
    await host.network.attach(other)
    await host.network.detach(other)
    await asyncio.sleep(2 * CniLimits().netlink_debounce)
    assert host.reports.idle
    assert [host.checked_at(letter) for letter in "ab"] == before


@pytest.mark.parametrize("story", [_route, _link, _port, _others], ids=["route", "link", "port", "others"])
def test_a_change_is_noticed_when_it_happens(node, tmp_path, story):
    before = sockets()
    configure(node, tmp_path)
    on_the_kernel(node, tmp_path, story)
    assert sockets() <= before


@pytest.mark.skipif(not (REFERENCE / "bridge").exists(), reason="the reference plugins are not installed")
def test_plugins_of_others_are_asked_the_same(node, tmp_path):
    configure_reference(node, tmp_path)
    on_the_kernel(node, tmp_path, _route)


def sockets():
    """Files that this process has open."""
    found = set()
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add(str(path.readlink()))
    return {item for item in found if item.startswith("socket:")}
