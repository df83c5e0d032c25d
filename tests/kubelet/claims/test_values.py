"""Records, responses of drivers, and their reports: pure decisions."""

import json

import msgspec
import pytest

from podwire.kubelet.claims import responses, status
from podwire.kubelet.claims.claim_info import ClaimInfo, ClaimUser, PreparedDevice
from podwire.kubelet.claims.device_health import DeviceHealth, DeviceHealths
from podwire.kubelet.claims.drivers import choose_version
from podwire.kubelet.claims.pod_claims import DeviceRequest
from podwire.kubelet.claims.required_plugins import plugins, requiring
from podwire.kubelet.plugin_manager import Announced, Refused
from podwire.protocols.dra import dra_v1_pb2, dra_v1beta1_pb2, health_v1_pb2

RECORD = ClaimInfo(
    uid="1",
    namespace="ns",
    name="mine",
    allocation="x",
    drivers={"d": (PreparedDevice(pool="n", name="eth2", requests=("r",), cdi=("d/nic=1",), share_id="s"),), "e": None},
    users=(ClaimUser(uid="u", name="p"),),
)


ASKED = [RECORD, msgspec.structs.replace(RECORD, uid="2", name="other")]


@pytest.mark.parametrize("kinds", [dra_v1_pb2, dra_v1beta1_pb2], ids=["v1", "v1beta1"])
def test_a_prepare_response_is_read(kinds):
    answer = kinds.NodePrepareResourcesResponse()
    device = kinds.Device(request_names=["r"], pool_name="n", device_name="a", cdi_device_ids=["d/nic=a"])
    answer.claims["1"].devices.append(device)
    answer.claims["2"].error = "no such cable"
    judged = responses.prepared("d", ASKED, answer)
    assert judged.done == {"1": (PreparedDevice(pool="n", name="a", requests=("r",), cdi=("d/nic=a",)),)}
    assert judged.failures == ["DRA driver d: NodePrepareResources failed for ResourceClaim other: no such cable"]


@pytest.mark.parametrize(
    ("uids", "cdi", "why"),
    [
        pytest.param("1", "d/nic=a", "NodePrepareResources skipped 1 ResourceClaims", id="one is missing"),
        pytest.param("", "d/nic=a", "NodePrepareResources skipped 2 ResourceClaims", id="all are"),
        pytest.param(
            "123", "d/nic=a", "NodePrepareResources returned result for unknown claim UID 3", id="one too many"
        ),
        pytest.param(
            "12",
            "nic=a",
            "NodePrepareResources failed for ResourceClaim mine: "
            "devices[0].cdi_device_ids[0]: 'nic=a' is not VENDOR/CLASS=NAME",
            id="no name of a device",
        ),
    ],
)
def test_an_answer_that_makes_no_sense_is_refused(uids, cdi, why):
    answer = dra_v1_pb2.NodePrepareResourcesResponse()
    for uid in uids:
        answer.claims[uid].devices.add(pool_name="n", device_name="a", cdi_device_ids=[cdi])
    assert responses.prepared("d", ASKED, answer).failures[0] == f"DRA driver d: {why}"


def test_a_share_of_a_device_is_known_by_its_id():
    answer = dra_v1_pb2.NodePrepareResourcesResponse()
    answer.claims["1"].devices.add(pool_name="n", device_name="a", share_id="s")
    answer.claims["1"].devices.add(pool_name="n", device_name="b")
    assert [item.share_id for item in responses.prepared("d", ASKED[:1], answer).done["1"]] == ["s", None]


def test_an_unprepare_response_is_read():
    answer = dra_v1_pb2.NodeUnprepareResourcesResponse()
    answer.claims["1"].error = ""
    judged = responses.unprepared("d", ASKED, answer)
    assert (list(judged.done), judged.failures) == (
        ["1"],
        ["DRA driver d: NodeUnprepareResources skipped 1 ResourceClaims"],
    )
    answer.claims["2"].error = "stuck"
    judged = responses.unprepared("d", ASKED, answer)
    assert judged.failures == ["DRA driver d: NodeUnprepareResources failed for ResourceClaim other: stuck"]


def announced(tmp_path, **what):
    document = {"name": "d.example.org", "endpoint": tmp_path / "dra.sock", "versions": ("v1.DRAPlugin",), **what}
    return Announced(type="DRAPlugin", **document)


@pytest.mark.parametrize(
    ("versions", "chosen"),
    [
        (("v1.DRAPlugin", "v1beta1.DRAPlugin"), "v1.DRAPlugin"),
        (("v1beta1.DRAPlugin", "v1.DRAPlugin"), "v1beta1.DRAPlugin"),
        (("v9.DRAPlugin", "v1alpha1.DRAResourceHealth", "v1beta1.DRAPlugin"), "v1beta1.DRAPlugin"),
    ],
    ids=["the newer first", "the older first", "strange ones between"],
)
def test_of_a_drivers_versions_the_first_that_is_known_is_spoken(tmp_path, versions, chosen):
    assert choose_version(announced(tmp_path, versions=versions)) == chosen


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ({"versions": ("v9.DRAPlugin",)}, "v9.DRAPlugin; expected at least one of v1.DRAPlugin, v1beta1.DRAPlugin"),
        ({"versions": ()}, ": none; expected at least one of"),
        ({"name": ""}, "invalid name of DRA driver plugin ''"),
        ({"name": "Nic_1"}, "invalid name of DRA driver plugin 'Nic_1': a lowercase RFC 1123 subdomain"),
        ({"name": "a" * 64}, "must be no more than 63 characters"),
        ({"endpoint": "dra.sock"}, "at endpoint dra.sock: expected an absolute path"),
        ({"endpoint": "/" + "x" * 107}, "it has 108 bytes, the limit is 107"),
    ],
    ids=["another version", "no version", "no name", "a bad name", "a long name", "no path", "a long path"],
)
def test_an_incompatible_driver_is_rejected_with_the_reason(tmp_path, what, why):
    if "endpoint" in what:
        what["endpoint"] = type(tmp_path)(what["endpoint"])
    with pytest.raises(Refused) as reported:
        choose_version(announced(tmp_path, **what))
    assert why in str(reported.value)


POD, ANY, MAIN = (f"required-plugins.noderesource.dev{name}" for name in ("/pod", "", "/container.main"))


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        pytest.param({}, {POD: ["n"]}, id="none"),
        pytest.param({POD: "[a, b]"}, {POD: ["a", "b", "n"]}, id="its own stay"),
        pytest.param({POD: '["n"]'}, {POD: ["n"]}, id="each once"),
        pytest.param({ANY: "[a]"}, {POD: ["a", "n"]}, id="what counted before the more specific one does"),
        pytest.param({MAIN: "[a]"}, {MAIN: ["a", "n"], POD: ["n"]}, id="a container's own list is no way out"),
        pytest.param({POD: "", MAIN: "null"}, {POD: ["n"], MAIN: ["n"]}, id="empty lists"),
    ],
)
def test_the_sandbox_annotation_names_required_plugins(given, reported):
    found = requiring({"other": "x", **given}, ["n"])
    assert {key: json.loads(text) for key, text in found.items()} == reported


@pytest.mark.parametrize("text", ["{", "a: b", "7", "[1]", "[" + "a," * 3000 + "]"])
def test_a_list_that_cannot_be_read_is_left_for_the_runtime_to_refuse(text):
    assert requiring({POD: text}, ["n"]) == {POD: text}


def test_only_drivers_that_work_through_a_plugin_need_one():
    assert plugins(["gpu.example.org", "net.podwire.dev"]) == ["network-driver"]
    assert requiring({POD: "[a]"}, plugins(["gpu.example.org"])) == {}


def reported(device, status, seconds=0, message=""):
    return health_v1_pb2.DeviceHealth(
        device=health_v1_pb2.DeviceIdentifier(pool_name="n", device_name=device),
        health=status,
        health_check_timeout_seconds=seconds,
        message=message,
    )


def test_a_health_report_expires():
    healths = DeviceHealths()
    assert healths.update([reported("a", 1, 5), reported("b", 2, message="no carrier"), reported("c", 0)], 100.0) == {
        ("n", "a"), ("n", "b"), ("n", "c")
    }  # fmt: skip
    assert healths.get("n", "a") == DeviceHealth("Healthy", "", 105.0)
    assert healths.get("n", "b") == DeviceHealth("Unhealthy", "no carrier", 130.0)
    assert healths.get("n", "c").status == "Unknown"
    assert healths.next == 105.0
    assert healths.update([reported("a", 1, 10)], 103.0) == set()
    assert healths.expire(112.9) == set()
    assert healths.expire(113.0) == {("n", "a")}
    assert healths.get("n", "a") is None
    assert healths.clear() == {("n", "b"), ("n", "c")}
    assert healths.next is None


DEVICES = ClaimInfo(
    uid="1", namespace="ns", name="mine", allocation="",
    drivers={"d": (PreparedDevice(pool="n", name="a", cdi=("d/nic=1",)),
                   PreparedDevice(pool="n", name="b", cdi=("d/nic=1",))),
             "e": (PreparedDevice(pool="n", name="c", share_id="s"),)},
)  # fmt: skip


def test_how_devices_are_is_in_the_status_of_the_container_that_has_them():
    known = {
        ("d", "n", "a"): DeviceHealth("Unhealthy", "no carrier", 0.0),
        ("e", "n", "c"): DeviceHealth("Healthy", "", 0.0),
    }
    found = status.statuses(
        [DeviceRequest("claim:nic", "mine", ""), DeviceRequest("", "mine", "")],
        {"mine": DEVICES},
        lambda *key: known.get(key),
    )
    assert found == [
        {
            "name": "claim:nic",
            "resources": [
                {"resourceID": "d/nic=1", "health": "Unhealthy", "message": "no carrier"},
                {"resourceID": "d/n/b", "health": "Unknown"},
                {"resourceID": "e/n/c", "health": "Healthy"},
            ],
        }
    ]


def test_dynamic_resources_are_listed_by_container():
    (one,) = status.dynamic_resources(
        [DeviceRequest("", "mine", ""), DeviceRequest("", "mine", "x")], {"mine": DEVICES}
    )
    assert (one.claim_namespace, one.claim_name) == ("ns", "mine")
    assert [(resource.driver_name, resource.device_name) for resource in one.claim_resources] == [
        ("d", "a"),
        ("d", "b"),
        ("e", "c"),
    ]
    assert [[cdi.name for cdi in resource.cdi_devices] for resource in one.claim_resources] == [
        ["d/nic=1"],
        ["d/nic=1"],
        [],
    ]
    assert [resource.share_id if resource.HasField("share_id") else None for resource in one.claim_resources] == [
        None,
        None,
        "s",
    ]
