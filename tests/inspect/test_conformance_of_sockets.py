"""`podwire device-plugin test` and `podwire dra test` check servers in this process, good ones and broken ones."""

import asyncio
import json
import sys
import tempfile
from pathlib import Path

import pytest

from podwire.protocols.deviceplugin import deviceplugin_pb2 as pb
from podwire.protocols.deviceplugin.methods import PLUGIN
from podwire.protocols.dra import dra_v1_pb2 as dra
from podwire.protocols.dra.methods import PLUGIN_V1
from podwire.protocols.grpc_status import InvalidArgument, NotFound
from podwire.protocols.registration import registration_pb2 as registration
from podwire.protocols.registration.methods import ALL
from podwire.transports import grpc_server

PODWIRE = Path(sys.executable).with_name("podwire")
CLAIM = "default/nic/11111111-1111-4111-8111-111111111111"
UID = CLAIM.rpartition("/")[2]


@pytest.fixture
def directory():
    with tempfile.TemporaryDirectory(prefix="pwct", dir="/tmp") as path:
        yield Path(path)


async def check(*words):
    """Returns the exit code, and the names of cases by outcome."""
    done = await asyncio.create_subprocess_exec(
        PODWIRE, *map(str, words), "-o", "json", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, errors = await done.communicate()
    assert not errors, errors
    outcomes = {}
    for case in json.loads(output)["cases"]:
        outcomes.setdefault(case["outcome"], set()).add(case["name"])
    return done.returncode, outcomes


class DevicePlugin:
    """Does what the API asks for, except for what a subclass breaks."""

    devices = ("a", "b", "c")
    health = "Healthy"

    def handlers(self):
        return {
            "GetDevicePluginOptions": self.options,
            "ListAndWatch": self.list_and_watch,
            "GetPreferredAllocation": self.preferred,
            "Allocate": self.allocate,
            "PreStartContainer": self.pre_start,
        }

    async def options(self, _request):
        return pb.DevicePluginOptions(get_preferred_allocation_available=True, pre_start_required=True)

    async def list_and_watch(self, _request):
        yield pb.ListAndWatchResponse(devices=[pb.Device(ID=name, health=self.health) for name in self.devices])
        await asyncio.Event().wait()

    async def preferred(self, request):
        [wanted] = request.container_requests
        chosen = pb.ContainerPreferredAllocationResponse(deviceIDs=wanted.available_deviceIDs[: wanted.allocation_size])
        return pb.PreferredAllocationResponse(container_responses=[chosen])

    async def allocate(self, request):
        if any(set(container.devices_ids) - set(self.devices) for container in request.container_requests):
            raise NotFound("no such device")
        files = [pb.DeviceSpec(container_path="/dev/x", host_path="/dev/null", permissions="rw")]
        answers = [pb.ContainerAllocateResponse(devices=files) for _ in request.container_requests]
        return pb.AllocateResponse(container_responses=answers)

    async def pre_start(self, _request):
        return pb.PreStartContainerResponse()


class EndsItsStream(DevicePlugin):
    async def list_and_watch(self, _request):
        yield pb.ListAndWatchResponse(devices=[pb.Device(ID="a", health="Healthy")])


class SaysOk(DevicePlugin):
    health = "OK"


class NamesTwice(DevicePlugin):
    devices = ("a", "a")


class AnswersOnce(DevicePlugin):
    async def allocate(self, request):
        return pb.AllocateResponse()


class RefusesTheSecond(DevicePlugin):
    used = False

    async def allocate(self, request):
        if self.used:
            raise InvalidArgument("a is allocated already")
        self.used = True
        return await super().allocate(request)


class RelativePath(DevicePlugin):
    async def allocate(self, request):
        files = [pb.DeviceSpec(container_path="dev/x", host_path="/dev/null", permissions="rw")]
        return pb.AllocateResponse(container_responses=[pb.ContainerAllocateResponse(devices=files)])


BROKEN_PLUGINS = {
    EndsItsStream: "ListAndWatch stays open until the kubelet ends it",
    SaysOk: "the health of each device is Healthy or Unhealthy",
    NamesTwice: "ListAndWatch sends all devices at once",
    AnswersOnce: "Allocate answers with one response for each container",
    RefusesTheSecond: "Allocate of the same device works again, as after a restart of a pod",
    RelativePath: "paths and permissions of a response can be used",
}


async def test_a_good_device_plugin_passes(directory):
    server = await grpc_server.serve(directory / "s", PLUGIN, DevicePlugin().handlers())
    try:
        code, outcomes = await check("device-plugin", "test", directory / "s")
    finally:
        await server.close(1)
    assert (code, set(outcomes)) == (0, {"passed"})


@pytest.mark.parametrize(("plugin", "case"), BROKEN_PLUGINS.items())
async def test_a_broken_device_plugin_fails_the_case_of_its_fault(directory, plugin, case):
    server = await grpc_server.serve(directory / "s", PLUGIN, plugin().handlers())
    try:
        code, outcomes = await check("device-plugin", "test", directory / "s")
    finally:
        await server.close(1)
    assert code == 1
    assert case in outcomes["failed"]


class Driver:
    """Prepares the one claim that exists."""

    def handlers(self):
        return {"NodePrepareResources": self.prepare, "NodeUnprepareResources": self.unprepare}

    async def prepare(self, request):
        return dra.NodePrepareResourcesResponse(claims={claim.uid: self.answer(claim) for claim in request.claims})

    def answer(self, claim):
        if claim.uid != UID:
            return dra.NodePrepareResourceResponse(error=f"{claim.name}: not found")
        device = dra.Device(pool_name="n1", device_name="nic", cdi_device_ids=["example.com/nic=nic"])
        return dra.NodePrepareResourceResponse(devices=[device])

    async def unprepare(self, request):
        claims = {claim.uid: dra.NodeUnprepareResourceResponse() for claim in request.claims}
        return dra.NodeUnprepareResourcesResponse(claims=claims)


class FailsTheCall(Driver):
    async def prepare(self, request):
        if any(claim.uid != UID for claim in request.claims):
            raise NotFound("no such claim")
        return await super().prepare(request)


class PreparesAnything(Driver):
    def answer(self, claim):
        return dra.NodePrepareResourceResponse(devices=[dra.Device(pool_name="n1", device_name="nic")])


class FailsUnprepare(Driver):
    async def unprepare(self, request):
        claims = {claim.uid: dra.NodeUnprepareResourceResponse(error="not prepared") for claim in request.claims}
        return dra.NodeUnprepareResourcesResponse(claims=claims)


class BadCdi(Driver):
    def answer(self, claim):
        answer = super().answer(claim)
        for device in answer.devices:
            device.cdi_device_ids[:] = ["nic"]
        return answer


BROKEN_DRIVERS = {
    FailsTheCall: "a claim that does not exist is an error of that claim",
    PreparesAnything: "a claim with another UID is refused",
    FailsUnprepare: "unpreparing a claim that was never prepared succeeds",
    BadCdi: "prepared devices have a pool, a name and valid CDI ids",
}


async def test_a_good_driver_passes(directory):
    async def info(_request):
        return registration.PluginInfo(
            type="DRAPlugin", name="nic.example.com", endpoint=str(directory / "s"), supported_versions=["v1.DRAPlugin"]
        )

    async def notify(_request):
        return registration.RegistrationStatusResponse()

    server = await grpc_server.serve(directory / "s", PLUGIN_V1, Driver().handlers())
    registrar = await grpc_server.serve(directory / "r", ALL, {"GetInfo": info, "NotifyRegistrationStatus": notify})
    try:
        words = ("dra", "test", directory / "s", "--registration", directory / "r", "--claim", CLAIM)
        code, outcomes = await check(*words)
    finally:
        await server.close(1)
        await registrar.close(1)
    assert (code, set(outcomes)) == (0, {"passed"})


@pytest.mark.parametrize(("driver", "case"), BROKEN_DRIVERS.items())
async def test_a_broken_driver_fails_the_case_of_its_fault(directory, driver, case):
    server = await grpc_server.serve(directory / "s", PLUGIN_V1, driver().handlers())
    try:
        code, outcomes = await check("dra", "test", directory / "s", "--claim", CLAIM)
    finally:
        await server.close(1)
    assert code == 1
    assert case in outcomes["failed"]


async def test_without_a_socket_the_command_says_so(directory):
    for words in (["dra", "test"], ["device-plugin", "test"]):
        done = await asyncio.create_subprocess_exec(PODWIRE, *words, directory / "none", stderr=asyncio.subprocess.PIPE)
        _, errors = await done.communicate()
        assert done.returncode == 1
        assert b"is not a socket; start the plugin first" in errors
