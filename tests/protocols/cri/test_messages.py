"""The messages as bytes: numbers and types are the interface's, so that any peer reads them."""

import subprocess
import sys

import pytest

from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.grpc_methods import ServerStream

GOLDEN = [
    pytest.param(pb.VersionRequest(version="v1"), "0a 02 7631", id="VersionRequest"),
    pytest.param(
        pb.VersionResponse(version="0.1.0", runtime_name="x", runtime_version="1", runtime_api_version="v1"),
        "0a 05 302e312e30  12 01 78  1a 01 31  22 02 7631",
        id="VersionResponse",
    ),
    pytest.param(
        pb.ImageSpec(image="a", annotations={"k": "v"}, user_specified_image="b", runtime_handler="c", image_ref="d"),
        "0a 01 61  12 06 0a016b120176  9201 01 62  9a01 01 63  a201 01 64",
        id="ImageSpec has numbers above 15",
    ),
    pytest.param(
        pb.RunPodSandboxRequest(
            config=pb.PodSandboxConfig(
                metadata=pb.PodSandboxMetadata(name="n", uid="u", namespace="s", attempt=300),
                port_mappings=[pb.PortMapping(protocol=pb.UDP, container_port=53, host_port=-1)],
                linux=pb.LinuxPodSandboxConfig(
                    security_context=pb.LinuxSandboxSecurityContext(
                        run_as_user=pb.Int64Value(value=0),
                        run_as_group=pb.Int64Value(value=7),
                        supplemental_groups=[1, 300],
                        supplemental_groups_policy=pb.Strict,
                    )
                ),
            ),
            runtime_handler="h",
        ),
        "0a 30"
        "  0a 0c 0a016e 120175 1a0173 20ac02"
        "  2a 0f 0801 1035 18ffffffffffffffffff01"
        "  42 0f 12 0d 1a00 2a03 01ac02 4202 0807 5801"
        "  12 01 68",
        id="RunPodSandboxRequest",
    ),
    pytest.param(
        pb.KeyValue(key="K", value=b"\xff"), "0a 01 4b  12 01 ff", id="an environment's value need not be UTF-8"
    ),
    pytest.param(
        pb.ContainerConfig(CDI_devices=[pb.CDIDevice(name="d")], stop_signal=pb.SIGTERM),
        "8a01 03 0a0164  9001 17",
        id="ContainerConfig",
    ),
    pytest.param(
        pb.PsiStats(Full=pb.PsiData(Total=1, Avg10=0.5)), "0a 0b 0801 11000000000000e03f", id="pressure is a double"
    ),
]


@pytest.mark.parametrize(("message", "wire"), GOLDEN)
def test_a_message_is_these_bytes_and_back(message, wire):
    assert message.SerializeToString(deterministic=True).hex() == bytes.fromhex(wire).hex()
    assert type(message).FromString(bytes.fromhex(wire)) == message


def test_windows_fields_are_passed_on_as_unknown_fields():
    windows = bytes.fromhex("4a 04 0a02 2001")
    config = pb.PodSandboxConfig.FromString(windows)
    config.hostname = "h"
    assert config.SerializeToString() == bytes.fromhex("12 01 68") + windows


def test_an_absent_number_differs_from_zero():
    assert not pb.LinuxContainerSecurityContext().HasField("run_as_user")
    root = pb.LinuxContainerSecurityContext(run_as_user=pb.Int64Value(value=0))
    assert pb.LinuxContainerSecurityContext.FromString(root.SerializeToString()).HasField("run_as_user")


def test_signals_have_their_own_numbers():
    assert (pb.RUNTIME_DEFAULT, pb.SIGHUP, pb.SIGINT, pb.SIGKILL, pb.SIGTERM, pb.SIGRTMIN, pb.SIGRTMAX) == (
        0,
        8,
        10,
        13,
        23,
        35,
        65,
    )


def test_the_table_has_every_call_of_both_services_as_the_proto_declares_it():
    declared = {
        (
            service.full_name,
            method.name,
            method.input_type.full_name,
            method.output_type.full_name,
            method.server_streaming,
        )
        for service in pb.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    table = {
        (
            method.service,
            method.name,
            method.request.DESCRIPTOR.full_name,
            method.response.DESCRIPTOR.full_name,
            isinstance(method, ServerStream),
        )
        for method in methods.ALL
    }
    assert table == declared
    assert len(methods.ALL) == 41
    assert methods.IMAGE_FS_INFO.path == "/runtime.v1.ImageService/ImageFsInfo"


def test_importing_the_messages_brings_no_grpc_and_no_event_loop():
    code = "import sys, podwire.protocols.cri.methods; print(*{'grpc', 'asyncio', 'socket', 'ssl'} & set(sys.modules))"
    finished = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout.split() == []
