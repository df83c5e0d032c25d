import pytest

from podwire.kinds.podspec.validation import validate_template

NOT_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
NOT_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
NOT_IP = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
DNS = "spec.dnsConfig"

CASES = {
    "no restart policy": ({"spec.restartPolicy": ""}, ["spec.restartPolicy: Required value"]),
    "an unknown restart policy": (
        {"spec.restartPolicy": "Sometimes"},
        ['spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"'],
    ),
    "an unknown dns policy": (
        {"spec.dnsPolicy": "Google"},
        [
            (
                'spec.dnsPolicy: Unsupported value: "Google": '
                'supported values: "ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"'
            )
        ],
    ),
    "no dns policy": ({"spec.dnsPolicy": ...}, ["spec.dnsPolicy: Required value"]),
    "no dns and nothing else": (
        {"spec.dnsPolicy": "None"},
        [f"{DNS}: Required value: must provide `dnsConfig` when `dnsPolicy` is None"],
    ),
    "no dns and no server": (
        {"spec.dnsPolicy": "None", DNS: {"searches": ["x"]}},
        [f"{DNS}.nameservers: Required value: must provide at least one DNS nameserver when `dnsPolicy` is None"],
    ),
    "four servers": (
        {DNS: {"nameservers": ["1.1.1.1"] * 4}},
        [
            (
                f'{DNS}.nameservers: Invalid value: ["1.1.1.1","1.1.1.1","1.1.1.1","1.1.1.1"]: '
                "must not have more than 3 nameservers"
            )
        ],
    ),
    "a server by name": (
        {DNS: {"nameservers": ["1.1.1.1", "dns.google"]}},
        [f'{DNS}.nameservers[1]: Invalid value: "dns.google": {NOT_IP}'],
    ),
    "a search in capitals": (
        {DNS: {"searches": ["Example.com"]}},
        [
            (
                f'{DNS}.searches[0]: Invalid value: "Example.com": a lowercase RFC 1123 subdomain must '
                "consist of lower case "
                "alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character "
                "(e.g. 'example.com', regex used for validation is "
                r"'_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')"
            )
        ],
    ),
    "a dns option of no name": (
        {DNS: {"options": [{"value": "1"}]}},
        [f"{DNS}.options[0]: Required value: must not be empty"],
    ),
    "an alias for no address": (
        {"spec.hostAliases": [{"ip": "1.2.3", "hostnames": ["a", "B"]}]},
        [
            f'spec.hostAliases[0].ip: Invalid value: "1.2.3": {NOT_IP}',
            f'spec.hostAliases[0].hostnames[1]: Invalid value: "B": {NOT_SUBDOMAIN}',
        ],
    ),
    "a dotted hostname": ({"spec.hostname": "a.b"}, ['spec.hostname: Invalid value: "a.b": must not contain dots']),
    "a subdomain in capitals": ({"spec.subdomain": "A"}, [f'spec.subdomain: Invalid value: "A": {NOT_LABEL}']),
    "a hostname override on the host's network": (
        {"spec.hostnameOverride": "a", "spec.hostNetwork": True, "spec.setHostnameAsFQDN": True},
        [
            "spec.hostnameOverride: Forbidden: may not be specified when setHostnameAsFQDN is true",
            "spec.hostnameOverride: Forbidden: may not be specified when hostNetwork is true",
        ],
    ),
    "a long hostname override": (
        {"spec.hostnameOverride": "a" * 65},
        ["spec.hostnameOverride: Too long: may not be more than 64 bytes"],
    ),
    "an account in capitals": (
        {"spec.serviceAccountName": "Me"},
        [f'spec.serviceAccountName: Invalid value: "Me": {NOT_SUBDOMAIN}'],
    ),
    "two accounts": (
        {"spec.serviceAccountName": "a", "spec.serviceAccount": "b"},
        ['spec.deprecatedServiceAccount: Invalid value: "b": must be the same as serviceAccountName: "a"'],
    ),
    "a node in capitals": (
        {"spec.nodeName": "Node"},
        [f'spec.nodeName: Invalid value: "Node": {NOT_SUBDOMAIN}'],
    ),
    "a deadline of now": (
        {"spec.activeDeadlineSeconds": 0},
        ["spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive"],
    ),
    "a deadline beyond all": (
        {"spec.activeDeadlineSeconds": 2**31},
        ["spec.activeDeadlineSeconds: Invalid value: 2147483648: must be between 1 and 2147483647, inclusive"],
    ),
    "negative grace": (
        {"spec.terminationGracePeriodSeconds": -1},
        ["spec.terminationGracePeriodSeconds: Invalid value: -1: must be greater than or equal to 0"],
    ),
    "no grace": (
        {"spec.terminationGracePeriodSeconds": ...},
        ["spec.terminationGracePeriodSeconds: Required value"],
    ),
    "a priority in capitals": (
        {"spec.priorityClassName": "High"},
        [f'spec.priorityClassName: Invalid value: "High": {NOT_SUBDOMAIN}'],
    ),
    "an empty runtime class": (
        {"spec.runtimeClassName": ""},
        [f'spec.runtimeClassName: Invalid value: "": {NOT_SUBDOMAIN}'],
    ),
    "an unknown preemption": (
        {"spec.preemptionPolicy": "Always"},
        ['spec.preemptionPolicy: Unsupported value: "Always": supported values: "PreemptLowerPriority", "Never"'],
    ),
    "a nameless system": ({"spec.os": {}}, ["spec.os.name: Required value"]),
    "an unknown system": (
        {"spec.os": {"name": "plan9"}},
        ['spec.os: Unsupported value: "plan9": supported values: "linux", "windows"'],
    ),
}


@pytest.mark.parametrize(("changes", "expected"), CASES.values(), ids=CASES)
def test_invalid_specs_are_rejected(changes, expected, errors_of):
    assert errors_of(changes) == expected


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"spec.dnsPolicy": "None", DNS: {"nameservers": ["10.0.0.10", "fd00::a"]}}, id="own dns"),
        pytest.param(
            {DNS: {"searches": [".", "_tcp.svc.local.", "a_b"], "options": [{"name": "ndots"}]}}, id="searches"
        ),
        pytest.param({"spec.hostAliases": [{"ip": "::1", "hostnames": ["me.local"]}]}, id="an alias"),
        pytest.param({"spec.serviceAccountName": "a", "spec.serviceAccount": "a"}, id="an account by both names"),
        pytest.param({"spec.nodeName": "", "spec.hostname": "", "spec.priorityClassName": ""}, id="empty names"),
        pytest.param({"spec.terminationGracePeriodSeconds": 0}, id="no time to stop"),
        pytest.param({"spec.hostnameOverride": "a.b.c"}, id="a hostname of its own"),
        pytest.param({"spec.overhead": {"cpu": "100m"}, "spec.runtimeClassName": "kata"}, id="overhead"),
        pytest.param({"spec.imagePullSecrets": [{"name": "registry"}, {}]}, id="pull secrets"),
    ],
)
def test_valid_specs_are_accepted(changes, errors_of):
    assert errors_of(changes) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, [], id="a valid one"),
        pytest.param({"spec.containers[0].image": " "}, [], id="an image that is filled in later"),
        pytest.param(
            {"spec.hostNetwork": True, "spec.containers[0].ports": [{"containerPort": 80, "protocol": "TCP"}]},
            [],
            id="a host port that is filled in later",
        ),
        pytest.param(
            {
                "spec.hostNetwork": True,
                "spec.containers[0].ports": [{"containerPort": 80, "hostPort": 81, "protocol": "TCP"}],
            },
            [
                (
                    "spec.template.spec.containers[0].ports[0].hostPort: Invalid value: 81: "
                    "must match `containerPort` when `hostNetwork` is true"
                )
            ],
            id="a host port that is not the container's",
        ),
        pytest.param(
            {"spec.volumes[0]": {"name": "data", "image": {"pullPolicy": "Always"}}}, [], id="an image volume for later"
        ),
        pytest.param(
            {"metadata.labels": {"a": "b c"}},
            [
                (
                    'spec.template.labels: Invalid value: "b c": a valid label must be an empty string or consist of '
                    "alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
                    "(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
                    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
                )
            ],
            id="a bad label",
        ),
        pytest.param(
            {
                "spec.ephemeralContainers": [
                    {
                        "name": "d",
                        "image": "x",
                        "imagePullPolicy": "Always",
                        "terminationMessagePolicy": "File",
                    }
                ]
            },
            ["spec.template.spec.ephemeralContainers: Forbidden: ephemeral containers not allowed in pod template"],
            id="an ephemeral container",
        ),
        pytest.param({"spec.containers": []}, ["spec.template.spec.containers: Required value"], id="no containers"),
    ],
)
def test_a_template_lacks_the_fields_that_pods_get_later(changes, expected, spoiled):
    assert [str(error) for error in validate_template(spoiled(changes), "spec.template")] == expected


def test_an_empty_template_lacks_its_required_fields():
    assert [str(error) for error in validate_template({}, "spec.template")] == [
        "spec.template.spec.terminationGracePeriodSeconds: Required value",
        "spec.template.spec.containers: Required value",
        "spec.template.spec.restartPolicy: Required value",
        "spec.template.spec.dnsPolicy: Required value",
    ]
