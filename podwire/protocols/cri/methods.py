"""Every call of the Container Runtime Interface, and how much a kubelet depends on it.

Each is typed: a client that calls `RUN_POD_SANDBOX` gets a RunPodSandboxResponse.
"""

from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_methods import Method, ServerStream, Unary

RUNTIME = "runtime.v1.RuntimeService"
IMAGE = "runtime.v1.ImageService"

NETWORK_VALID = "NetworkConfigurationValid"
"""A condition of our runtime's status: false while a file with a network configuration cannot be used."""
INVALID_NETWORK = "InvalidNetworkConfiguration"
"""Its reason, and that of the Node's event."""

VERSION = Unary(RUNTIME, "Version", pb.VersionRequest, pb.VersionResponse)
STATUS = Unary(RUNTIME, "Status", pb.StatusRequest, pb.StatusResponse)
RUNTIME_CONFIG = Unary(RUNTIME, "RuntimeConfig", pb.RuntimeConfigRequest, pb.RuntimeConfigResponse)
UPDATE_RUNTIME_CONFIG = Unary(
    RUNTIME, "UpdateRuntimeConfig", pb.UpdateRuntimeConfigRequest, pb.UpdateRuntimeConfigResponse
)
RUN_POD_SANDBOX = Unary(RUNTIME, "RunPodSandbox", pb.RunPodSandboxRequest, pb.RunPodSandboxResponse)
"""Completed by the runtime itself, which answers retries with the same sandbox."""
UPDATE_POD_SANDBOX_RESOURCES = Unary(
    RUNTIME,
    "UpdatePodSandboxResources",
    pb.UpdatePodSandboxResourcesRequest,
    pb.UpdatePodSandboxResourcesResponse,
    uncancelled=True,
)
STOP_POD_SANDBOX = Unary(
    RUNTIME, "StopPodSandbox", pb.StopPodSandboxRequest, pb.StopPodSandboxResponse, uncancelled=True
)
REMOVE_POD_SANDBOX = Unary(
    RUNTIME, "RemovePodSandbox", pb.RemovePodSandboxRequest, pb.RemovePodSandboxResponse, uncancelled=True
)
POD_SANDBOX_STATUS = Unary(RUNTIME, "PodSandboxStatus", pb.PodSandboxStatusRequest, pb.PodSandboxStatusResponse)
LIST_POD_SANDBOX = Unary(RUNTIME, "ListPodSandbox", pb.ListPodSandboxRequest, pb.ListPodSandboxResponse)
STREAM_POD_SANDBOXES = ServerStream(
    RUNTIME, "StreamPodSandboxes", pb.StreamPodSandboxesRequest, pb.StreamPodSandboxesResponse
)
CREATE_CONTAINER = Unary(
    RUNTIME, "CreateContainer", pb.CreateContainerRequest, pb.CreateContainerResponse, uncancelled=True
)
START_CONTAINER = Unary(
    RUNTIME, "StartContainer", pb.StartContainerRequest, pb.StartContainerResponse, uncancelled=True
)
UPDATE_CONTAINER_RESOURCES = Unary(
    RUNTIME,
    "UpdateContainerResources",
    pb.UpdateContainerResourcesRequest,
    pb.UpdateContainerResourcesResponse,
    uncancelled=True,
)
REOPEN_CONTAINER_LOG = Unary(RUNTIME, "ReopenContainerLog", pb.ReopenContainerLogRequest, pb.ReopenContainerLogResponse)
CHECKPOINT_CONTAINER = Unary(
    RUNTIME, "CheckpointContainer", pb.CheckpointContainerRequest, pb.CheckpointContainerResponse
)
STOP_CONTAINER = Unary(RUNTIME, "StopContainer", pb.StopContainerRequest, pb.StopContainerResponse)
REMOVE_CONTAINER = Unary(
    RUNTIME, "RemoveContainer", pb.RemoveContainerRequest, pb.RemoveContainerResponse, uncancelled=True
)
CONTAINER_STATUS = Unary(RUNTIME, "ContainerStatus", pb.ContainerStatusRequest, pb.ContainerStatusResponse)
LIST_CONTAINERS = Unary(RUNTIME, "ListContainers", pb.ListContainersRequest, pb.ListContainersResponse)
STREAM_CONTAINERS = ServerStream(RUNTIME, "StreamContainers", pb.StreamContainersRequest, pb.StreamContainersResponse)
EXEC_SYNC = Unary(RUNTIME, "ExecSync", pb.ExecSyncRequest, pb.ExecSyncResponse)
EXEC = Unary(RUNTIME, "Exec", pb.ExecRequest, pb.ExecResponse)
ATTACH = Unary(RUNTIME, "Attach", pb.AttachRequest, pb.AttachResponse)
PORT_FORWARD = Unary(RUNTIME, "PortForward", pb.PortForwardRequest, pb.PortForwardResponse)
CONTAINER_STATS = Unary(RUNTIME, "ContainerStats", pb.ContainerStatsRequest, pb.ContainerStatsResponse)
LIST_CONTAINER_STATS = Unary(RUNTIME, "ListContainerStats", pb.ListContainerStatsRequest, pb.ListContainerStatsResponse)
STREAM_CONTAINER_STATS = ServerStream(
    RUNTIME, "StreamContainerStats", pb.StreamContainerStatsRequest, pb.StreamContainerStatsResponse
)
POD_SANDBOX_STATS = Unary(RUNTIME, "PodSandboxStats", pb.PodSandboxStatsRequest, pb.PodSandboxStatsResponse)
LIST_POD_SANDBOX_STATS = Unary(
    RUNTIME, "ListPodSandboxStats", pb.ListPodSandboxStatsRequest, pb.ListPodSandboxStatsResponse
)
STREAM_POD_SANDBOX_STATS = ServerStream(
    RUNTIME, "StreamPodSandboxStats", pb.StreamPodSandboxStatsRequest, pb.StreamPodSandboxStatsResponse
)
LIST_METRIC_DESCRIPTORS = Unary(
    RUNTIME, "ListMetricDescriptors", pb.ListMetricDescriptorsRequest, pb.ListMetricDescriptorsResponse
)
LIST_POD_SANDBOX_METRICS = Unary(
    RUNTIME, "ListPodSandboxMetrics", pb.ListPodSandboxMetricsRequest, pb.ListPodSandboxMetricsResponse
)
STREAM_POD_SANDBOX_METRICS = ServerStream(
    RUNTIME, "StreamPodSandboxMetrics", pb.StreamPodSandboxMetricsRequest, pb.StreamPodSandboxMetricsResponse
)
GET_CONTAINER_EVENTS = ServerStream(RUNTIME, "GetContainerEvents", pb.GetEventsRequest, pb.ContainerEventResponse)
PULL_IMAGE = Unary(IMAGE, "PullImage", pb.PullImageRequest, pb.PullImageResponse)
IMAGE_STATUS = Unary(IMAGE, "ImageStatus", pb.ImageStatusRequest, pb.ImageStatusResponse)
LIST_IMAGES = Unary(IMAGE, "ListImages", pb.ListImagesRequest, pb.ListImagesResponse)
STREAM_IMAGES = ServerStream(IMAGE, "StreamImages", pb.StreamImagesRequest, pb.StreamImagesResponse)
REMOVE_IMAGE = Unary(IMAGE, "RemoveImage", pb.RemoveImageRequest, pb.RemoveImageResponse, uncancelled=True)
IMAGE_FS_INFO = Unary(IMAGE, "ImageFsInfo", pb.ImageFsInfoRequest, pb.ImageFsInfoResponse)

ALL: tuple[Method, ...] = tuple(
    method for method in tuple(globals().values()) if isinstance(method, Unary | ServerStream)
)
