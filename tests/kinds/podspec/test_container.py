import pytest

C = "spec.containers[0]"
NOT_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)


def container(name="other", **fields):
    return {
        "name": name,
        "image": "busybox",
        "imagePullPolicy": "Always",
        "terminationMessagePolicy": "File",
        **fields,
    }


def port(number, **fields):
    return {"containerPort": number, "protocol": "TCP", **fields}


PROBE = {"tcpSocket": {"port": 80}, "successThreshold": 1}

CASES = {
    "none at all": ({"spec.containers": []}, ["spec.containers: Required value"]),
    "no list of containers": ({"spec.containers": ...}, ["spec.containers: Required value"]),
    "no name": ({f"{C}.name": ""}, [f"{C}.name: Required value"]),
    "a name that is not a label": ({f"{C}.name": "Main"}, [f'{C}.name: Invalid value: "Main": {NOT_LABEL}']),
    "a dotted name": ({f"{C}.name": "a.b"}, [f'{C}.name: Invalid value: "a.b": must not contain dots']),
    "a long name": (
        {f"{C}.name": "a" * 64},
        [f'{C}.name: Invalid value: "{"a" * 64}": must be no more than 63 characters'],
    ),
    "the same name twice": (
        {"spec.containers[1]": container("main")},
        ['spec.containers[1].name: Duplicate value: "main"'],
    ),
    "an init container with the name of a container": (
        {"spec.initContainers": [container("main")]},
        ['spec.initContainers[0].name: Duplicate value: "main"'],
    ),
    "two init containers of one name": (
        {"spec.initContainers": [container("setup"), container("setup")]},
        ['spec.initContainers[1].name: Duplicate value: "setup"'],
    ),
    "no image": ({f"{C}.image": ""}, [f"{C}.image: Required value"]),
    "an image with spaces around": (
        {f"{C}.image": " nginx"},
        [f'{C}.image: Invalid value: " nginx": must not have leading or trailing whitespace'],
    ),
    "an init image with a newline": (
        {"spec.initContainers": [container(image="nginx\n")]},
        ['spec.initContainers[0].image: Invalid value: "nginx\\n": must not have leading or trailing whitespace'],
    ),
    "no pull policy": ({f"{C}.imagePullPolicy": ""}, [f"{C}.imagePullPolicy: Required value"]),
    "an unknown pull policy": (
        {f"{C}.imagePullPolicy": "Sometimes"},
        [f'{C}.imagePullPolicy: Unsupported value: "Sometimes": supported values: "Always", "IfNotPresent", "Never"'],
    ),
    "an unknown termination message policy": (
        {f"{C}.terminationMessagePolicy": "Log"},
        [f'{C}.terminationMessagePolicy: Unsupported value: "Log": supported values: "File", "FallbackToLogsOnError"'],
    ),
    "no termination message policy": (
        {f"{C}.terminationMessagePolicy": ...},
        [f"{C}.terminationMessagePolicy: Required value"],
    ),
    "a port of zero": ({f"{C}.ports": [port(0)]}, [f"{C}.ports[0].containerPort: Required value"]),
    "a port too high": (
        {f"{C}.ports": [port(80), port(65536)]},
        [f"{C}.ports[1].containerPort: Invalid value: 65536: must be between 1 and 65535, inclusive"],
    ),
    "a negative host port": (
        {f"{C}.ports": [port(80, hostPort=-1)]},
        [f"{C}.ports[0].hostPort: Invalid value: -1: must be between 1 and 65535, inclusive"],
    ),
    "no protocol": ({f"{C}.ports": [{"containerPort": 80}]}, [f"{C}.ports[0].protocol: Required value"]),
    "a protocol in small letters": (
        {f"{C}.ports": [port(80, protocol="tcp")]},
        [f'{C}.ports[0].protocol: Unsupported value: "tcp": supported values: "SCTP", "TCP", "UDP"'],
    ),
    "a port name too long": (
        {f"{C}.ports": [port(80, name="a-very-long-port-name")]},
        [f'{C}.ports[0].name: Invalid value: "a-very-long-port-name": must be no more than 15 characters'],
    ),
    "a port name without a letter": (
        {f"{C}.ports": [port(80, name="80")]},
        [f'{C}.ports[0].name: Invalid value: "80": must contain at least one letter (a-z)'],
    ),
    "a port name twice": (
        {f"{C}.ports": [port(80, name="http"), port(81, name="http")]},
        [f'{C}.ports[1].name: Duplicate value: "http"'],
    ),
    "a host port twice": (
        {f"{C}.ports": [port(80, hostPort=8080)], "spec.containers[1]": container(ports=[port(81, hostPort=8080)])},
        ['spec.containers[1].ports[0].hostPort: Duplicate value: "TCP//8080"'],
    ),
    "a host port twice on one address": (
        {
            f"{C}.ports": [
                port(80, hostPort=8080, hostIP="10.0.0.1"),
                port(81, hostPort=8080, hostIP="10.0.0.1"),
                port(82, hostPort=8080, hostIP="10.0.0.2"),
                port(83, hostPort=8080, hostIP="10.0.0.1", protocol="UDP"),
            ]
        },
        [f'{C}.ports[1].hostPort: Duplicate value: "TCP/10.0.0.1/8080"'],
    ),
    "a host port twice in one init container": (
        {
            "spec.initContainers": [
                container("a", ports=[port(80, hostPort=80)]),
                container("b", ports=[port(80, hostPort=80), port(81, hostPort=80)]),
            ]
        },
        ['spec.initContainers[1].ports[1].hostPort: Duplicate value: "TCP//80"'],
    ),
    "a host port that differs on the host's network": (
        {"spec.hostNetwork": True, f"{C}.ports": [port(80, hostPort=8080)]},
        [f"{C}.ports[0].hostPort: Invalid value: 8080: must match `containerPort` when `hostNetwork` is true"],
    ),
    "no host port on the host's network": (
        {"spec.hostNetwork": True, f"{C}.ports": [port(80)]},
        [f"{C}.ports[0].hostPort: Invalid value: 0: must match `containerPort` when `hostNetwork` is true"],
    ),
    "probes and hooks on an init container": (
        {
            "spec.initContainers": [
                container(
                    livenessProbe=PROBE,
                    readinessProbe=PROBE,
                    startupProbe=PROBE,
                    lifecycle={"preStop": {"exec": {"command": ["x"]}}},
                )
            ]
        },
        [
            f"spec.initContainers[0].{field}: Forbidden: may not be set for init containers without "
            "restartPolicy=Always"
            for field in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
        ],
    ),
    "an unknown restart policy of a container": (
        {f"{C}.restartPolicy": "Maybe"},
        [f'{C}.restartPolicy: Unsupported value: "Maybe": supported values: "Always", "Never", "OnFailure"'],
    ),
    "restart rules without a policy": (
        {f"{C}.restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]},
        [f"{C}.restartPolicy: Required value: must specify restartPolicy when restart rules are used"],
    ),
    "a restart rule of nothing": (
        {f"{C}.restartPolicy": "Never", f"{C}.restartPolicyRules": [{"action": "Explode"}]},
        [
            (
                f'{C}.restartPolicyRules[0].action: Unsupported value: "Explode": '
                'supported values: "Restart", "RestartAllContainers"'
            ),
            f"{C}.restartPolicyRules[0].exitCodes: Required value: must be specified",
        ],
    ),
    "restart rules with too many codes": (
        {
            f"{C}.restartPolicy": "Never",
            f"{C}.restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "Is", "values": [1] * 256}}],
        },
        [
            f'{C}.restartPolicyRules[0].exitCodes.operator: Unsupported value: "Is": supported values: "In", "NotIn"',
            f"{C}.restartPolicyRules[0].exitCodes.values: Too many: 256: must have at most 255 items",
        ],
    ),
    "too many restart rules": (
        {
            f"{C}.restartPolicy": "Never",
            f"{C}.restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}] * 21,
        },
        [f"{C}.restartPolicyRules: Too many: 21: must have at most 20 items"],
    ),
    "a resize policy twice": (
        {f"{C}.resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}] * 2},
        [f'{C}.resizePolicy[1]: Duplicate value: "cpu"'],
    ),
    "a resize policy for a disk": (
        {f"{C}.resizePolicy": [{"resourceName": "disk", "restartPolicy": "Perhaps"}]},
        [
            f'{C}.resizePolicy: Unsupported value: "disk": supported values: "cpu", "memory"',
            f'{C}.resizePolicy: Unsupported value: "Perhaps": supported values: "NotRequired", "RestartContainer"',
        ],
    ),
    "a resize that restarts what never restarts": (
        {
            "spec.restartPolicy": "Never",
            f"{C}.resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}],
        },
        [
            (
                f'{C}.resizePolicy: Invalid value: "RestartContainer": '
                "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            )
        ],
    ),
    "a resize that restarts an init container": (
        {
            "spec.initContainers": [
                container(resizePolicy=[{"resourceName": "cpu", "restartPolicy": "RestartContainer"}])
            ]
        },
        [
            (
                'spec.initContainers[0].resizePolicy[0].restartPolicy: Invalid value: "RestartContainer": '
                "must not be set to 'RestartContainer' for non-sidecar initContainers"
            )
        ],
    ),
    "an ephemeral container from the start": (
        {"spec.ephemeralContainers": [container("debug")]},
        ["spec.ephemeralContainers: Forbidden: cannot be set on create"],
    ),
}


@pytest.mark.parametrize(("changes", "expected"), CASES.values(), ids=CASES)
def test_invalid_containers_are_rejected(changes, expected, errors_of):
    assert errors_of(changes) == expected


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({f"{C}.ports": [port(80), port(80, protocol="UDP")]}, id="a port for two protocols"),
        pytest.param({f"{C}.restartPolicy": "OnFailure"}, id="a restart policy of its own"),
        pytest.param(
            {"spec.initContainers": [container("proxy", restartPolicy="Always", startupProbe=PROBE)]},
            id="a sidecar with a probe",
        ),
        pytest.param(
            {
                "spec.initContainers": [
                    container("a", ports=[port(1, hostPort=1)]),
                    container("b", ports=[port(1, hostPort=1)]),
                ]
            },
            id="init containers take turns on a host port",
        ),
    ],
)
def test_valid_containers_are_accepted(changes, errors_of):
    assert errors_of(changes) == []


EPHEMERAL_CASES = {
    "a probe": (
        container("debug", livenessProbe=PROBE),
        ["spec.ephemeralContainers[0].livenessProbe: Forbidden: cannot be set for an Ephemeral Container"],
    ),
    "ports": (
        container("debug", ports=[port(80)]),
        ["spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container"],
    ),
    "resources": (
        container("debug", resources={"limits": {"cpu": "1"}}),
        ["spec.ephemeralContainers[0].resources: Forbidden: cannot be set for an Ephemeral Container"],
    ),
    "no resources": (container("debug", resources={}), []),
    "a target that is not there": (
        container("debug", targetContainerName="gone"),
        ['spec.ephemeralContainers[0].targetContainerName: Not found: "gone"'],
    ),
    "a target": (container("debug", targetContainerName="main"), []),
    "a name that is taken": (container("main"), ['spec.ephemeralContainers[0].name: Duplicate value: "main"']),
    "a sub path": (
        container("debug", volumeMounts=[{"name": "data", "mountPath": "/data", "subPath": "x"}]),
        [
            "spec.ephemeralContainers[0].volumeMounts[0].subPath: Forbidden: cannot be set for an Ephemeral Container",
        ],
    ),
    "a padded image": (
        container("debug", image="busybox "),
        ['spec.ephemeralContainers[0].image: Invalid value: "busybox ": must not have leading or trailing whitespace'],
    ),
}


@pytest.mark.parametrize(("added", "expected"), EPHEMERAL_CASES.values(), ids=EPHEMERAL_CASES)
def test_an_ephemeral_container_has_few_fields(added, expected, pod, spoiled):
    from podwire.kinds.builtin.core.pod.validate import update_ephemeral_containers

    new = spoiled({"spec.ephemeralContainers": [added]})
    assert [str(error) for error in update_ephemeral_containers(new, pod)] == expected
