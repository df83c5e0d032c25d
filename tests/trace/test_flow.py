"""The flow of a pod as it was first written down, line by line; and that every deviation from it is found."""

import re
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from podwire.trace.check import annotated, brief, check
from podwire.trace.flow import FLOWS, Step, load
from podwire.trace.pod_trace import Turn
from podwire.trace.record import decode

POD = """\
User->>KubeCtl: kubectl apply -f pod.yaml
KubeCtl->>APIServer: POST /api/v1/namespaces/{namespace}/pods
Note over APIServer,etcd: 1. API Server validates and authenticates the request.
APIServer->>etcd: Saves the Pod object (Status: Pending)
etcd-->>APIServer: Confirms save
Note over APIServer,Scheduler: 2. Scheduler watches for unscheduled Pods.
Scheduler->>APIServer: GET /api/v1/pods?fieldSelector=spec.nodeName=
APIServer-->>Scheduler: Returns the new, pending Pod.
Note over Scheduler: 3. Scheduler performs Predicates (filtering) and Priorities (scoring) to select a node.
Scheduler->>APIServer: PATCH /api/v1/pods/{name}/binding (Binds Pod to a node)
APIServer->>etcd: Updates Pod object with 'spec.nodeName'
etcd-->>APIServer: Confirms update
Note over APIServer,Kubelet: 4. Kubelet on the assigned node watches for Pods bound to it.
Kubelet->>APIServer: GET /api/v1/pods?fieldSelector=spec.nodeName={my-node}
APIServer-->>Kubelet: Returns the Pod object with its node assignment.
Note over Kubelet,ContainerRuntime: 5. Kubelet initiates Pod creation via CRI.
Kubelet->>ContainerRuntime: CreatePodSandboxRequest (Creates network/PID namespaces)
ContainerRuntime->>CNIPlugin: PodSandbox Network Setup via CNI
CNIPlugin-->>ContainerRuntime: Returns Pod IP address.
ContainerRuntime-->>Kubelet: PodSandbox created with IP.
Note over Kubelet,ContainerRuntime: 6. Kubelet initiates container creation.
Kubelet->>ContainerRuntime: CreateContainerRequest
ContainerRuntime->>ContainerRuntime: Pulls image and starts container process.
ContainerRuntime-->>Kubelet: Container started.
Note over Kubelet,APIServer: 7. Kubelet reports status back.
Kubelet->>APIServer: PATCH /api/v1/namespaces/{namespace}/pods/{name}/status
APIServer->>etcd: Updates Pod status (e.g., Running, IP assigned).
etcd-->>APIServer: Confirms update.
""".splitlines()
PARTICIPANTS = ["User", "KubeCtl", "APIServer", "etcd", "Scheduler", "Kubelet", "ContainerRuntime", "CNIPlugin"]

FLOW = load("pod")
STEPS = FLOW.steps


def matching(step: Step, records) -> list[int]:
    """The records that a step is about."""
    turns = {Turn.CALL: "begins", Turn.REPLY: "ends", Turn.EVENT: "is_event"}
    pattern = step._method
    return [
        place
        for place, each in enumerate(records)
        if (each.caller, each.callee) == (step.caller, step.callee)
        and getattr(each, turns[step.turn])
        and (pattern.fullmatch(each.method) or pattern.fullmatch(each.method.partition("?")[0]))
    ]


def test_every_line_of_the_flow_is_in_its_file_in_order():
    assert [str(line) for line in FLOW.lines] == POD
    assert FLOW.participants == PARTICIPANTS
    assert FLOWS == ("cni", "device-plugin", "network-driver", "nri", "pod")


def test_a_trace_that_matches_the_flow_has_no_deviations(trace):
    assert check(trace, FLOW) == []


def test_notes_are_before_their_arrows(trace):
    remarks = annotated(trace, FLOW).remarks
    assert [remark.text for remark in remarks] == [line.note for line in FLOW.lines if not isinstance(line, Step)]
    after = [next(arrow.label for arrow in trace.arrows if arrow.time >= remark.time) for remark in remarks]
    assert after[4:6] == ["RunPodSandbox", "CreateContainer"]


def test_in_brief_it_is_the_flow_and_no_more(trace):
    short = brief(trace, FLOW)
    assert len(short.arrows) == len(STEPS) < len(trace.arrows)
    in_place = sorted(step.label for step in STEPS for arrow in short.arrows if step.describes(arrow))
    assert set(in_place) == {step.label for step in STEPS}
    assert check(short, FLOW) == []
    assert annotated(short, FLOW).remarks == annotated(trace, FLOW).remarks


def needed(step: Step, records) -> int:
    """The record without which the step cannot be: the first or, of two alike, the one for this step."""
    alike = [item for item in STEPS if (item.caller, item.callee, item.turn) == (step.caller, step.callee, step.turn)]
    same = [item for item in alike if matching(item, records) == matching(step, records)]
    return matching(step, records)[same.index(step)]


RECORDED_STEPS = [step for step in STEPS if step.caller != "User"]  # kubectl's arrow implies the User's


@pytest.mark.parametrize("step", RECORDED_STEPS, ids=str)
def test_an_arrow_that_is_dropped_is_missed(step, records, tell):
    del records[needed(step, records)]
    assert ("missing", str(step)) in [(item.kind, item.arrow) for item in check(tell(records), FLOW)]


@pytest.mark.parametrize("step", RECORDED_STEPS, ids=str)
def test_an_arrow_under_another_name_is_missed_and_not_known(step, records, tell):
    place = needed(step, records)
    method = f"{records[place].method.partition(' ')[0]}Quietly /registry/nothing"
    records[place] = msgspec.structs.replace(records[place], method=method)
    found = [(item.kind, item.arrow) for item in check(tell(records), FLOW)]
    assert ("missing", str(step)) in found
    if step.turn is not Turn.REPLY:
        stroke = "->>" if step.turn is Turn.CALL else "-->>"
        assert ("extra", f"{step.caller}{stroke}{step.callee}: {method}") in found


ORDERED = [step for step in RECORDED_STEPS if not step.after]


@pytest.mark.parametrize(("first", "second"), list(pairwise(ORDERED)), ids=str)
def test_two_arrows_that_have_changed_places_are_found(first, second, records, tell):
    one, other = needed(first, records), needed(second, records)
    early, late = records[one].time, records[other].time
    records[one] = msgspec.structs.replace(records[one], time=late)
    records[other] = msgspec.structs.replace(records[other], time=early)
    swapped = {item.arrow for item in check(tell(records), FLOW) if item.kind == "swapped"}
    assert swapped & {str(first), str(second)}


@pytest.mark.parametrize("step", [step for step in STEPS if step.after not in ("", "nothing")], ids=str)
def test_a_reply_before_its_call_is_found(step, records, tell):
    place = needed(step, records)
    begun = next(record for record in records if record.id == records[place].id and record.begins)
    records[place] = msgspec.structs.replace(records[place], time=begun.time - 0.0005)
    assert ("swapped", str(step)) in [(item.kind, item.arrow) for item in check(tell(records), FLOW)]


@pytest.mark.parametrize("step", [step for step in STEPS if step.after == "nothing"], ids=str)
def test_a_watch_may_begin_at_any_time(step, records, tell):
    place = needed(step, records)
    records[place] = msgspec.structs.replace(records[place], time=records[-1].time + 1)
    assert check(tell(records), FLOW) == []


def test_a_pod_without_a_kubectl_command_misses_the_user(records, tell):
    bare = [
        msgspec.structs.replace(record, detail={k: v for k, v in record.detail.items() if not k.startswith("kubectl")})
        for record in records
    ]
    assert [str(item) for item in check(tell(bare), FLOW)] == [
        f"missing: {STEPS[0]} (no call {STEPS[0].call} from User to KubeCtl)"
    ]


def test_a_failed_call_is_not_a_step(records, tell):
    place = next(i for i, each in enumerate(records) if each.method == "RunPodSandbox" and each.ends)
    records[place] = msgspec.structs.replace(records[place], outcome="UNKNOWN")
    [found] = check(tell(records), FLOW)
    assert found.kind == "missing"
    assert "PodSandbox created with IP." in found.arrow


def test_an_arrow_in_another_state_is_reported_with_it(records, tell):
    place = next(i for i, each in enumerate(records) if each.method.endswith("/status") and each.ends)
    detail = records[place].detail | {"phase": "Failed"}
    records[place] = msgspec.structs.replace(records[place], detail=detail)
    found = {item.arrow: item.reason for item in check(tell(records), FLOW)}
    assert "the last one has phase Failed instead of Running" in found[str(STEPS[-3])]


def test_a_swapped_arrow_is_reported_with_both_positions(records, tell):
    sandbox, cni = (next(i for i, each in enumerate(records) if each.method == name) for name in METHODS)
    early, late = records[sandbox].time, records[cni].time
    records[sandbox] = msgspec.structs.replace(records[sandbox], time=late)
    records[cni] = msgspec.structs.replace(records[cni], time=early)
    [swapped] = [item for item in check(tell(records), FLOW) if item.kind == "swapped"]
    assert re.search(r"it is at \+1[23]\.0 ms, not in its place, which is after \S+ ?-{1,2}>>", swapped.reason)


METHODS = ("RunPodSandbox", "ADD bridge")


def test_an_extra_call_is_reported_once_with_its_count(records, tell):
    strange = msgspec.structs.replace(records[14], method="Strange", id="Kubelet-1.9")
    again = [msgspec.structs.replace(strange, id=f"Kubelet-1.9{number}", seq=100 + number) for number in range(3)]
    found = [str(item) for item in check(tell([*records, *again]), FLOW)]
    assert found == ["extra: Kubelet->>ContainerRuntime: Strange (not part of the flow; 3 times)"]


def test_calls_of_other_participants_are_ignored(records, tell):
    stranger = msgspec.structs.replace(records[8], id="x-1.99", caller="APIServer", callee="my-operator")
    assert check(tell([*records, stranger]), FLOW) == []


def test_a_start_that_was_recorded_for_real_is_the_flow(tell):
    records = [decode(line) for line in (Path(__file__).parent / "data" / "start.jsonl").read_bytes().splitlines()]
    assert check(tell(records, "web2"), FLOW) == []
