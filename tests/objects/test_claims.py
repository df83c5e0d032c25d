"""Claims, slices, classes and taints of devices, as components read them."""

import pytest

from podwire.objects import claims, device_classes, device_taints, pods, slices
from podwire.objects.device_taints import DeviceTaint, DeviceToleration

CLAIM = {
    "metadata": {
        "name": "web-nic-x2v4q",
        "namespace": "shop",
        "uid": "c-1",
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "p-1", "controller": True}],
    },
    "spec": {
        "devices": {
            "requests": [
                {"name": "fast", "exactly": {"deviceClassName": "nic", "allocationMode": "ExactCount", "count": 2}},
                {"name": "any", "firstAvailable": [{"name": "sriov", "deviceClassName": "vf", "count": 1}]},
            ],
            "constraints": [{"matchAttribute": "resource.kubernetes.io/pcieRoot"}],
            "config": [{"requests": ["fast"], "opaque": {"driver": "net.example", "parameters": {"mtu": 9000}}}],
        }
    },
    "status": {
        "allocation": {
            "devices": {"results": [{"request": "fast", "driver": "net.example", "pool": "n1", "device": "eth2"}]},
            "nodeSelector": {"nodeSelectorTerms": []},
        },
        "reservedFor": [{"resource": "pods", "name": "web", "uid": "p-1"}],
        "devices": [{"driver": "net.example", "pool": "n1", "device": "eth2", "shareID": "s"}],
    },
}


def test_a_claim_has_requests_and_allocation():
    claim = claims.read(CLAIM)

    fast, either = claim.spec.devices.requests
    assert fast.exactly is not None
    assert (fast.exactly.device_class_name, fast.exactly.count, fast.exactly.admin_access) == ("nic", 2, False)
    assert [item.name for item in either.first_available] == ["sriov"]
    assert claim.spec.devices.config[0].opaque.parameters == {"mtu": 9000}
    assert claim.ref == "shop/web-nic-x2v4q"
    assert claim.owner == ("web", "p-1")
    assert [item.identity for item in claim.allocated] == [("net.example", "n1", "eth2")]
    assert (claim.reserved_for("p-1"), claim.reserved_for("p-2")) == (True, False)


def test_a_claim_that_was_just_made_holds_nothing():
    claim = claims.read({"metadata": {"name": "c"}, "spec": {"devices": {}}, "status": {}})

    assert (claim.allocated, claim.owner, claim.deleting) == ((), ("", ""), False)


def pod(entry, *statuses):
    return pods.read(
        {
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"resourceClaims": [entry]},
            "status": {"resourceClaimStatuses": list(statuses)},
        }
    )


@pytest.mark.parametrize(
    ("entry", "statuses", "name"),
    [
        pytest.param({"name": "nic", "resourceClaimName": "mine"}, [], "mine", id="named by the pod"),
        pytest.param(
            {"name": "nic", "resourceClaimTemplateName": "t"},
            [{"name": "nic", "resourceClaimName": "web-nic-1"}],
            "web-nic-1",
            id="generated",
        ),
        pytest.param({"name": "nic", "resourceClaimTemplateName": "t"}, [{"name": "nic"}], None, id="not needed"),
    ],
)
def test_a_pods_claim_is_found_by_its_name(entry, statuses, name):
    given = pod(entry, *statuses)
    assert claims.name_of(given, claims.of_pod(given)[0]) == name


def test_a_claim_that_is_not_generated_yet_has_no_name():
    given = pod({"name": "nic", "resourceClaimTemplateName": "t"}, {"name": "other", "resourceClaimName": "x"})
    with pytest.raises(claims.NotGenerated, match="shop/web"):
        claims.name_of(given, claims.of_pod(given)[0])


@pytest.mark.parametrize(
    ("given", "type_", "value"),
    [
        ({"int": 0}, "int", 0),
        ({"bool": False}, "bool", False),
        ({"string": ""}, "string", ""),
        ({"version": "1.2.3"}, "version", "1.2.3"),
        ({"strings": ["a", "b"]}, "strings", ("a", "b")),
        ({"ints": [1]}, "ints", (1,)),
        ({}, "", None),
    ],
)
def test_an_attribute_has_one_value_of_one_type(given, type_, value):
    spec = {"driver": "d", "pool": {"name": "n1"}, "devices": [{"name": "eth2", "attributes": {"a": given}}]}
    slice_ = slices.read({"metadata": {"name": "s"}, "spec": spec})

    attribute = slice_.spec.devices[0].attributes["a"]

    assert (attribute.type, attribute.value) == (type_, value)
    assert slice_.pool == ("d", "n1")


def test_a_class_has_selectors_and_driver_configuration():
    spec = {"selectors": [{"cel": {"expression": "true"}}], "config": [{"opaque": {"driver": "d", "parameters": {}}}]}
    read = device_classes.read({"metadata": {"name": "nic"}, "spec": spec})

    assert [selector.cel.expression for selector in read.spec.selectors] == ["true"]
    assert (read.name, read.spec.config[0].opaque.driver) == ("nic", "d")


TAINT = DeviceTaint(key="k", value="v", effect="NoExecute")


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        pytest.param(DeviceToleration(key="k", value="v"), True, id="the same, any effect"),
        pytest.param(DeviceToleration(key="k", value="v", effect="NoExecute"), True, id="the same effect"),
        pytest.param(DeviceToleration(key="k", value="v", effect="NoSchedule"), False, id="another effect"),
        pytest.param(DeviceToleration(key="k", value="w"), False, id="another value"),
        pytest.param(DeviceToleration(key="k", operator="Exists"), True, id="any value"),
        pytest.param(DeviceToleration(operator="Exists"), True, id="everything"),
        pytest.param(DeviceToleration(key="other", operator="Exists"), False, id="another key"),
        pytest.param(DeviceToleration(key="k", operator="Like", value="v"), False, id="an operator of the future"),
    ],
)
def test_a_taint_is_tolerated(toleration, tolerated):
    assert device_taints.tolerates(toleration, TAINT) is tolerated
    assert list(device_taints.untolerated([TAINT], [toleration])) == ([] if tolerated else [TAINT])


def test_taints_without_effect_are_tolerated():
    assert not list(device_taints.untolerated([DeviceTaint(key="k", effect="None")], []))


@pytest.mark.parametrize(
    ("selector", "covered"),
    [
        pytest.param(None, False, id="no selector, no device"),
        pytest.param({}, True, id="all devices"),
        pytest.param({"driver": "d"}, True, id="the driver's"),
        pytest.param({"driver": "d", "pool": "n1", "device": "eth2"}, True, id="this one"),
        pytest.param({"driver": "d", "pool": "n2"}, False, id="of another pool"),
        pytest.param({"device": "eth3"}, False, id="another device"),
    ],
)
def test_a_rule_is_for_the_devices_that_it_selects(selector, covered):
    spec = {"taint": {"key": "k", "effect": "NoExecute"}}
    if selector is not None:
        spec["deviceSelector"] = selector
    rule = device_taints.read_rule({"metadata": {"name": "r"}, "spec": spec})

    assert rule.covers("d", "n1", "eth2") is covered
