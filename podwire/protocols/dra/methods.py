"""Every call between a kubelet and a DRA driver; the driver answers them all.

A driver tells at its registration which versions it speaks, in order; those names are not the names of the services.
"""

from podwire.protocols.dra import dra_v1_pb2, dra_v1beta1_pb2, health_v1_pb2, health_v1alpha1_pb2
from podwire.protocols.grpc_methods import Method, ServerStream, Unary

V1, V1BETA1 = "v1.DRAPlugin", "v1beta1.DRAPlugin"
HEALTH_V1, HEALTH_V1ALPHA1 = "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"
"""As a registration lists them; the health services are called so on the wire, too."""

_SERVICE = "k8s.io.kubelet.pkg.apis.dra.{}.DRAPlugin"

PREPARE_V1 = Unary(
    _SERVICE.format("v1"),
    "NodePrepareResources",
    dra_v1_pb2.NodePrepareResourcesRequest,
    dra_v1_pb2.NodePrepareResourcesResponse,
    uncancelled=True,
)
UNPREPARE_V1 = Unary(
    _SERVICE.format("v1"),
    "NodeUnprepareResources",
    dra_v1_pb2.NodeUnprepareResourcesRequest,
    dra_v1_pb2.NodeUnprepareResourcesResponse,
    uncancelled=True,
)
PREPARE_V1BETA1 = Unary(
    _SERVICE.format("v1beta1"),
    "NodePrepareResources",
    dra_v1beta1_pb2.NodePrepareResourcesRequest,
    dra_v1beta1_pb2.NodePrepareResourcesResponse,
    uncancelled=True,
)
UNPREPARE_V1BETA1 = Unary(
    _SERVICE.format("v1beta1"),
    "NodeUnprepareResources",
    dra_v1beta1_pb2.NodeUnprepareResourcesRequest,
    dra_v1beta1_pb2.NodeUnprepareResourcesResponse,
    uncancelled=True,
)
WATCH_HEALTH_V1 = ServerStream(
    HEALTH_V1, "NodeWatchResources", health_v1_pb2.NodeWatchResourcesRequest, health_v1_pb2.NodeWatchResourcesResponse
)
WATCH_HEALTH_V1ALPHA1 = ServerStream(
    HEALTH_V1ALPHA1,
    "NodeWatchResources",
    health_v1alpha1_pb2.NodeWatchResourcesRequest,
    health_v1alpha1_pb2.NodeWatchResourcesResponse,
)

PLUGIN_V1: tuple[Method, ...] = (PREPARE_V1, UNPREPARE_V1)
PLUGIN_V1BETA1: tuple[Method, ...] = (PREPARE_V1BETA1, UNPREPARE_V1BETA1)
