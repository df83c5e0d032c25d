"""Invalid input for all plugins, and calls of both executables with it."""

import json
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from tests.cniplugins.support import Host, Refused

RESULT = {
    "cniVersion": "1.0.0",
    "interfaces": [{"name": "eth0", "mac": "02:00:00:00:00:01", "sandbox": "NETNS"}],
    "ips": [{"address": "10.88.0.2/24", "gateway": "10.88.0.1", "interface": 0}],
}
CHAINED = ("portmap", "bandwidth", "firewall", "tuning", "sbr", "vrf")
NO_IPAM = ("loopback", *CHAINED)
OWN = {"macvlan": {"master": "lo"}, "ipvlan": {"master": "lo"}, "vlan": {"master": "lo", "vlanId": 5}}
OWN |= {"host-device": {"device": "lo"}, "vrf": {"vrfname": "red"}}


class Case(NamedTuple):
    plugin: str
    keys: dict[str, Any] = {}  # noqa: RUF012 - never changed
    """Of the configuration; None removes one."""
    verb: str = "ADD"
    env: dict[str, str] = {}  # noqa: RUF012 - never changed
    stdin: bytes | None = None

    def config(self, netns: str, data: Path) -> bytes:
        if self.stdin is not None:
            return self.stdin
        config: dict[str, Any] = {"cniVersion": "1.0.0", "name": "net", "type": self.plugin}
        if self.plugin == "static":
            config["ipam"] = {"type": "static", "addresses": [{"address": "10.88.0.2/24"}]}
        elif self.plugin not in NO_IPAM:
            config["ipam"] = {"type": "host-local", "subnet": "10.88.0.0/24"}
        if self.plugin in CHAINED:
            config["prevResult"] = RESULT
        config |= OWN.get(self.plugin, {}) | self.keys
        if (config.get("ipam") or {}).get("type") == "host-local":
            config["ipam"] = {"dataDir": str(data)} | config["ipam"]
        given = {key: value for key, value in config.items() if value is not None}
        return json.dumps(given).replace('"NETNS"', json.dumps(netns)).encode()


def reference_error(host: Host, directory: Path, case: Case) -> dict[str, Any]:
    """Calls the reference's executable for a pod of its own. Returns its error; empty without one."""
    netns = host.pod("theirs")
    env = host.environment(case.verb, "a", netns, **{"CNI_PATH": str(directory)} | case.env)
    stdin = case.config(netns, host.root / "theirs")
    done = subprocess.run([directory / case.plugin], input=stdin, env=env, capture_output=True, check=False)
    return json.loads(done.stdout) if done.returncode else {}


def our_error(host: Host, case: Case) -> dict[str, Any]:
    netns = host.pod("ours")
    env = host.environment(case.verb, "a", netns, **case.env)
    try:
        host.call_with(env, case.plugin, case.config(netns, host.root / "ours"))
    except Refused as refused:
        return refused.error
    return {}


def ipam(**keys: Any) -> dict[str, Any]:
    return {"ipam": {"type": "host-local", "subnet": "10.88.0.0/24"} | keys}


def ranges(*sets: Any, **keys: Any) -> dict[str, Any]:
    return {"ipam": {"type": "host-local", "ranges": list(sets)}} | keys


def mapping(**keys: Any) -> dict[str, Any]:
    ports = {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"} | keys
    return {"runtimeConfig": {"portMappings": [ports]}}


def static(**keys: Any) -> dict[str, Any]:
    return {"ipam": {"type": "static"} | keys}


ENVIRONMENT = {
    "unknown command": Case("bridge", verb="FOO"),
    "lower case command": Case("bridge", verb="add"),
    "no container id": Case("bridge", env={"CNI_CONTAINERID": ""}),
    "no namespace": Case("bridge", env={"CNI_NETNS": ""}),
    "no interface": Case("bridge", env={"CNI_IFNAME": ""}),
    "neither namespace nor interface": Case("bridge", env={"CNI_NETNS": "", "CNI_IFNAME": ""}),
    "no container id for DEL": Case("bridge", verb="DEL", env={"CNI_CONTAINERID": ""}),
    "no interface for DEL": Case("ptp", verb="DEL", env={"CNI_IFNAME": ""}),
    "no namespace for CHECK": Case("ptp", verb="CHECK", env={"CNI_NETNS": ""}),
    "container id with a slash": Case("bridge", env={"CNI_CONTAINERID": "a/b"}),
    "interface name too long": Case("bridge", env={"CNI_IFNAME": "a" * 16}),
    "interface name of dots": Case("bridge", env={"CNI_IFNAME": ".."}),
    "interface name with a slash": Case("bridge", env={"CNI_IFNAME": "a/b"}),
    "interface name with a colon": Case("bridge", env={"CNI_IFNAME": "a:b"}),
    "interface name with a space": Case("bridge", env={"CNI_IFNAME": "a b"}),
    "arguments that are not pairs": Case("host-local", env={"CNI_ARGS": "FOO"}),
    "unknown arguments": Case("host-local", env={"CNI_ARGS": "FOO=1"}),
    "namespace that does not exist": Case("bridge", env={"CNI_NETNS": "/nowhere"}),
    "namespace that does not exist, ptp": Case("ptp", env={"CNI_NETNS": "/nowhere"}),
    "namespace that does not exist, macvlan": Case("macvlan", env={"CNI_NETNS": "/nowhere"}),
    "namespace that does not exist, host-device": Case("host-device", env={"CNI_NETNS": "/nowhere"}),
    "namespace that is a file": Case("bridge", env={"CNI_NETNS": "/etc/passwd"}),
    "namespace that does not exist, tuning": Case("tuning", {"mtu": 1400}, env={"CNI_NETNS": "/nowhere"}),
    "namespace that does not exist, loopback": Case("loopback", env={"CNI_NETNS": "/nowhere"}),
}
INPUT = {
    "empty input": Case("bridge", stdin=b""),
    "half an object": Case("bridge", stdin=b'{"name": '),
    "a list": Case("bridge", stdin=b"[]"),
    "version that nobody knows": Case("bridge", {"cniVersion": "9.9.9"}),
    "version that nobody knows for DEL": Case("host-local", {"cniVersion": "9.9.9"}, "DEL"),
    "version that is none": Case("bridge", {"cniVersion": "abc"}),
    "version that is a number": Case("bridge", {"cniVersion": 1}),
    "no name": Case("bridge", {"name": None}),
    "no name for DEL": Case("bridge", {"name": None}, "DEL"),
    "name with a slash": Case("bridge", {"name": "a/b"}),
    "name that is a number": Case("bridge", {"name": 5}),
    "CHECK before 0.4.0": Case("bridge", {"cniVersion": "0.3.1"}, "CHECK"),
}
RANGES = {
    "no ipam": Case("host-local", {"ipam": None}),
    "no ipam for CHECK": Case("host-local", {"ipam": None}, "CHECK"),
    "no ranges": Case("host-local", {"ipam": {"type": "host-local"}}),
    "no ranges through bridge": Case("bridge", {"ipam": {"type": "host-local"}}),
    "host bits": Case("host-local", ipam(subnet="10.88.0.1/24")),
    "host bits of IPv6": Case("host-local", ranges([{"subnet": "fd00::1/64"}])),
    "host bits in the second set": Case("host-local", ranges([{"subnet": "10.1.0.0/24"}], [{"subnet": "10.2.0.1/24"}])),
    "subnet that is not a network": Case("host-local", ipam(subnet="garbage")),
    "prefix length beyond all": Case("host-local", ipam(subnet="10.0.0.0/33")),
    "too small": Case("host-local", ipam(subnet="10.88.0.0/31")),
    "too small, IPv6": Case("host-local", ipam(subnet="fd00::/127")),
    "start outside": Case("host-local", ipam(rangeStart="10.89.0.1")),
    "end outside": Case("host-local", ipam(rangeEnd="10.89.0.1")),
    "end before start": Case("host-local", ipam(rangeStart="10.88.0.9", rangeEnd="10.88.0.5")),
    "start that is not an address": Case("host-local", ipam(rangeStart="x")),
    "gateway that is not an address": Case("host-local", ipam(gateway="x")),
    "empty set": Case("host-local", ranges([])),
    "both families in a set": Case("host-local", ranges([{"subnet": "10.1.0.0/24"}, {"subnet": "fd00::/64"}])),
    "overlap in a set": Case("host-local", ranges([{"subnet": "10.1.0.0/24"}, {"subnet": "10.1.0.0/25"}])),
    "overlap of sets": Case("host-local", ranges([{"subnet": "10.1.0.0/24"}], [{"subnet": "10.1.0.0/25"}])),
    "two addresses of a family in 0.2.0": Case(
        "host-local", ranges([{"subnet": "10.1.0.0/24"}], [{"subnet": "10.2.0.0/24"}], cniVersion="0.2.0")
    ),
    "requested address out of range": Case("host-local", env={"CNI_ARGS": "IP=10.99.0.5"}),
    "requested address is the gateway": Case("host-local", env={"CNI_ARGS": "IP=10.88.0.1"}),
    "requested address of another family": Case("host-local", env={"CNI_ARGS": "IP=fd00::5"}),
    "requested address that is none": Case("host-local", env={"CNI_ARGS": "IP=10.88.0"}),
    "full range": Case("host-local", ipam(rangeStart="10.88.0.1", rangeEnd="10.88.0.1")),
    "full range through bridge": Case("bridge", ipam(rangeStart="10.88.0.1", rangeEnd="10.88.0.1")),
    "resolv.conf that does not exist": Case("host-local", ipam(resolvConf="/nowhere")),
    "not leased": Case("host-local", {"prevResult": RESULT}, "CHECK"),
    "route without a network": Case("host-local", ipam(routes=[{"dst": "x"}])),
}
STATIC = {
    "static without ipam": Case("static", {"ipam": None}),
    "static address without a prefix": Case("static", static(addresses=[{"address": "10.0.0.1"}])),
    "static argument without a prefix": Case("static", static(), env={"CNI_ARGS": "IP=10.0.0.1"}),
    "static capability without a prefix": Case("static", static() | {"runtimeConfig": {"ips": ["10.0.0.1"]}}),
    "static gateway that is none": Case("static", static(), env={"CNI_ARGS": "IP=10.0.0.1/8;GATEWAY=x"}),
    "static CHECK without a result": Case("static", verb="CHECK"),
}
LINKS = {
    "hairpin and promiscuous": Case("bridge", {"hairpinMode": True, "promiscMode": True}),
    "bridge name of a link that is not one": Case("bridge", {"bridge": "lo"}),
    "bridge CHECK without a result": Case("bridge", ipam(type="static"), "CHECK"),
    "IPAM that is not there": Case("bridge", {"ipam": {"type": "missing"}}),
    "ptp without ipam": Case("ptp", {"ipam": None}),
    "ptp CHECK without a result": Case("ptp", ipam(type="static"), "CHECK"),
    "macvlan mode": Case("macvlan", {"mode": "x"}),
    "macvlan master": Case("macvlan", {"master": "nope"}),
    "macvlan MTU": Case("macvlan", {"mtu": 100000}),
    "macvlan negative MTU": Case("macvlan", {"mtu": -1}),
    "macvlan without master or default route": Case("macvlan", {"master": None}),
    "macvlan CHECK without a result": Case("macvlan", ipam(type="static"), "CHECK"),
    "ipvlan mode": Case("ipvlan", {"mode": "x"}),
    "ipvlan master": Case("ipvlan", {"master": "nope"}),
    "ipvlan CHECK without a result": Case("ipvlan", ipam(type="static"), "CHECK"),
    "vlan without master": Case("vlan", {"master": None}),
    "vlan master": Case("vlan", {"master": "nope"}),
    "vlan CHECK without a result": Case("vlan", ipam(type="static"), "CHECK"),
    "host-device without a device": Case("host-device", {"device": None}),
    "host-device that does not exist": Case("host-device", {"device": "nope"}),
    "host-device hwaddr": Case("host-device", {"device": None, "hwaddr": "x"}),
    "host-device hwaddr that no link has": Case("host-device", {"device": None, "hwaddr": "02:00:00:00:00:99"}),
    "host-device path that does not exist": Case("host-device", {"device": None, "kernelpath": "/sys/devices/nope"}),
    "host-device path of something else": Case("host-device", {"device": None, "kernelpath": "/etc"}),
    "host-device CHECK without a result": Case("host-device", ipam(type="static"), "CHECK"),
}
META = {
    "firewall without a result": Case("firewall", {"prevResult": None}),
    "firewall CHECK without a result": Case("firewall", {"prevResult": None}, "CHECK"),
    "tuning without a result": Case("tuning", {"prevResult": None}),
    "tuning CHECK without a result": Case("tuning", {"prevResult": None}, "CHECK"),
    "sbr without a result": Case("sbr", {"prevResult": None}),
    "vrf without a result": Case("vrf", {"prevResult": None}),
    "vrf CHECK without a result": Case("vrf", {"prevResult": None}, "CHECK"),
    "portmap without a result": Case("portmap", mapping() | {"prevResult": None}),
    "portmap CHECK without a result": Case("portmap", mapping() | {"prevResult": None}, "CHECK"),
    "host port 0": Case("portmap", mapping(hostPort=0)),
    "negative host port": Case("portmap", mapping(hostPort=-5)),
    "container port 0": Case("portmap", mapping(containerPort=0)),
    "negative container port": Case("portmap", mapping(containerPort=-1)),
    "mark bit": Case("portmap", mapping() | {"backend": "iptables", "markMasqBit": 40}),
    "mark bit and chain": Case(
        "portmap", mapping() | {"backend": "iptables", "markMasqBit": 4, "externalSetMarkChain": "X"}
    ),
    "burst without rate": Case("bandwidth", {"ingressBurst": 1000}),
    "egress burst without rate": Case("bandwidth", {"egressBurst": 1000}),
    "burst beyond 4 GB": Case("bandwidth", {"ingressRate": 1000, "ingressBurst": 1 << 36}),
    "bandwidth without a result": Case("bandwidth", {"ingressRate": 8000, "ingressBurst": 8000, "prevResult": None}),
    "bandwidth CHECK without a result": Case(
        "bandwidth", {"ingressRate": 8000, "ingressBurst": 8000, "prevResult": None}, "CHECK"
    ),
    "firewall policy": Case("firewall", {"ingressPolicy": "x", "backend": "iptables"}),
    "sysctl of another namespace": Case("tuning", {"sysctl": {"kernel.x": "1"}}),
    "tuning MAC": Case("tuning", {"mac": "x"}, env={"CNI_IFNAME": "lo"}),
    "vrf without a name": Case("vrf", {"vrfname": None}),
}
ACCEPTED: dict[str, Any] = {}
ON_PURPOSE = {
    "no path": (Case("loopback", env={"CNI_PATH": ""}), ACCEPTED),
    "largest VLAN id": (Case("vlan", {"vlanId": 4095}), {"code": 7, "msg": "invalid VLAN ID 4095"}),
    "unknown firewall backend": (Case("firewall", {"backend": "x"}), {"code": 2, "msg": "backend: 'x' must be one of"}),
    "host IP that is none": (Case("portmap", mapping(hostIP="x")), {"code": 7, "msg": "invalid IP address: x"}),
    "sysctl with a way out": (
        Case("tuning", {"sysctl": {"net.../../x": "1"}}),
        {"code": 7, "msg": "invalid net sysctl key"},
    ),
    "sbr CHECK without a result": (
        Case("sbr", {"prevResult": None}, "CHECK"),
        {"code": 7, "msg": "must be called as chained plugin"},
    ),
}
"""Answers of podwire where it differs from the reference."""
CASES = ENVIRONMENT | INPUT | RANGES | STATIC | LINKS | META
