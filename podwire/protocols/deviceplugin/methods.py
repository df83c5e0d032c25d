"""Every call between a kubelet and device plugins. The kubelet answers REGISTRATION's, a plugin PLUGIN's."""

from podwire.protocols.deviceplugin import deviceplugin_pb2 as pb
from podwire.protocols.grpc_methods import Method, ServerStream, Unary

VERSION = "v1beta1"
REGISTRATION_SERVICE = "v1beta1.Registration"
PLUGIN_SERVICE = "v1beta1.DevicePlugin"

REGISTER = Unary(REGISTRATION_SERVICE, "Register", pb.RegisterRequest, pb.Empty)

GET_DEVICE_PLUGIN_OPTIONS = Unary(PLUGIN_SERVICE, "GetDevicePluginOptions", pb.Empty, pb.DevicePluginOptions)
LIST_AND_WATCH = ServerStream(PLUGIN_SERVICE, "ListAndWatch", pb.Empty, pb.ListAndWatchResponse)
GET_PREFERRED_ALLOCATION = Unary(
    PLUGIN_SERVICE, "GetPreferredAllocation", pb.PreferredAllocationRequest, pb.PreferredAllocationResponse
)
ALLOCATE = Unary(PLUGIN_SERVICE, "Allocate", pb.AllocateRequest, pb.AllocateResponse)
PRE_START_CONTAINER = Unary(
    PLUGIN_SERVICE, "PreStartContainer", pb.PreStartContainerRequest, pb.PreStartContainerResponse
)

REGISTRATION: tuple[Method, ...] = (REGISTER,)
PLUGIN: tuple[Method, ...] = (
    GET_DEVICE_PLUGIN_OPTIONS,
    LIST_AND_WATCH,
    GET_PREFERRED_ALLOCATION,
    ALLOCATE,
    PRE_START_CONTAINER,
)
