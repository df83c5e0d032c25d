"""The pod-resources API: tells others on this node which devices pods have, and which there are."""

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
        book: Callable[[], PodLister],
    ) -> None:
        """`claimed` is what a container has by its claims."""
        self._devices = devices
        self._claimed = claimed
        self._book = book

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {
            methods.LIST.name: self._list,
            methods.GET.name: self._get,
            methods.GET_ALLOCATABLE_RESOURCES.name: self._allocatable,
        }

    async def _list(self, _request: pb.ListPodResourcesRequest) -> pb.ListPodResourcesResponse:
        pods = [pod for pod, _ in self._book().all() if not pod.finished]
        return pb.ListPodResourcesResponse(pod_resources=map(self._of, pods))

    async def _get(self, request: pb.GetPodResourcesRequest) -> pb.GetPodResourcesResponse:
        namespace, name = request.pod_namespace, request.pod_name
        if not namespace or not name:
            raise InvalidArgument("pod_name and pod_namespace must both be given")
        found = self._book().find(namespace, name)
        if found is None:
            raise NotFound(f"pod {name} in namespace {namespace} not found")
        return pb.GetPodResourcesResponse(pod_resources=self._of(found[0]))

    async def _allocatable(self, _request: pb.AllocatableResourcesRequest) -> pb.AllocatableResourcesResponse:
        healthy = {
            name: [each.id for each in resource.pool.devices if each.healthy]
            for name, resource in self._devices.resources.items()
        }
        return pb.AllocatableResourcesResponse(devices=self._devices_of(healthy))

    def _of(self, pod: Pod) -> pb.PodResources:
        held = self._devices.held(pod.uid)
        inits = [
            each for each in pod.spec.init_containers if each.sidecar or each.name in held or each.resources.claims
        ]
        containers = [
            pb.ContainerResources(
                name=each.name,
                devices=self._devices_of(held.get(each.name, {})),
                dynamic_resources=self._claimed(pod, each),
            )
            for each in (*inits, *pod.spec.containers)
        ]
        return pb.PodResources(name=pod.name, namespace=pod.namespace, containers=containers)

    def _devices_of(self, ids: Mapping[str, Iterable[str]]) -> Iterator[pb.ContainerDevices]:
        """One message for all that are of one resource and near to the same nodes."""
        for resource in sorted(ids):
            near: dict[Nodes, list[str]] = {}
            for each in sorted(ids[resource]):
                device = self._devices.resources[resource].pool.get(each)
                near.setdefault(device.nodes if device is not None else frozenset(), []).append(each)
            for nodes, members in near.items():
                yield _message(resource, members, nodes)


def _message(resource: str, ids: list[str], nodes: Nodes) -> pb.ContainerDevices:
    told = pb.ContainerDevices(resource_name=resource, device_ids=ids)
    if nodes:
        told.topology.nodes.extend(pb.NUMANode(ID=each) for each in sorted(nodes))
    return told
