"""Every call of the pod-resources API; the kubelet answers them."""

from podwire.protocols.grpc_methods import Method, Unary
from podwire.protocols.podresources import podresources_pb2 as pb

SERVICE = "v1.PodResourcesLister"

LIST = Unary(SERVICE, "List", pb.ListPodResourcesRequest, pb.ListPodResourcesResponse)
GET_ALLOCATABLE_RESOURCES = Unary(
    SERVICE, "GetAllocatableResources", pb.AllocatableResourcesRequest, pb.AllocatableResourcesResponse
)
GET = Unary(SERVICE, "Get", pb.GetPodResourcesRequest, pb.GetPodResourcesResponse)

ALL: tuple[Method, ...] = (LIST, GET_ALLOCATABLE_RESOURCES, GET)
