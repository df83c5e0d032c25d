"""Every call of NRI. The runtime answers RUNTIME's, a plugin PLUGIN's."""

from podwire.protocols.grpc_methods import Unary
from podwire.protocols.nri import nri_pb2 as pb

RUNTIME_SERVICE = "nri.pkg.api.v1alpha1.Runtime"
PLUGIN_SERVICE = "nri.pkg.api.v1alpha1.Plugin"

REGISTER_PLUGIN = Unary(RUNTIME_SERVICE, "RegisterPlugin", pb.RegisterPluginRequest, pb.Empty)
UPDATE_CONTAINERS = Unary(RUNTIME_SERVICE, "UpdateContainers", pb.UpdateContainersRequest, pb.UpdateContainersResponse)

CONFIGURE = Unary(PLUGIN_SERVICE, "Configure", pb.ConfigureRequest, pb.ConfigureResponse)
SYNCHRONIZE = Unary(PLUGIN_SERVICE, "Synchronize", pb.SynchronizeRequest, pb.SynchronizeResponse)
SHUTDOWN = Unary(PLUGIN_SERVICE, "Shutdown", pb.Empty, pb.Empty)
RUN_POD_SANDBOX = Unary(PLUGIN_SERVICE, "RunPodSandbox", pb.RunPodSandboxRequest, pb.RunPodSandboxResponse)
UPDATE_POD_SANDBOX = Unary(PLUGIN_SERVICE, "UpdatePodSandbox", pb.UpdatePodSandboxRequest, pb.UpdatePodSandboxResponse)
POST_UPDATE_POD_SANDBOX = Unary(
    PLUGIN_SERVICE, "PostUpdatePodSandbox", pb.PostUpdatePodSandboxRequest, pb.PostUpdatePodSandboxResponse
)
STOP_POD_SANDBOX = Unary(PLUGIN_SERVICE, "StopPodSandbox", pb.StopPodSandboxRequest, pb.StopPodSandboxResponse)
REMOVE_POD_SANDBOX = Unary(PLUGIN_SERVICE, "RemovePodSandbox", pb.RemovePodSandboxRequest, pb.RemovePodSandboxResponse)
CREATE_CONTAINER = Unary(PLUGIN_SERVICE, "CreateContainer", pb.CreateContainerRequest, pb.CreateContainerResponse)
POST_CREATE_CONTAINER = Unary(
    PLUGIN_SERVICE, "PostCreateContainer", pb.PostCreateContainerRequest, pb.PostCreateContainerResponse
)
START_CONTAINER = Unary(PLUGIN_SERVICE, "StartContainer", pb.StartContainerRequest, pb.StartContainerResponse)
POST_START_CONTAINER = Unary(
    PLUGIN_SERVICE, "PostStartContainer", pb.PostStartContainerRequest, pb.PostStartContainerResponse
)
UPDATE_CONTAINER = Unary(PLUGIN_SERVICE, "UpdateContainer", pb.UpdateContainerRequest, pb.UpdateContainerResponse)
POST_UPDATE_CONTAINER = Unary(
    PLUGIN_SERVICE, "PostUpdateContainer", pb.PostUpdateContainerRequest, pb.PostUpdateContainerResponse
)
STOP_CONTAINER = Unary(PLUGIN_SERVICE, "StopContainer", pb.StopContainerRequest, pb.StopContainerResponse)
REMOVE_CONTAINER = Unary(PLUGIN_SERVICE, "RemoveContainer", pb.RemoveContainerRequest, pb.RemoveContainerResponse)
VALIDATE_CONTAINER_ADJUSTMENT = Unary(
    PLUGIN_SERVICE,
    "ValidateContainerAdjustment",
    pb.ValidateContainerAdjustmentRequest,
    pb.ValidateContainerAdjustmentResponse,
)
STATE_CHANGE = Unary(PLUGIN_SERVICE, "StateChange", pb.StateChangeEvent, pb.Empty)

RUNTIME = (REGISTER_PLUGIN, UPDATE_CONTAINERS)
PLUGIN = (
    CONFIGURE,
    SYNCHRONIZE,
    SHUTDOWN,
    RUN_POD_SANDBOX,
    UPDATE_POD_SANDBOX,
    POST_UPDATE_POD_SANDBOX,
    STOP_POD_SANDBOX,
    REMOVE_POD_SANDBOX,
    CREATE_CONTAINER,
    POST_CREATE_CONTAINER,
    START_CONTAINER,
    POST_START_CONTAINER,
    UPDATE_CONTAINER,
    POST_UPDATE_CONTAINER,
    STOP_CONTAINER,
    REMOVE_CONTAINER,
    VALIDATE_CONTAINER_ADJUSTMENT,
    STATE_CHANGE,
)
