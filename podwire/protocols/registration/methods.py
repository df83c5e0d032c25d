"""Every call of plugin registration; the kubelet asks."""

from podwire.protocols.grpc_methods import Method, Unary
from podwire.protocols.registration import registration_pb2 as pb

SERVICE = "pluginregistration.Registration"

GET_INFO = Unary(SERVICE, "GetInfo", pb.InfoRequest, pb.PluginInfo)
NOTIFY_REGISTRATION_STATUS = Unary(
    SERVICE, "NotifyRegistrationStatus", pb.RegistrationStatus, pb.RegistrationStatusResponse
)

ALL: tuple[Method, ...] = (GET_INFO, NOTIFY_REGISTRATION_STATUS)

CSI_PLUGIN, DEVICE_PLUGIN, DRA_PLUGIN = "CSIPlugin", "DevicePlugin", "DRAPlugin"
