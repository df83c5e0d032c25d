"""The flows, line by line as they were first drawn; and starts that were recorded for real, from which no arrow may be
missing."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from podwire.trace.check import _positions, check
from podwire.trace.flow import FLOWS, Flow, Step, load
from podwire.trace.pod_trace import PodTrace, PodTraces
from podwire.trace.record import decode

DATA = Path(__file__).parent / "data"
PODS = {"cni": "life", "device-plugin": "router", "network-driver": "fast", "nri": "db", "pod": "web"}
"""The pods of the demo whose recordings play the flows."""

NETWORK = """\
ContainerRuntime->>CNIPlugin: Execute CNI ADD command
Note over ContainerRuntime,CNIPlugin: Passes NetNS path, ContainerID, and CNI_ARGS
CNIPlugin->>CNIPlugin: Configure Pod Networking (e.g., create veth, assign IP via IPAM, set routes)
CNIPlugin-->>ContainerRuntime: Return CNI Result (JSON)
Note over ContainerRuntime,CNIPlugin: { "ips": [{"address": "10.244.1.5/24", ...}], "interfaces": [...] }
"""
SANDBOX = """\
ContainerRuntime-->>Kubelet: RunPodSandboxResponse(SandboxID)
Kubelet->>ContainerRuntime: PodSandboxStatus()
ContainerRuntime-->>Kubelet: PodSandboxStatusResponse
Note over ContainerRuntime: PodSandboxStatusResponse.Network: Ip, AdditionalIPs
"""
CONTAINER = """\
Kubelet->>ContainerRuntime: CreateContainer()
Note over Kubelet,ContainerRuntime: The application container is started within the configured network namespace.
ContainerRuntime-->>Kubelet: Containers started successfully
Kubelet->>APIServer: PATCH /api/v1/pods/{name}/status
Note over Kubelet,APIServer: Update Pod status with the assigned IP address and set phase to 'Running'.
"""

DRAWN = {
    "nri": f"""\
Kubelet->>APIServer: Watch for Pods assigned to its node
APIServer-->>Kubelet: Notification: New Pod scheduled
Note over Kubelet: Admission control before starting the Pod
Kubelet->>ContainerRuntime: RunPodSandbox
Note over ContainerRuntime: Creates a new network namespace for the Pod.
{NETWORK}Note over ContainerRuntime,NetworkPlugin: Passes Network Namespaces, Pod Metadata and Pod IPs
ContainerRuntime->>NetworkPlugin: NRI RunPodSandbox
NetworkPlugin->>APIServer: GET /apis/group/version/{{ns}}/resource/{{name}}
Note over NetworkPlugin: Fetches Custom Resources to make networking decisions.
APIServer-->>NetworkPlugin: CustomResource (JSON)
NetworkPlugin->>NetworkPlugin: Configure Pod Networking (set routes, network policies, mesh)
NetworkPlugin-->>ContainerRuntime: NRI RunPodSandbox is answered
{SANDBOX}{CONTAINER}""",
    "network-driver": f"""\
NetworkDriver->>APIServer: Publish ResourcesSlice with available resources
Kubelet->>APIServer: Watch for Pods assigned to its node
APIServer-->>Kubelet: Notification: New Pod scheduled requesting a published resource
Note over Kubelet: Admission control before starting the Pod
Kubelet->>NetworkDriver: NodePrepareResources()
Note over NetworkDriver: Obtain the ResourceClaim with the Request and Config
NetworkDriver-->>Kubelet: Resources successfully allocated (precreate network interface, ...)
Kubelet->>ContainerRuntime: RunPodSandbox
Note over ContainerRuntime: Creates a new network namespace for the Pod.
{NETWORK}ContainerRuntime->>NetworkDriver: NRI: RunPodSandbox()
Note over ContainerRuntime,NetworkDriver: Pass Pod metadata, IPs, network namespace
NetworkDriver->>NetworkDriver: Allocate and configure the requested network resources
NetworkDriver-->>ContainerRuntime: Network resources allocated to the network namespaces
{SANDBOX}Kubelet->>NetworkDriver: Allocate()
Note over NetworkDriver: run device specific operations
NetworkDriver-->>Kubelet: AllocateResponse
{CONTAINER}""",
    "cni": """\
Kubelet->>ContainerRuntime: 1. Container Runtime Receives Pod Request
Note over ContainerRuntime: 2. Runtime Creates Network Namespace
Note over ContainerRuntime: 3. Runtime Reads CNI Configuration
ContainerRuntime->>CNIPlugin: 4. Runtime Invokes CNI Plugin (ADD)
CNIPlugin->>IPAM: 5. Main Plugin Invokes IPAM Plugin
IPAM-->>CNIPlugin: 6. IPAM Allocates IP Address
CNIPlugin->>CNIPlugin: 7. Main Plugin Configures Network Interface
CNIPlugin-->>ContainerRuntime: 8. Plugin Returns Result
ContainerRuntime->>ContainerRuntime: 9. Runtime Starts Container
ContainerRuntime->>CNIPlugin: 1. Runtime Performs Health Check
CNIPlugin->>CNIPlugin: 2. Plugin Validates Configuration
CNIPlugin-->>ContainerRuntime: 3. Plugin Returns Status
Kubelet->>ContainerRuntime: 1. Container Runtime Receives Deletion Request
ContainerRuntime-->>Kubelet: 2. Runtime Stops Container Processes
ContainerRuntime->>CNIPlugin: 3. Runtime Invokes CNI Plugin (DEL)
CNIPlugin->>IPAM: 4. Main Plugin Invokes IPAM Plugin (DEL)
IPAM-->>CNIPlugin: 5. IPAM Releases IP Address
CNIPlugin->>CNIPlugin: 6. Main Plugin Cleans Up Network
CNIPlugin-->>ContainerRuntime: 7. Plugin Returns Result
Note over ContainerRuntime: 8. Runtime Destroys Network Namespace
ContainerRuntime-->>Kubelet: 9. Cleanup Complete
""",
}


@pytest.mark.parametrize("name", DRAWN)
def test_every_line_of_a_flow_is_in_its_file_in_order(name):
    assert [str(line) for line in load(name).lines] == DRAWN[name].splitlines()


def recorded(name: str) -> PodTrace:
    traces = PodTraces()
    traces.learn([decode(line) for line in (DATA / f"{name}.jsonl").read_bytes().splitlines()])
    found = traces.find("default", PODS[name])
    assert found is not None
    return found


STORIES = {name: recorded(name) for name in FLOWS}
STEPS = [pytest.param(load(name), step, id=f"{name}: {step}") for name in FLOWS for step in load(name).steps]


def without(trace: PodTrace, step: Step) -> PodTrace:
    return replace(trace, arrows=tuple(arrow for arrow in trace.arrows if not step.satisfied(arrow)))


@pytest.mark.parametrize("name", FLOWS)
def test_recordings_of_real_clusters_match_their_flows(name):
    assert check(STORIES[name], load(name)) == []


@pytest.mark.parametrize(("flow", "step"), STEPS)
def test_an_arrow_that_is_taken_away_is_missed(flow: Flow, step: Step):
    trace = STORIES[flow.name]
    found = {item.arrow for item in check(without(trace, step), flow) if item.kind == "missing"}
    assert (str(step) in found) is (step.need != "optional")


def neighbours() -> list[object]:
    found = []
    for name in FLOWS:
        flow = load(name)
        ordered = [step for step in flow.steps if not step.after and step.need != "optional"]
        found += [pytest.param(flow, *pair, id=f"{name}: {pair[0]} / {pair[1]}") for pair in pairwise(ordered)]
    return found


@pytest.mark.parametrize(("flow", "first", "second"), neighbours())
def test_two_arrows_that_change_places_are_found(flow: Flow, first: Step, second: Step):
    """All that could be taken for the first are moved behind all that could be taken for the second."""
    trace = STORIES[flow.name]
    places = _positions(flow, trace.arrows)
    steps = {id(step): step for step in flow.steps}
    at = {str(steps[key]): place for key, place in places.items()}
    one, other = at[str(first)], at[str(second)]
    assert one is not None
    assert other is not None
    kept = [arrow for arrow in trace.arrows if not first.satisfied(arrow) and not second.satisfied(arrow)]
    ends = trace.arrows[other], trace.arrows[one]
    arrows = sorted(kept, key=lambda each: each.time)
    place = sum(arrow.time <= trace.arrows[one].time for arrow in arrows)
    result = replace(trace, arrows=(*arrows[:place], *ends, *arrows[place:]))
    findings = check(result, flow)
    assert {str(first), str(second)} & {finding.arrow for finding in findings if finding.kind == "swapped"}, findings
