"""Every plugin that others have, too, beside theirs: the same configuration on two fresh hosts, and all that can be
read from the kernel is the same: links, addresses, routes, sysctls and results, after ADD and after DEL.

What differs on purpose is named in `OWN_SYSCTLS`, and nowhere else. Rules are not compared: theirs are iptables.
"""

import re
from ipaddress import ip_interface, ip_network
from pathlib import Path

import pytest

from podwire.linux import syscalls
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.sysctls import KernelSysctls
from podwire.linux.proc.namespaces import in_thread, visit
from podwire.linux.values import Route, Veth

PLACES = (Path("/usr/lib/cni"), Path(__file__).parents[2] / ".venv/debian/usr/lib/cni")
DUAL = ("10.88.0.0/24", "fd88::/64")
ROUTES = [{"dst": "10.99.0.0/16"}, {"dst": "fd99::/64"}, {"dst": "10.98.0.0/16", "gw": "10.88.0.77"}]
STATIC = {
    "type": "static",
    "addresses": [{"address": "10.77.0.5/24", "gateway": "10.77.0.1"}, {"address": "fd77::5/64", "gateway": "fd77::1"}],
    "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
}
DNS = {"dns": {"nameservers": ["10.77.0.53"], "search": ["x"]}}

OWN_SYSCTLS = {
    "accept_dad": "an address can be used at once",
    "accept_ra": "nobody poses as a router towards pods that have a gateway",
    "keep_addr_on_down": "an address outlives a link that goes down, as with newer versions of theirs",
    "ndisc_notify": "a new address is announced, as with newer versions of theirs",
    "mtu": "reported with the link",
    "stable_secret": "unreadable until it is set",
}


def configs():
    """Names, plugins and what is asked of them; `%` stands for addresses from ranges."""
    yield "bridge", {"type": "bridge", "isGateway": True}
    yield "bridge, default gateway", {"type": "bridge", "isDefaultGateway": True, "hairpinMode": True}
    yield "bridge, bare", {"type": "bridge", "mtu": 1400, "bridge": "br7"}
    yield "bridge, without addresses", {"type": "bridge", "ipam": {}}
    yield "bridge, static", {"type": "bridge", "isGateway": True, "ipam": STATIC}
    yield "ptp", {"type": "ptp"}
    yield "ptp, servers of the IPAM", {"type": "ptp", "ipam": STATIC | DNS}
    yield "ptp, static", {"type": "ptp", "ipam": STATIC | DNS, "mtu": 1400, "dns": {"domain": "y"}}
    yield "macvlan", {"type": "macvlan", "master": "wire0"}
    yield (
        "macvlan, private",
        {"type": "macvlan", "master": "wire0", "mode": "private", "mtu": 1300, "dns": {"domain": "y"}},
    )
    yield "macvlan, default route", {"type": "macvlan", "mode": "vepa", "ipam": STATIC}
    yield "macvlan, without addresses", {"type": "macvlan", "master": "wire0", "mac": "02:00:00:00:00:07", "ipam": {}}
    yield "host-device", {"type": "host-device", "device": "dev0"}
    yield "host-device, by MAC", {"type": "host-device", "hwaddr": "02:00:00:00:00:09", "ipam": STATIC}
    yield "host-device, without addresses", {"type": "host-device", "device": "dev0", "ipam": {}}
    yield "loopback", {"type": "loopback", "ipam": {}}
    yield "host-local", {"type": "host-local"}
    yield "static", {"type": "static", "ipam": STATIC | DNS}


@pytest.fixture(scope="session")
def reference():
    found = next((place for place in PLACES if (place / "bridge").exists()), None)
    assert found is not None, "scripts/setup unpacks the reference plugins"
    return found


def furnish():
    """The host before any plugin runs: a wire with the default route, and a device to give away."""
    with KernelNetwork() as here:
        here.links.change("lo", up=True)
        here.links.add(Veth("wire0", "wire1", mac="02:00:00:00:00:01"))
        here.links.add(Veth("dev0", "dev1", mac="02:00:00:00:00:09"))
        for name in ("wire0", "wire1", "dev1"):
            here.links.change(here.links.get(name).ifindex, up=True)
        index = here.links.get("wire0").ifindex
        here.addresses.add(index, ip_interface("192.0.2.1/24"))
        here.routes.add(Route(ip_network("0.0.0.0/0"), ifindex=index))


def renamed(text, names):
    """Random names are replaced by what they are."""
    for name, reported in names.items():
        text = text.replace(name, reported)
    return text


def lots(network):
    """Links with names that nobody chose."""
    drawn = [link.name for link in network.links.list() if re.fullmatch(r"veth[0-9a-f]{8,11}", link.name)]
    return {each: f"veth#{at}" for at, each in enumerate(sorted(drawn))}


def shown(netns=None):
    """All that the kernel tells of a namespace: links, addresses, routes, sysctls."""
    with KernelNetwork(netns) as network:
        names = lots(network)
        links = {link.ifindex: link for link in network.links.list()}
        document = {index: renamed(each.name, names) for index, each in links.items()}
        return {
            "links": sorted(
                (document[index], each.kind, each.mtu, each.up, each.mode, document.get(each.master, ""), each.hairpin)
                for index, each in links.items()
            ),
            "addresses": sorted(
                (document[address.ifindex], str(address.interface))
                for address in network.addresses.list()
                if not address.interface.is_link_local
            ),
            "routes": sorted(
                (
                    str(route.destination),
                    str(route.gateway),
                    document[route.ifindex],
                    str(route.source),
                    route.metric,
                    route.scope,
                )
                for family in (4, 6)
                for route in network.routes.list(family)
                if not route.destination.is_link_local and not route.destination.is_multicast
            ),
            "sysctls": sysctls(netns, names),
        }


def sysctls(netns, names):
    """Those of every link and family, and whether the host forwards."""
    found = {}
    with visit(netns or "/proc/thread-self/ns/net"):
        for family in ("ipv4", "ipv6"):
            top = Path(f"/proc/sys/net/{family}/conf")
            for path in top.glob("*/*"):
                if path.name not in OWN_SYSCTLS:
                    found[renamed(f"{family} {path.parent.name} {path.name}", names)] = path.read_text().strip()
        found["ip_forward"] = Path("/proc/sys/net/ipv4/ip_forward").read_text().strip()
    return found


def reported(result, names):
    """A result without what differs by chance: MAC addresses that are drawn by lot, and the names of pairs."""
    interfaces = [
        {"name": renamed(interface["name"], names), "sandbox": bool(interface.get("sandbox"))}
        for interface in result.get("interfaces", ())
    ]
    ips = [
        {key: value for key, value in address.items() if key != "version"} for address in result.get("ips", ())
    ]  # lo's has none
    return {**result, "interfaces": interfaces, "ips": ips, "dns": result.get("dns", {})}


def flat(seen, where=""):
    """One line for each thing, so that what differs can be read."""
    if isinstance(seen, dict):
        for key, value in seen.items():
            yield from flat(value, f"{where}{key}: ")
    elif isinstance(seen, list):
        for item in seen:
            yield from flat(item, where)
    else:
        yield f"{where}{seen}"


def life(host, config, programs):
    """Observations of one pod on a fresh host, from its ADD to its DEL."""
    seen = {}

    def run():
        syscalls.unshare(syscalls.NEWNET)
        furnish()
        host.programs, host.way = programs, "program"
        pod = host.pod("a")
        for name in ("all", "default"):  # theirs waits for it
            KernelSysctls(pod).write(f"net.ipv6.conf.{name}.accept_dad", "0")
        before = shown()
        result = host.add("a", config)
        with KernelNetwork() as here:
            seen["result"] = reported(result, lots(here))
        seen["host"], seen["pod"] = shown(), shown(pod)
        host.delete("a", config)
        seen["host after"], seen["pod after"] = shown(), shown(pod)
        seen["links before and after"] = before["links"], seen["host after"]["links"]
        host.namespaces.remove("a")

    in_thread(run)
    return seen


@pytest.mark.parametrize(
    ("keys", "version"),
    [
        pytest.param(keys, version, id=f"{name}, {version}")
        for name, keys in configs()
        for version in ("0.3.1", "1.0.0")
        if version == "1.0.0" or name == keys["type"]  # of each plugin one
    ],
)
def test_same_configuration_gives_the_same_kernel_state(host, reference, programs, tmp_path, keys, version):
    outcomes = []
    for place in (programs, reference):
        ranges = host.bridge(*DUAL)["ipam"] | {"dataDir": str(tmp_path / place.name), "routes": ROUTES}
        config = {"cniVersion": version, "name": "net", "ipam": ranges, "dataDir": str(host.records)} | keys
        outcomes.append(life(host, config, place))
    ours, theirs = ({*flat(outcome)} for outcome in outcomes)
    assert (sorted(ours - theirs), sorted(theirs - ours)) == ([], [])
    assert not list(host.records.glob("*/*"))
