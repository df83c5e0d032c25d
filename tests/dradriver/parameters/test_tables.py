"""Both tables, through the driver's own eyes."""

from ipaddress import ip_interface

import pytest

from podwire.dradriver.claims.allocations import Refused

CLAIM = "spec.devices.config[0].opaque.parameters"
CLASS = "deviceClass net.example spec.config[0].opaque.parameters"
SETTINGS = {
    "name": "name",
    "mtu": "mtu",
    "dhcp": "dhcp",
    "addressPool": "pool",
    "gsoMaxSize": "gso_max_size",
    "groMaxSize": "gro_max_size",
    "gsoIPv4MaxSize": "gso_ipv4_max_size",
    "groIPv4MaxSize": "gro_ipv4_max_size",
    "forwarding": "forwarding",
    "arpIgnore": "arp_ignore",
    "arpAnnounce": "arp_announce",
    "disableEbpf": "detach_ebpf",
}
"""Fields that are decided as they are said."""


def test_invalid_parameters_are_refused_with_field_and_reason(refused_case, decide_case):
    with pytest.raises(Refused) as refused:
        decide_case(refused_case)
    place = CLASS if refused_case.get("blames") == "class" or "says" not in refused_case else CLAIM
    assert refused.value.field == f"{place}.{refused_case['field']}"
    assert refused_case["reason"] in refused.value.reason
    assert str(refused.value) == f"{refused.value.field}: {refused.value.reason}"


def test_valid_parameters_give_these_settings(accepted_case, decide_case):
    found, says = decide_case(accepted_case), accepted_case.get("says", {})
    said = {name: value for name, value in (says.get("interface") or {}).items() if value is not None}
    plain = {SETTINGS[name]: value for name, value in said.items() if name in SETTINGS}
    assert {name: getattr(found, name) for name in plain} == plain
    if "addresses" in said:
        assert found.addresses == tuple(map(ip_interface, said["addresses"]))
    for name in ("routes", "rules", "neighbours"):
        assert len(getattr(found, name)) == len(says.get(name) or ())
