"""Device plugins in a pod's story: the flow as it was first written down, whose pod a call is for, what came before."""

from base64 import b64encode

import msgspec
import pytest

from podwire.protocols.deviceplugin import deviceplugin_pb2 as pb
from podwire.trace.digest import digested
from podwire.trace.flow import load
from podwire.trace.pods import About, Pods
from podwire.trace.prelude import prelude
from podwire.trace.record import Record

FLOW = """\
Kubelet->>DevicePlugin: ListAndWatch()
Kubelet->>APIServer: Publish Device Plugin extended Resources
Kubelet->>APIServer: Watch for Pods assigned to its node
APIServer-->>Kubelet: Notification: New Pod scheduled requesting an extended Resource
Note over Kubelet: Admission control before starting the Pod
Kubelet->>ContainerRuntime: RunPodSandbox
Note over ContainerRuntime: Creates a new network namespace for the Pod.
ContainerRuntime->>CNIPlugin: Execute CNI ADD command
Note over ContainerRuntime,CNIPlugin: Passes NetNS path, ContainerID, and CNI_ARGS
CNIPlugin->>CNIPlugin: Configure Pod Networking (e.g., create veth, assign IP via IPAM, set routes)
CNIPlugin-->>ContainerRuntime: Return CNI Result (JSON)
Note over ContainerRuntime,CNIPlugin: { "ips": [{"address": "10.244.1.5/24", ...}], "interfaces": [...] }
ContainerRuntime-->>Kubelet: RunPodSandboxResponse(SandboxID)
Kubelet->>ContainerRuntime: PodSandboxStatus()
ContainerRuntime-->>Kubelet: PodSandboxStatusResponse
Note over ContainerRuntime: PodSandboxStatusResponse.Network: Ip, AdditionalIPs
Kubelet->>DevicePlugin: Allocate()
Note over DevicePlugin: run device specific operations
DevicePlugin-->>Kubelet: AllocateResponse
Kubelet->>ContainerRuntime: CreateContainer()
Note over Kubelet,ContainerRuntime: The application container is started within the configured network namespace.
ContainerRuntime-->>Kubelet: Containers started successfully
Kubelet->>APIServer: PATCH /api/v1/pods/{name}/status
Note over Kubelet,APIServer: Update Pod status with the assigned IP address and set phase to 'Running'.
""".splitlines()

SOCKET = "/var/lib/kubelet/device-plugins/nic.sock"


def record(method, time=1.0, callee="DevicePlugin", pod=None, outcome="", **detail):
    id_ = f"Kubelet-1.{int(time * 10):x}"
    return Record(
        id=id_, seq=int(time * 10), time=time, caller="Kubelet", callee=callee, method=method,
        pod=pod, node="n", outcome=outcome, detail=detail,
    )  # fmt: skip


def test_every_line_of_the_flow_is_in_its_file_in_order():
    flow = load("device-plugin")
    assert [str(line) for line in flow.lines] == FLOW
    assert flow.participants == ["APIServer", "Kubelet", "ContainerRuntime", "CNIPlugin", "DevicePlugin"]


def test_a_call_is_for_the_pod_that_the_kubelet_names():
    pods = Pods()
    known = pods.resolve("", About(uid="0b33dd0a-4645-4cab-b77c-02562fe6dcad", namespace="default", name="web"))
    asked = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=["a"])])
    data = b64encode(asked.SerializeToString()).decode()
    raw = record("Allocate", socket=SOCKET, about="default/web", message={"type": "AllocateRequest", "data": data})
    found = digested(raw, pods)
    assert found.pod == known
    assert found.detail == {
        "namespace": "default",
        "name": "web",
        "socket": SOCKET,
        "request": {"container_requests": [{"devices_ids": ["a"]}]},
    }


@pytest.mark.parametrize(
    "message",
    [{}, {"type": "AllocateRequest", "cut": 9}, {"type": "Nonsense", "data": "eA=="},
     {"type": "AllocateRequest", "data": "!"}],
    ids=["none", "too large", "unknown", "torn"],
)  # fmt: skip
def test_a_message_that_cannot_be_shown_is_left_out(message):
    found = digested(record("Allocate", socket=SOCKET, message=message), Pods())
    assert found.pod is None
    assert "message" not in found.detail


def test_a_trace_with_devices_begins_with_their_list():
    old, new, other = (
        record("ListAndWatch", time, socket=socket) for time, socket in ((1.0, SOCKET), (2.0, SOCKET), (3.0, "/other"))
    )
    result = record("PATCH /api/v1/nodes/n/status?fieldManager=x", 2.5, "APIServer")
    early = record("PATCH /api/v1/nodes/n/status", 1.5, "APIServer")
    own = [record("RunPodSandbox", 4.0, "ContainerRuntime"), record("Allocate", 5.0, socket=SOCKET)]
    assert prelude(own, [result, new, old, other, early]) == [new, result]
    assert prelude(own[:1], [result, new, old]) == []
    late = msgspec.structs.replace(new, time=4.5)
    assert prelude(own, [late]) == [late]
