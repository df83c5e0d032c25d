import pytest

from podwire.kinds.builtin.core.pod.validate import update_status

NOT_IP = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
CS = "status.containerStatuses"
STAYS = "Forbidden: may not be transitioned to non-terminated state"
NOT_NAME = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def ended(code=0, name="main"):
    return {"name": name, "state": {"terminated": {"exitCode": code}}}


def running(name="main"):
    return {"name": name, "state": {"running": {}}}


def ips(*given):
    return {"status.podIP": given[0], "status.podIPs": [{"ip": item} for item in given]}


NEVER = {"spec.restartPolicy": "Never"}
ON_FAILURE = {"spec.restartPolicy": "OnFailure"}
RULE = {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}
DEVICES = {
    "spec.resourceClaims": [{"name": "gpu", "resourceClaimName": "g"}],
    "spec.containers[0].resources": {"requests": {"example.com/nic": "1"}, "claims": [{"name": "gpu", "request": "a"}]},
}


def health(name, *resources):
    return {f"{CS}": [{"name": "main", "allocatedResourcesStatus": [{"name": name, "resources": list(resources)}]}]}


# each row: what both pods are, what the old status is, what the new one is, what the server says
CASES = {
    "a life": ({}, {"status.phase": "Pending"}, {"status.phase": "Running", **ips("10.0.0.1")}, []),
    "an unknown phase": (
        {},
        {},
        {"status.phase": "Happy"},
        [
            (
                'status.phase: Unsupported value: "Happy": '
                'supported values: "Failed", "Pending", "Running", "Succeeded", "Unknown"'
            )
        ],
    ),
    "conditions": (
        {},
        {},
        {"status.conditions": [{"type": "Ready", "status": "True"}, {"type": "example.com/x", "status": "False"}]},
        [],
    ),
    "a condition of no name": (
        {},
        {},
        {"status.conditions": [{"type": "Ready"}, {"type": "a b"}]},
        [f'status.conditions[1].Type: Invalid value: "a b": {NOT_NAME}'],
    ),
    "a condition before the first generation": (
        {},
        {},
        {"status.conditions": [{"type": "Ready", "observedGeneration": -1}], "status.observedGeneration": -2},
        [
            "status.conditions[0].observedGeneration: Invalid value: -1: must be a non-negative integer",
            "status.observedGeneration: Invalid value: -2: must be a non-negative integer",
        ],
    ),
    "a node by the back door": (
        {},
        {},
        {"spec.nodeName": "n"},
        ["status.nodeName: Forbidden: may not be changed directly"],
    ),
    "a nomination": ({}, {}, {"status.nominatedNodeName": "node-1"}, []),
    "a nomination in capitals": (
        {},
        {},
        {"status.nominatedNodeName": "Node"},
        [
            (
                'status.nominatedNodeName: Invalid value: "Node": a lowercase RFC 1123 subdomain must '
                "consist of lower case "
                "alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. "
                "'example.com', regex used for validation is "
                r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            )
        ],
    ),
    "a nomination of a pod that is placed": (
        {"spec.nodeName": "n"},
        {},
        {"status.nominatedNodeName": "m"},
        ["status.nominatedNodeName: Forbidden: may not be set on pods that are already bound to a node"],
    ),
    "another quality of service": (
        {},
        {"status.qosClass": "BestEffort"},
        {"status.qosClass": "Guaranteed"},
        ['status.qosClass: Invalid value: "Guaranteed": field is immutable'],
    ),
    "no quality of service any more": ({}, {"status.qosClass": "BestEffort"}, {"status.phase": "Running"}, []),
    "two families": ({}, {}, ips("10.0.0.1", "fd00::1"), []),
    "two of one family": (
        {},
        {},
        ips("10.0.0.1", "10.0.0.2"),
        [
            (
                'status.podIPs: Invalid value: [{"ip":"10.0.0.1"},{"ip":"10.0.0.2"}]: '
                "may specify no more than one IP for each IP family"
            )
        ],
    ),
    "no address": ({}, {}, ips("10.0.0"), [f'status.podIPs[0]: Invalid value: "10.0.0": {NOT_IP}']),
    "no address, but as before": ({}, ips("10.0.0"), ips("10.0.0"), []),
    "an address that is not among all": (
        {},
        {},
        {**ips("10.0.0.1"), "status.podIP": "10.0.0.2"},
        ['status.podIPs[0].ip: Invalid value: "10.0.0.1": must be equal to `podIP`'],
    ),
    "an address without the list": (
        {},
        {},
        {"status.podIP": "10.0.0.1"},
        ["status.podIPs: Invalid value: []: podIP and podIPs must either both be set or both be unset"],
    ),
    "another host": (
        {},
        {},
        {"status.hostIP": "10.0.0.1", "status.hostIPs": [{"ip": "10.0.0.2"}]},
        ['status.hostIPs[0].ip: Invalid value: "10.0.0.2": must be equal to `hostIP`'],
    ),
    "an end that is none": (NEVER, {CS: [ended(1)]}, {CS: [running()]}, [f"{CS}[0].state: {STAYS}"]),
    "an end with success that is none": (ON_FAILURE, {CS: [ended(0)]}, {CS: [running()]}, [f"{CS}[0].state: {STAYS}"]),
    "a restart after failure": (ON_FAILURE, {CS: [ended(1)]}, {CS: [running()]}, []),
    "a restart": ({}, {CS: [ended(0)]}, {CS: [running()]}, []),
    "a restart by a rule": (
        {**NEVER, "spec.containers[0].restartPolicy": "Never", "spec.containers[0].restartPolicyRules": [RULE]},
        {CS: [ended(42)]},
        {CS: [running()]},
        [],
    ),
    "a restart against all rules": (
        {**NEVER, "spec.containers[0].restartPolicy": "Never", "spec.containers[0].restartPolicyRules": [RULE]},
        {CS: [ended(41)]},
        {CS: [running()]},
        [f"{CS}[0].state: {STAYS}"],
    ),
    "a restart of all": (
        {
            **NEVER,
            "spec.containers[0].restartPolicy": "Never",
            "spec.containers[0].restartPolicyRules": [{**RULE, "action": "RestartAllContainers"}],
        },
        {CS: [ended(0)]},
        {CS: [running()]},
        [],
    ),
    "a debugger that comes back": (
        {},
        {"status.ephemeralContainerStatuses": [ended(1, "debug")]},
        {"status.ephemeralContainerStatuses": [running("debug")]},
        [f"status.ephemeralContainerStatuses[0].state: {STAYS}"],
    ),
    "fewer restarts than none": (
        {},
        {},
        {CS: [{"name": "main", "restartCount": -1}]},
        [f"{CS}[0].restartCount: Invalid value: -1: must be greater than or equal to 0"],
    ),
    "a negative user": (
        {},
        {},
        {CS: [{"name": "main", "user": {"linux": {"uid": -1, "gid": 0, "supplementalGroups": [2**31]}}}]},
        [
            f"{CS}[0].user.linux.uid: Invalid value: -1: must be between 0 and 4294967295, inclusive",
            (
                f"{CS}[0].user.linux.supplementalGroups[0]: Invalid value: 2147483648: "
                "must be between 0 and 2147483647, inclusive"
            ),
        ],
    ),
    "a claim": (DEVICES, {}, {"status.resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "web-gpu-x"}]}, []),
    "claims that are not the pod's": (
        DEVICES,
        {},
        {"status.resourceClaimStatuses": [{"name": "tpu"}, {"name": "gpu"}, {"name": "gpu", "resourceClaimName": "-"}]},
        [
            (
                'status.resourceClaimStatuses[0].name: Invalid value: "tpu": '
                "must match the name of an entry in `spec.resourceClaims`"
            ),
            'status.resourceClaimStatuses[2].name: Duplicate value: "gpu"',
            (
                'status.resourceClaimStatuses[2].resourceClaimName: Invalid value: "-": a lowercase RFC '
                "1123 subdomain must "
                "consist of lower case alphanumeric characters, '-' or '.', and must start and end with an "
                "alphanumeric "
                "character (e.g. 'example.com', regex used for validation is "
                r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            ),
        ],
    ),
    "a healthy claim": (DEVICES, {}, health("claim:gpu/a", {"resourceID": "1", "health": "Healthy"}), []),
    "a claim that is not the container's": (
        DEVICES,
        {},
        health("claim:gpu"),
        [
            (
                f'{CS}[0].allocatedResourcesStatus[0].name: Invalid value: "claim:gpu": must match one of '
                "the container's "
                "resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty"
            )
        ],
    ),
    "a device that is not the container's": (
        DEVICES,
        {},
        health("example.com/gpu"),
        [
            (
                f'{CS}[0].allocatedResourcesStatus[0].name: Invalid value: "example.com/gpu": '
                "must match one of the container's resource requests"
            )
        ],
    ),
    "a device in doubt, twice": (
        DEVICES,
        {},
        health(
            "example.com/nic",
            {"resourceID": "1", "health": "Ill", "message": ""},
            {"resourceID": "1", "health": "Unknown"},
        ),
        [
            (
                f'{CS}[0].allocatedResourcesStatus[0].resources[0].health: Unsupported value: "Ill": '
                'supported values: "Healthy", "Unhealthy", "Unknown"'
            ),
            f"{CS}[0].allocatedResourcesStatus[0].resources[0].message: Required value: must be non-empty if specified",
            f'{CS}[0].allocatedResourcesStatus[0].resources[1].resourceID: Duplicate value: "1"',
        ],
    ),
    "a claim for devices of nobody": (
        DEVICES,
        {},
        {
            "status.extendedResourceClaimStatus": {
                "resourceClaimName": "x",
                "requestMappings": [
                    {"containerName": "gone", "resourceName": "a/b", "requestName": "r"},
                    {"containerName": "main", "resourceName": "a/b", "requestName": "r"},
                    {"containerName": "main", "resourceName": "example.com/nic", "requestName": "r"},
                ],
            }
        },
        [
            (
                'status.extendedResourceClaimStatus.requestMappings[0].containerName: Invalid value: "gone": '
                "must match the name of an entry in spec.initContainers.name or spec.containers.name"
            ),
            (
                'status.extendedResourceClaimStatus.requestMappings[1].resourceName: Invalid value: "a/b": '
                "must match the "
                "extended resource name of an entry in spec.initContainers.resources.requests or "
                "spec.containers.resources.requests"
            ),
        ],
    ),
}


@pytest.mark.parametrize(("both", "before", "after", "expected"), CASES.values(), ids=CASES)
def test_invalid_statuses_are_rejected(both, before, after, expected, spoiled):
    old, new = spoiled({**both, **before}), spoiled({**both, **after})
    assert [str(error) for error in update_status(new, old)] == expected
