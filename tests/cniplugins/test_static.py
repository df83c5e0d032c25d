"""static: the addresses that are named, from wherever they are named."""

import pytest

from podwire.cniplugins.skeleton import Call
from podwire.cniplugins.static.plugin import parse_request
from podwire.protocols.cni.config import plugin_config
from podwire.protocols.cni.values import dumped
from podwire.protocols.cni.verbs import Invocation

all_ways = pytest.mark.parametrize("way", ["in process", "program", "daemon"])
ADDRESSES = [{"address": "10.10.0.1/24", "gateway": "10.10.0.254"}, {"address": "fd10::1/64", "gateway": "fd10::fe"}]


def config(*addresses, ipam=None, **keys):
    document = {"type": "static", "addresses": list(addresses) or ADDRESSES} | (ipam or {})
    return {"cniVersion": "1.1.0", "name": "net", "type": "static", "ipam": document} | keys


@all_ways
def test_result_has_addresses_routes_and_dns_of_the_configuration(host, way):
    routes = [{"dst": "0.0.0.0/0"}, {"dst": "10.9.0.0/16", "gw": "10.10.0.5", "mtu": 1300}]
    dns = {"nameservers": ["10.10.0.53"], "domain": "x", "search": ["a"], "options": ["ndots:5"]}
    asked = config(ipam={"routes": routes, "dns": dns})
    result = host.add("a", asked, CNI_NETNS="/dev/null")
    assert result == {"cniVersion": "1.1.0", "ips": ADDRESSES, "routes": routes, "dns": dns}
    host.check("a", asked, result)
    host.delete("a", asked)
    host.delete("a", asked, "")
    assert host.left() == {}


@pytest.mark.parametrize(
    ("keys", "said", "expected"),
    [
        pytest.param({}, "", ["10.10.0.1/24 by 10.10.0.254", "fd10::1/64 by fd10::fe"], id="configuration"),
        pytest.param(
            {},
            "IP=10.11.0.7/24, fd11::7/64;GATEWAY=10.11.0.1,fd10::ff",
            [
                "10.10.0.1/24 by 10.10.0.254",
                "fd10::1/64 by fd10::ff",
                "10.11.0.7/24 by 10.11.0.1",
                "fd11::7/64 by None",
            ],
            id="CNI_ARGS add to it, and gateways go where they belong",
        ),
        pytest.param(
            {"args": {"cni": {"ips": ["10.12.0.1/24"]}}},
            "IP=10.11.0.7/24",
            ["10.12.0.1/24 by None"],
            id="args replace it",
        ),
        pytest.param(
            {"args": {"cni": {"ips": ["10.12.0.1/24"]}}, "runtimeConfig": {"IPs": ["10.13.0.1/24"]}},
            "",
            ["10.13.0.1/24 by None"],
            id="a capability replaces all",
        ),
    ],
)
def test_capability_precedes_args_and_configuration(keys, said, expected):
    asked = parse_request(Call(Invocation("ADD", args=said), plugin_config(dumped(config(**keys)))))
    assert [f"{item.address} by {item.gateway}" for item in asked.ips] == expected


@pytest.mark.parametrize(
    ("keys", "env", "code", "reported"),
    [
        pytest.param({"ipam": None}, {}, 7, "IPAM config missing 'ipam' key", id="no ipam"),
        pytest.param({"ipam": {"addresses": [{"address": "10.1.1.1"}]}}, {}, 7, "the 'address' field", id="no prefix"),
        pytest.param({"ipam": {"addresses": [{"gateway": "10.1.1.1"}]}}, {}, 7, "the 'address' field", id="no address"),
        pytest.param({"ipam": {"addresses": "10.1.1.1/24"}}, {}, 6, "ipam.addresses", id="no list"),
        pytest.param({"ipam": {"routes": [{"dst": "x"}]}}, {}, 7, "ipam.routes", id="no route"),
        pytest.param({"runtimeConfig": {"ips": ["10.1.1.1"]}}, {}, 7, "the 'ips' field", id="capability"),
        pytest.param({"args": {"cni": {"ips": ["x/24"]}}}, {}, 7, "the 'ips' field", id="args"),
        pytest.param({}, {"CNI_ARGS": "IP=10.1.1.1"}, 7, "the 'ip' field", id="CNI_ARGS"),
        pytest.param({}, {"CNI_ARGS": "GATEWAY=x"}, 7, "CNI_ARGS: GATEWAY", id="gateway of CNI_ARGS"),
        pytest.param({}, {"CNI_ARGS": "OTHER=x"}, 4, "OTHER", id="unknown argument"),
        pytest.param(
            {"cniVersion": "0.2.0", "ipam": {"addresses": [{"address": "10.1.1.1/24"}, {"address": "10.1.1.2/24"}]}},
            {},
            7,
            "more than 1 address per family",
            id="two in an old version",
        ),
    ],
)
def test_invalid_configuration_is_an_error(host, refused, keys, env, code, reported):
    asked = config() | keys
    with refused(code, reported):
        host.add("a", asked, **env)


@pytest.mark.parametrize(
    ("ips", "reported"),
    [
        pytest.param([ADDRESSES[0]], "fd10::1/64 is not in prevResult", id="an address"),
        pytest.param(
            [{"address": "10.10.0.1/24"}, ADDRESSES[1]], "does not have the gateway 10.10.0.254", id="a gateway"
        ),
    ],
)
def test_check_fails_for_an_address_missing_in_prev_result(host, refused, ips, reported):
    with refused(101, reported):
        host.check("a", config(), {"cniVersion": "1.1.0", "ips": ips})
    with refused(7, "prevResult"):
        host.call("CHECK", "a", config())


def test_gc_and_status_have_nothing_to_do(host, refused):
    assert host.call("GC", "", config() | {"cni.dev/valid-attachments": []}, "") is None
    assert host.call("STATUS", "", config(), "") is None
    with refused(7, "the .address. field"):
        host.call("STATUS", "", config({"address": "10.1.1.1"}), "")


@all_ways
def test_bridge_delegates_to_static(host, way):
    host.pod("a")
    asked = host.bridge(ipam=config()["ipam"], isDefaultGateway=True)
    result = host.add("a", asked)
    assert result["ips"] == [{"interface": 2, **address} for address in ADDRESSES]
    host.check("a", asked, result)
    host.delete("a", asked)
    assert host.left() == {}
