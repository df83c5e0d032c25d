"""The pod-resources API: shows clients on this node which devices exist and which pods have them."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from podwire.kubelet.devices.manager import DeviceManager
from podwire.kubelet.devices.pool import Nodes
from podwire.kubelet.ports import PodLister
from podwire.objects.containers import Container
from podwire.objects.pods import Pod
from podwire.protocols.grpc_methods import Handler
from podwire.protocols.grpc_status import InvalidArgument, NotFound
from podwire.protocols.podresources import methods
from podwire.protocols.podresources import podresources_pb2 as pb

SOCKET = "pod-resources/kubelet.sock"
"""Below the kubelet's directory."""


class PodResources:
    def __init__(
        self,
        devices: DeviceManager,
        claimed: Callable[[Pod, Container], Iterable[pb.DynamicResource]],
        pods: PodLister,
    ) -> None:
        """`claimed` returns the devices of a container by its claims."""
        self._devices = devices
        self._claimed = claimed
        self._pods = pods

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {
            methods.LIST.name: self._list,
            methods.GET.name: self._get,
            methods.GET_ALLOCATABLE_RESOURCES.name: self._allocatable,
        }

    async def _list(self, _request: pb.ListPodResourcesRequest) -> pb.ListPodResourcesResponse:
        pods = [pod for pod, _ in self._pods.all() if not pod.finished]
        return pb.ListPodResourcesResponse(pod_resources=map(self._of, pods))

    async def _get(self, request: pb.GetPodResourcesRequest) -> pb.GetPodResourcesResponse:
        namespace, name = request.pod_namespace, request.pod_name
        if not namespace or not name:
            raise InvalidArgument("pod_name and pod_namespace must both be given")
        known = self._pods.find(namespace, name)
        if known is None:
            raise NotFound(f"pod {name} in namespace {namespace} not found")
        return pb.GetPodResourcesResponse(pod_resources=self._of(known[0]))

    async def _allocatable(self, _request: pb.AllocatableResourcesRequest) -> pb.AllocatableResourcesResponse:
        healthy = {
            name: [device.id for device in resource.pool.devices if device.healthy]
            for name, resource in self._devices.resources.items()
        }
        return pb.AllocatableResourcesResponse(devices=self._devices_of(healthy))

    def _of(self, pod: Pod) -> pb.PodResources:
        held = self._devices.held(pod.uid)
        inits = [
            container
            for container in pod.spec.init_containers
            if container.sidecar or container.name in held or container.resources.claims
        ]
        containers = [
            pb.ContainerResources(
                name=container.name,
                devices=self._devices_of(held.get(container.name, {})),
                dynamic_resources=self._claimed(pod, container),
            )
            for container in (*inits, *pod.spec.containers)
        ]
        return pb.PodResources(name=pod.name, namespace=pod.namespace, containers=containers)

    def _devices_of(self, ids: Mapping[str, Iterable[str]]) -> Iterator[pb.ContainerDevices]:
        """One message for the devices of one resource on the same NUMA nodes."""
        for resource in sorted(ids):
            near: dict[Nodes, list[str]] = {}
            for id_ in sorted(ids[resource]):
                device = self._devices.resources[resource].pool.get(id_)
                near.setdefault(device.nodes if device is not None else frozenset(), []).append(id_)
            for nodes, members in near.items():
                yield _message(resource, members, nodes)


def _message(resource: str, ids: list[str], nodes: Nodes) -> pb.ContainerDevices:
    message = pb.ContainerDevices(resource_name=resource, device_ids=ids)
    if nodes:
        message.topology.nodes.extend(pb.NUMANode(ID=node) for node in sorted(nodes))
    return message
