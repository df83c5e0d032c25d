"""The messages and the table of calls: numbers and names are the wire's own."""

import re
from pathlib import Path

import pytest

from podwire.protocols.nri import methods
from podwire.protocols.nri import nri_pb2 as pb

PACKAGE = "nri.pkg.api.v1alpha1"


def test_the_package_is_the_one_that_peers_name():
    assert pb.DESCRIPTOR.package == PACKAGE
    assert f"{PACKAGE}.Plugin" == methods.PLUGIN_SERVICE
    assert f"{PACKAGE}.Runtime" == methods.RUNTIME_SERVICE


@pytest.mark.parametrize("method", [*methods.RUNTIME, *methods.PLUGIN], ids=lambda each: each.name)
def test_a_call_has_the_messages_of_its_name(method):
    named = method.name
    request, response = method.request.DESCRIPTOR.name, method.response.DESCRIPTOR.name
    assert request == {"StateChange": "StateChangeEvent", "Shutdown": "Empty"}.get(named, f"{named}Request")
    assert response == ("Empty" if named in ("RegisterPlugin", "Shutdown", "StateChange") else f"{named}Response")


def test_no_call_is_in_the_table_twice_and_no_constant_is_left_out():
    listed = [*methods.RUNTIME, *methods.PLUGIN]
    assert len({item.path for item in listed}) == len(listed)
    constants = [value for name, value in vars(methods).items() if name.isupper() and hasattr(value, "path")]
    assert {constant.path for constant in constants} == {item.path for item in listed}


NUMBERS = {
    "ConfigureResponse": {"events": 2},
    "RegisterPluginRequest": {"plugin_name": 1, "plugin_idx": 2, "NRI_version": 3},
    "ConfigureRequest": {
        "config": 1,
        "runtime_name": 2,
        "runtime_version": 3,
        "registration_timeout": 4,
        "request_timeout": 5,
        "NRI_version": 6,
    },
    "SynchronizeRequest": {"pods": 1, "containers": 2, "more": 3},
    "SynchronizeResponse": {"update": 1, "more": 2},
    "ContainerAdjustment": {
        "annotations": 2,
        "mounts": 3,
        "env": 4,
        "hooks": 5,
        "linux": 6,
        "rlimits": 7,
        "CDI_devices": 8,
        "args": 9,
    },
    "LinuxContainerAdjustment": {
        "devices": 1,
        "resources": 2,
        "cgroups_path": 3,
        "oom_score_adj": 4,
        "io_priority": 5,
        "seccomp_policy": 6,
        "namespaces": 7,
        "sysctl": 8,
        "net_devices": 9,
        "scheduler": 10,
        "rdt": 11,
        "memory_policy": 12,
    },
    "ValidateContainerAdjustmentRequest": {
        "pod": 1,
        "container": 2,
        "adjust": 3,
        "update": 4,
        "owners": 5,
        "plugins": 6,
    },
}


@pytest.mark.parametrize(("message", "numbers"), NUMBERS.items(), ids=list(NUMBERS))
def test_fields_have_the_numbers_of_the_interface(message, numbers):
    fields = pb.DESCRIPTOR.message_types_by_name[message].fields
    assert {field.name: field.number for field in fields} == numbers


@pytest.mark.parametrize(
    ("message", "data"),
    [
        pytest.param(pb.ConfigureResponse(events=(1 << 14) - 1), "10 ff7f", id="all events"),
        pytest.param(
            pb.CreateContainerResponse(adjust=pb.ContainerAdjustment(env=[pb.KeyValue(key="K", value="v")])),
            "0a 08  22 06  0a 01 4b 12 01 76",
            id="one variable",
        ),
        pytest.param(pb.OptionalInt64(value=0), "", id="zero in an optional is an empty message"),
        pytest.param(pb.LinuxMemory(limit=pb.OptionalInt64()), "0a 00", id="which is there"),
        pytest.param(
            pb.LinuxContainerAdjustment(oom_score_adj=pb.OptionalInt(value=-5)),
            "22 0b 08 fbffffffffffffffff01",
            id="below zero",
        ),
    ],
)
def test_messages_are_these_bytes(message, data):
    assert message.SerializeToString() == bytes.fromhex(data)
    assert type(message).FromString(bytes.fromhex(data)) == message


def test_a_field_of_the_future_survives_a_peer_of_today():
    later = bytes.fromhex("10 01  ba3e 03 616263")  # field 999
    assert pb.ConfigureResponse.FromString(later).SerializeToString() == later


def test_the_words_of_owners_cover_every_field_of_the_enumeration_once():
    text = Path(pb.__file__).with_name("nri.proto").read_text(encoding="utf-8")
    body = re.search(r"enum Field \{(.*?)\}", text, re.DOTALL)
    numbers = [int(match) for match in re.findall(r"= (\d+);", body[1])]
    assert numbers == list(range(41))
