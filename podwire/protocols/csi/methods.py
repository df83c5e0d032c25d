"""Every call of a kubelet to a CSI driver: the service Node."""

from podwire.protocols.csi import csi_pb2 as pb
from podwire.protocols.grpc_methods import Method, Unary

SERVICE = "csi.v1.Node"

GET_INFO = Unary(SERVICE, "NodeGetInfo", pb.NodeGetInfoRequest, pb.NodeGetInfoResponse)
GET_CAPABILITIES = Unary(SERVICE, "NodeGetCapabilities", pb.NodeGetCapabilitiesRequest, pb.NodeGetCapabilitiesResponse)
STAGE_VOLUME = Unary(SERVICE, "NodeStageVolume", pb.NodeStageVolumeRequest, pb.NodeStageVolumeResponse)
UNSTAGE_VOLUME = Unary(SERVICE, "NodeUnstageVolume", pb.NodeUnstageVolumeRequest, pb.NodeUnstageVolumeResponse)
PUBLISH_VOLUME = Unary(SERVICE, "NodePublishVolume", pb.NodePublishVolumeRequest, pb.NodePublishVolumeResponse)
UNPUBLISH_VOLUME = Unary(SERVICE, "NodeUnpublishVolume", pb.NodeUnpublishVolumeRequest, pb.NodeUnpublishVolumeResponse)
GET_VOLUME_STATS = Unary(SERVICE, "NodeGetVolumeStats", pb.NodeGetVolumeStatsRequest, pb.NodeGetVolumeStatsResponse)
EXPAND_VOLUME = Unary(SERVICE, "NodeExpandVolume", pb.NodeExpandVolumeRequest, pb.NodeExpandVolumeResponse)

ALL: tuple[Method, ...] = (
    GET_INFO,
    GET_CAPABILITIES,
    STAGE_VOLUME,
    UNSTAGE_VOLUME,
    PUBLISH_VOLUME,
    UNPUBLISH_VOLUME,
    GET_VOLUME_STATS,
    EXPAND_VOLUME,
)
