"""Requirements of the device plugin API v1beta1, as cases: calls of a kubelet to a plugin in any language."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from podwire.inspect.conformance.grpc_calls import Work, call_socket
from podwire.inspect.conformance.report import Cases, Level, NotApplicable, Report, Unmet, run_cases
from podwire.protocols.deviceplugin import deviceplugin_pb2 as pb
from podwire.protocols.deviceplugin import methods
from podwire.protocols.grpc_status import RpcError
from podwire.transports import grpc_client

T = TypeVar("T")

SPECIFICATION = "device plugin API v1beta1"
HEALTHS = ("Healthy", "Unhealthy")
OPTIONS, LIST, ALLOCATE, PREFERRED, PRE_START = (
    f"service DevicePlugin, rpc {name}"
    for name in (
        "GetDevicePluginOptions",
        "ListAndWatch",
        "Allocate",
        "GetPreferredAllocation",
        "PreStartContainer",
    )
)
QUIET_SECONDS = 1.0
"""For a stream of ListAndWatch to stay open."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Calls one plugin."""

    socket: Path
    seconds: float
    runner: asyncio.Runner

    def do(self, work: Work[T]) -> T:
        """Runs calls. Raises Unmet when the plugin does not answer."""
        return call_socket(self.runner, self.socket, work, self.seconds)

    def options(self) -> pb.DevicePluginOptions:
        empty = pb.Empty()
        return self.do(lambda client: client.call(methods.GET_DEVICE_PLUGIN_OPTIONS, empty, timeout=self.seconds))

    def devices(self) -> list[pb.Device]:
        """The first list of ListAndWatch."""

        async def first(client: grpc_client.GrpcClient) -> list[pb.Device]:
            async for response in client.stream(methods.LIST_AND_WATCH, pb.Empty()):
                return list(response.devices)
            raise Unmet("the stream ended without a list of devices")

        return self.do(first)

    def healthy(self, count: int = 1) -> list[str]:
        found = [device.ID for device in self.devices() if device.health == "Healthy"]
        if len(found) < count:
            raise NotApplicable(f"the plugin has fewer than {count} healthy devices")
        return found[:count]

    def allocate(self, *containers: list[str]) -> pb.AllocateResponse:
        request = pb.AllocateRequest(
            container_requests=[pb.ContainerAllocateRequest(devices_ids=ids) for ids in containers]
        )
        return self.do(lambda client: client.call(methods.ALLOCATE, request, timeout=self.seconds))


case = Cases[Subject]()


@case("GetDevicePluginOptions is answered", OPTIONS)
def _options(subject: Subject) -> None:
    subject.options()


@case("ListAndWatch sends all devices at once", LIST)
def _list(subject: Subject) -> None:
    devices = subject.devices()
    ids = [device.ID for device in devices]
    if not all(ids):
        raise Unmet("a device has no ID")
    if len(set(ids)) < len(ids):
        raise Unmet(f"an ID is used twice: {', '.join(sorted({one for one in ids if ids.count(one) > 1}))}")


@case("the health of each device is Healthy or Unhealthy", LIST)
def _health(subject: Subject) -> None:
    for device in subject.devices():
        if device.health not in HEALTHS:
            raise Unmet(f"device {device.ID} has health {device.health!r}; kubelets take it for unhealthy")


@case("ListAndWatch stays open until the kubelet ends it", LIST)
def _stays_open(subject: Subject) -> None:
    async def watch(client: grpc_client.GrpcClient) -> None:
        async for _ in client.stream(methods.LIST_AND_WATCH, pb.Empty()):
            pass
        raise Unmet("the stream ended by itself; kubelets remove the plugin then")

    async def for_a_while(client: grpc_client.GrpcClient) -> None:
        try:
            async with asyncio.timeout(QUIET_SECONDS):
                await watch(client)
        except TimeoutError:
            return

    subject.do(for_a_while)


@case("a second ListAndWatch gets the same devices", LIST)
def _again(subject: Subject) -> None:
    first, second = ({device.ID for device in subject.devices()} for _ in range(2))
    if first != second:
        raise Unmet(f"the first stream had {len(first)} devices, the second {len(second)}")


@case("Allocate answers with one response for each container", ALLOCATE)
def _allocate(subject: Subject) -> None:
    [device] = subject.healthy()
    answer = subject.allocate([device])
    if len(answer.container_responses) != 1:
        raise Unmet(f"one container was requested, and {len(answer.container_responses)} responses came")


@case("Allocate for two containers answers in their order", ALLOCATE, Level.SHOULD)
def _allocate_two(subject: Subject) -> None:
    first, second = subject.healthy(2)
    answer = subject.allocate([first], [second])
    if len(answer.container_responses) != 2:
        raise Unmet(f"two containers were requested, and {len(answer.container_responses)} responses came")


@case("Allocate of the same device works again, as after a restart of a pod", ALLOCATE)
def _allocate_again(subject: Subject) -> None:
    [device] = subject.healthy()
    subject.allocate([device])
    subject.allocate([device])


@case("paths and permissions of a response can be used", ALLOCATE)
def _usable(subject: Subject) -> None:
    [device] = subject.healthy()
    [response] = subject.allocate([device]).container_responses
    for spec in response.devices:
        if not spec.host_path.startswith("/") or not spec.container_path.startswith("/"):
            raise Unmet(f"device paths must be absolute: {spec.host_path!r}, {spec.container_path!r}")
        if not spec.permissions or set(spec.permissions) - set("rwm"):
            raise Unmet(f"permissions must be of r, w and m: {spec.permissions!r}")
    for mount in response.mounts:
        if not mount.host_path.startswith("/") or not mount.container_path.startswith("/"):
            raise Unmet(f"mount paths must be absolute: {mount.host_path!r}, {mount.container_path!r}")
    for cdi in response.cdi_devices:
        kind, separator, name = cdi.name.partition("=")
        if not separator or "/" not in kind or not name:
            raise Unmet(f"{cdi.name!r} is not a CDI device such as vendor.com/class=name")


@case("Allocate of a device that does not exist fails", ALLOCATE, Level.SHOULD)
def _unknown(subject: Subject) -> None:
    try:
        subject.allocate(["podwire-no-such-device"])
    except Unmet as error:
        if isinstance(error.__cause__, RpcError):
            return
        raise
    raise Unmet("Allocate succeeded for podwire-no-such-device")


@case("ten calls at once are all answered", ALLOCATE)
def _parallel(subject: Subject) -> None:
    [device] = subject.healthy()
    request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=[device])])

    async def all_(client: grpc_client.GrpcClient) -> None:
        calls = [client.call(methods.ALLOCATE, request, timeout=subject.seconds) for _ in range(10)]
        await asyncio.gather(*calls)

    subject.do(all_)


@case("GetPreferredAllocation returns as many of the available devices as requested", PREFERRED)
def _preferred(subject: Subject) -> None:
    if not subject.options().get_preferred_allocation_available:
        raise NotApplicable("the plugin does not announce get_preferred_allocation_available")
    available = subject.healthy(2)
    size = len(available) - 1
    wanted = pb.ContainerPreferredAllocationRequest(
        available_deviceIDs=available, must_include_deviceIDs=available[:1], allocation_size=size
    )
    request = pb.PreferredAllocationRequest(container_requests=[wanted])
    answer = subject.do(lambda client: client.call(methods.GET_PREFERRED_ALLOCATION, request, timeout=subject.seconds))
    chosen = [list(response.deviceIDs) for response in answer.container_responses]
    if len(chosen) != 1 or len(set(chosen[0])) != size or set(chosen[0]) - set(available):
        raise Unmet(f"{size} of {', '.join(available)} were requested, and the answer is {chosen}")
    if available[0] not in chosen[0]:
        raise Unmet(f"{available[0]} must be included, and the answer is {chosen[0]}")


@case("PreStartContainer is answered", PRE_START)
def _pre_start(subject: Subject) -> None:
    if not subject.options().pre_start_required:
        raise NotApplicable("the plugin does not announce pre_start_required")
    ids = subject.healthy()
    subject.allocate(ids)
    request = pb.PreStartContainerRequest(devices_ids=ids)
    subject.do(lambda client: client.call(methods.PRE_START_CONTAINER, request, timeout=subject.seconds))


def run_device_plugin_cases(socket: Path, seconds: float, shown: Callable[[str], None]) -> Report:
    """Calls a plugin as a kubelet does. It need not be registered anywhere."""
    report = Report(socket.name, SPECIFICATION)
    with asyncio.Runner() as runner:
        run_cases(report, case.all, Subject(socket, seconds, runner), shown)
    return report
