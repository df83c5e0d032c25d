import pytest

ENV = "spec.containers[0].env"
FROM = "spec.containers[0].envFrom"
FIELDS = (
    '"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", '
    '"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"'
)
RESOURCES = (
    '"limits.cpu", "limits.ephemeral-storage", "limits.memory", '
    '"requests.cpu", "requests.ephemeral-storage", "requests.memory"'
)
NOT_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
NOT_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  "
    "or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


def source(**sources):
    return {ENV: [{"name": "X", "valueFrom": sources}]}


def field(path, version="v1"):
    return source(fieldRef={"apiVersion": version, "fieldPath": path})


CASES = {
    "no name": ({ENV: [{"value": "x"}]}, [f"{ENV}[0].name: Required value"]),
    "a name with an equals sign": (
        {ENV: [{"name": "A"}, {"name": "A=B"}]},
        [
            (
                f'{ENV}[1].name: Invalid value: "A=B": a valid environment variable name must consist only '
                "of printable "
                "ASCII characters other than '='"
            )
        ],
    ),
    "a value and a source": (
        {ENV: [{"name": "X", "value": "1", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
        [f'{ENV}[0].valueFrom: Invalid value: "": may not be specified when `value` is not empty'],
    ),
    "no source": (
        source(),
        [
            (
                f'{ENV}[0].valueFrom: Invalid value: "": must specify one of: `fieldRef`, `resourceFieldRef`, '
                "`configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
            )
        ],
    ),
    "two sources": (
        source(secretKeyRef={"name": "s", "key": "k"}, configMapKeyRef={"name": "c", "key": "k"}),
        [f'{ENV}[0].valueFrom: Invalid value: "": may not have more than one field specified at a time'],
    ),
    "no version": (field("metadata.name", ""), [f"{ENV}[0].valueFrom.fieldRef.apiVersion: Required value"]),
    "another version": (
        field("metadata.name", "v2"),
        [
            (
                f'{ENV}[0].valueFrom.fieldRef.fieldPath: Invalid value: "metadata.name": '
                "error converting fieldPath: unsupported pod version: v2"
            )
        ],
    ),
    "no field": (field(""), [f"{ENV}[0].valueFrom.fieldRef.fieldPath: Required value"]),
    "a field that does not exist": (
        field("metadata.whoops"),
        [
            (
                f'{ENV}[0].valueFrom.fieldRef.fieldPath: Invalid value: "metadata.whoops": '
                "error converting fieldPath: field label not supported: metadata.whoops"
            )
        ],
    ),
    "a field that only volumes show": (
        field("metadata.labels"),
        [f'{ENV}[0].valueFrom.fieldRef.fieldPath: Unsupported value: "metadata.labels": supported values: {FIELDS}'],
    ),
    "a subscript where there is none": (
        field("spec.nodeName['x']"),
        [
            (
                f"{ENV}[0].valueFrom.fieldRef.fieldPath: Invalid value: \"spec.nodeName['x']\": "
                "error converting fieldPath: field label does not support subscript: spec.nodeName['x']"
            )
        ],
    ),
    "an empty label key": (
        field("metadata.labels['']"),
        [
            f'{ENV}[0].valueFrom.fieldRef: Invalid value: "": name part must be non-empty',
            (
                f'{ENV}[0].valueFrom.fieldRef: Invalid value: "": name part must consist of alphanumeric characters, '
                "'-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  "
                "or 'my.name',  "
                "or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
            ),
        ],
    ),
    "no resource": (
        source(resourceFieldRef={}),
        [f"{ENV}[0].valueFrom.resourceFieldRef.resource: Required value"],
    ),
    "an unknown resource": (
        source(resourceFieldRef={"resource": "limits.disk"}),
        [
            (
                f'{ENV}[0].valueFrom.resourceFieldRef.resource: Unsupported value: "limits.disk": '
                f"supported values: {RESOURCES}"
            )
        ],
    ),
    "a cpu divided by kibis": (
        source(resourceFieldRef={"resource": "limits.cpu", "divisor": "1Ki"}),
        [
            (
                f'{ENV}[0].valueFrom.resourceFieldRef.divisor: Invalid value: "limits.cpu": '
                "only divisor's values 1m and 1 are supported with the cpu resource"
            )
        ],
    ),
    "memory divided by millis": (
        source(resourceFieldRef={"resource": "requests.memory", "divisor": "1m"}),
        [
            (
                f'{ENV}[0].valueFrom.resourceFieldRef.divisor: Invalid value: "requests.memory": only '
                "divisor's values "
                "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the memory resource"
            )
        ],
    ),
    "a config map with a bad name": (
        source(configMapKeyRef={"name": "Bad", "key": "k"}),
        [f'{ENV}[0].valueFrom.configMapKeyRef.name: Invalid value: "Bad": {NOT_SUBDOMAIN}'],
    ),
    "a secret without a key": (
        source(secretKeyRef={"name": "s"}),
        [f"{ENV}[0].valueFrom.secretKeyRef.key: Required value"],
    ),
    "a secret with a bad key": (
        source(secretKeyRef={"name": "s", "key": "a/b"}),
        [f'{ENV}[0].valueFrom.secretKeyRef.key: Invalid value: "a/b": {NOT_KEY}'],
    ),
    "a file on no volume": (
        source(fileKeyRef={"key": "K", "path": "../x", "volumeName": "gone"}),
        [
            f"{ENV}[0].valueFrom.fileKeyRef.path: Invalid value: \"../x\": must not contain '..'",
            f'{ENV}[0].valueFrom.fileKeyRef.volumeName: Not found: "gone"',
        ],
    ),
    "a file on a volume that is not an emptyDir": (
        {
            **source(fileKeyRef={"key": "K", "path": "x", "volumeName": "data"}),
            "spec.volumes[0]": {"name": "data", "hostPath": {"path": "/x"}},
        },
        [
            (
                f'{ENV}[0].valueFrom.fileKeyRef.volumeName: Invalid value: "data": '
                "referenced volume must be of type emptyDir"
            )
        ],
    ),
    "everything from nothing": (
        {FROM: [{"prefix": "X_"}]},
        [f'{FROM}: Invalid value: "": must specify one of: `configMapRef` or `secretRef`'],
    ),
    "everything from two": (
        {FROM: [{"configMapRef": {"name": "a"}, "secretRef": {"name": "b"}}]},
        [f'{FROM}: Invalid value: "": may not have more than one field specified at a time'],
    ),
    "everything from a nameless secret": (
        {FROM: [{"secretRef": {"name": ""}}]},
        [f"{FROM}[0].secretRef.name: Required value"],
    ),
    "a prefix with an equals sign": (
        {FROM: [{"prefix": "=", "secretRef": {"name": "s"}}]},
        [
            (
                f'{FROM}[0].prefix: Invalid value: "=": a valid environment variable name must consist only '
                "of printable "
                "ASCII characters other than '='"
            )
        ],
    ),
}


@pytest.mark.parametrize(("changes", "expected"), CASES.values(), ids=CASES)
def test_invalid_environments_are_rejected(changes, expected, errors_of):
    assert errors_of(changes) == expected


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({ENV: [{"name": "with space & dots.1", "value": ""}]}, id="a relaxed name"),
        pytest.param({ENV: [{"name": "X", "value": "1"}, {"name": "X", "value": "2"}]}, id="the same name twice"),
        pytest.param(field("status.podIPs"), id="the pod's addresses"),
        pytest.param(field("metadata.labels['app.kubernetes.io/name']"), id="one label"),
        pytest.param(field("metadata.annotations['Mixed/Case']"), id="one annotation in capitals"),
        pytest.param(source(resourceFieldRef={"resource": "limits.hugepages-2Mi", "divisor": "1Mi"}), id="huge pages"),
        pytest.param(source(resourceFieldRef={"resource": "limits.cpu", "divisor": "0"}), id="the default divisor"),
        pytest.param(source(fileKeyRef={"key": "K", "path": "x", "volumeName": "data"}), id="a file in an emptyDir"),
        pytest.param(
            {FROM: [{"prefix": "X_", "configMapRef": {"name": "c-", "optional": True}}]}, id="a whole config map"
        ),
    ],
)
def test_valid_environments_are_accepted(changes, errors_of):
    assert errors_of(changes) == []
