"""Every key of the reference plugins, 1.1 to 1.9: it is read, or refused by its name; none is passed over in silence.

That a key is read is seen by what becomes of a value of no sense.
"""

import pytest

READ = {
    "bridge": {
        *("bridge", "isGateway", "isDefaultGateway", "forceAddress", "ipMasq", "mtu", "hairpinMode", "promiscMode"),
        *("macspoofchk", "portIsolation", "disableContainerInterface", "dns", "ipam"),
    },
    "ptp": {"ipMasq", "mtu", "dns", "ipam"},
    "macvlan": {"master", "mode", "mtu", "mac", "linkInContainer", "bcqueuelen", "dns", "ipam"},
    "ipvlan": {"master", "mode", "mtu", "linkInContainer", "dns", "ipam"},
    "vlan": {"master", "vlanId", "mtu", "linkInContainer", "dns", "ipam"},
    "dummy": {"ipam"},
    "sbr": {"table", "gateways", "addSourceHints"},
    "vrf": {"vrfname", "table"},
    "host-device": {"device", "hwaddr", "kernelpath", "pciBusID", "dns", "ipam"},
    "portmap": {"snat", "masqAll"},
    "bandwidth": {"ingressRate", "ingressBurst", "egressRate", "egressBurst"},
    "firewall": {"ingressPolicy"},
    "tuning": {"sysctl", "mac", "mtu", "promisc", "allmulti", "txQLen", "dataDir"},
}
IPAM = {
    "host-local": {"ranges", "routes", "resolvConf", "dataDir", "rangeStart", "rangeEnd", "gateway", "subnet"},
    "static": {"addresses", "routes", "dns"},
}
CAPABILITIES = {
    "bridge": {"mac", "ips", "ipRanges"},
    "macvlan": {"mac"},
    "host-device": {"deviceID"},
    "portmap": {"portMappings"},
    "bandwidth": {"bandwidth"},
    "tuning": {"mac"},
}
REFUSED = {
    "bridge": {
        "vlan": 5,
        "vlanTrunk": [{"id": 5}],
        "enabledad": True,
        "ipMasqBackend": "ebpf",
    },
    "ptp": {"ipMasqBackend": "ebpf"},
    "host-device": {"useInterfaceNetwork": True},
    "portmap": {
        "backend": "ebpf",
        "markMasqBit": 13,
        "externalSetMarkChain": "KUBE-MARK-MASQ",
        "conditionsV4": ["-s", "10.0.0.0/8"],
        "conditionsV6": ["-s", "fd00::/8"],
    },
    "firewall": {"backend": "firewalld", "iptablesAdminChainName": "MINE", "firewalldZone": "public"},
}
PREVIOUS = {
    "cniVersion": "1.1.0",
    "interfaces": [{"name": "cni0"}, {"name": "eth0", "sandbox": "/nowhere"}],
    "ips": [{"address": "10.88.0.2/24", "interface": 1}],
}
CHAINED = ("portmap", "bandwidth", "firewall", "tuning", "sbr", "vrf")


def config(host, plugin):
    result = host.bridge() | {"type": plugin}
    result |= {"prevResult": PREVIOUS} if plugin in CHAINED else {}
    return result | ({"device": "nobody0"} if plugin == "host-device" else {})


def flat(table):
    return [pytest.param(plugin, key, id=f"{plugin} {key}") for plugin, keys in table.items() for key in sorted(keys)]


@pytest.mark.parametrize(("plugin", "key"), flat(READ))
def test_key_of_a_wrong_type_is_an_error(host, refused, plugin, key):
    host.pod("a")
    senseless = 5 if key in ("dns", "ipam", "sysctl") else {"no": "sense"}
    with refused(6, key):
        host.add("a", config(host, plugin) | {"device": "", key: senseless})


@pytest.mark.parametrize(("plugin", "key"), flat(IPAM))
def test_ipam_key_of_a_wrong_type_is_an_error(host, plugin, key):
    ipam = {"type": plugin, "subnet": "10.88.0.0/24", "dataDir": str(host.root / "ipam"), key: 5}
    with pytest.raises(Exception, match=key) as caught:
        host.add("a", host.bridge(type=plugin) | {"ipam": ipam}, CNI_NETNS="/dev/null")
    assert caught.value.code in (6, 7)


@pytest.mark.parametrize(("plugin", "key"), flat(CAPABILITIES))
def test_capability_of_a_wrong_type_is_an_error(host, plugin, key):
    host.pod("a")
    with pytest.raises(Exception, match=f"(?i){key}") as caught:
        host.add("a", config(host, plugin) | {"device": "", "ingressRate": None, "runtimeConfig": {key: 5}})
    assert caught.value.code == 6


@pytest.mark.parametrize(("plugin", "key"), flat(REFUSED))
def test_unsupported_key_is_an_error_with_its_name(host, refused, plugin, key):
    host.pod("a")
    with refused(2, key):
        host.add("a", config(host, plugin) | {key: REFUSED[plugin][key]})
    assert host.left() == {}
