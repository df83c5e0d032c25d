"""Responses of plugins become settings of a container, or are refused."""

import pytest

from podwire.kubelet.devices.run_options import check, run_options
from podwire.protocols.cri import cri_pb2 as cri
from podwire.protocols.deviceplugin import deviceplugin_pb2 as pb
from podwire.protocols.grpc_status import FailedPrecondition


def answer(**fields):
    return pb.ContainerAllocateResponse(**fields)


def test_everything_that_a_plugin_answers_goes_into_the_container():
    found = run_options(
        [
            answer(
                envs={"A": "1"},
                mounts=[pb.Mount(container_path="/in", host_path="/out", read_only=True)],
                devices=[pb.DeviceSpec(container_path="/dev/x", host_path="/dev/y", permissions="rw")],
                annotations={"example.org/a": "b"},
                cdi_devices=[pb.CDIDevice(name="example.org/nic=a")],
            ),
            answer(envs={"A": "2", "B": "3"}, devices=[pb.DeviceSpec(container_path="/dev/z", host_path="/dev/z")]),
        ],
        "{}",
    )
    assert found.env == {"A": "1", "B": "3"}
    assert found.mounts == (cri.Mount(container_path="/in", host_path="/out", readonly=True),)
    assert found.devices == (
        cri.Device(container_path="/dev/x", host_path="/dev/y", permissions="rw"),
        cri.Device(container_path="/dev/z", host_path="/dev/z", permissions="rwm"),
    )
    assert found.annotations == {"example.org/a": "b", "podwire.dev/devices": "{}"}
    assert found.cdi_devices == ("example.org/nic=a",)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"envs": {"A=B": ""}}, "envs: 'A=B' is not a name of an environment variable"),
        (
            {"mounts": [pb.Mount(container_path="in", host_path="/x")]},
            "mounts[0].container_path: 'in' is not an absolute",
        ),
        ({"mounts": [pb.Mount(container_path="/in")]}, "mounts[0].host_path: '' is not an absolute path"),
        (
            {"devices": [pb.DeviceSpec(container_path="/x", host_path="y")]},
            "devices[0].host_path: 'y' is not an absolute",
        ),
        (
            {"devices": [pb.DeviceSpec(container_path="/x", host_path="/y", permissions="rx")]},
            "devices[0].permissions: 'rx' must be of r, w and m",
        ),
        ({"cdi_devices": [pb.CDIDevice(name="nic")]}, "cdi_devices[0].name: 'nic' is not VENDOR/CLASS=NAME"),
    ],
    ids=["variable", "mount to", "mount from", "device", "permissions", "CDI"],
)
def test_an_invalid_allocate_response_is_rejected_by_field(fields, why):
    with pytest.raises(FailedPrecondition) as refused:
        check(answer(**fields))
    assert why in str(refused.value)
