import pytest

C = "spec.containers[0]"
ONE = {"successThreshold": 1, "failureThreshold": 3, "periodSeconds": 10, "timeoutSeconds": 1}


def probe(kind="livenessProbe", **fields):
    return {f"{C}.{kind}": {**ONE, **fields}}


def http(**fields):
    return {"path": "/", "port": 80, "scheme": "HTTP", **fields}


EXEC = {"exec": {"command": ["true"]}}

CASES = {
    "no handler": (probe(), [f"{C}.livenessProbe: Required value: must specify a handler type"]),
    "two handlers": (
        probe(**EXEC, tcpSocket={"port": 1}),
        [f"{C}.livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type"],
    ),
    "no command": (probe(exec={}), [f"{C}.livenessProbe.exec.command: Required value"]),
    "no path": (probe(httpGet=http(path="")), [f"{C}.livenessProbe.httpGet.path: Required value"]),
    "a port out of range": (
        probe(httpGet=http(port=70000)),
        [f"{C}.livenessProbe.httpGet.port: Invalid value: 70000: must be between 1 and 65535, inclusive"],
    ),
    "a port of no name": (
        probe(tcpSocket={"port": "8080"}),
        [f'{C}.livenessProbe.tcpSocket.port: Invalid value: "8080": must contain at least one letter (a-z)'],
    ),
    "an unknown scheme": (
        probe(httpGet=http(scheme="ftp")),
        [f'{C}.livenessProbe.httpGet.scheme: Unsupported value: "ftp": supported values: "HTTP", "HTTPS"'],
    ),
    "a header of no name": (
        probe(httpGet=http(httpHeaders=[{"name": "X-A", "value": ""}, {"name": "X A", "value": ""}])),
        [
            (
                f'{C}.livenessProbe.httpGet.httpHeaders: Invalid value: "X A": a valid HTTP header must consist of '
                "alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')"
            )
        ],
    ),
    "grpc on no port": (
        probe(grpc={"port": 0, "service": ""}),
        [f"{C}.livenessProbe.grpc.port: Invalid value: 0: must be between 1 and 65535, inclusive"],
    ),
    "negative numbers": (
        probe("readinessProbe", **EXEC, initialDelaySeconds=-1, timeoutSeconds=-2, periodSeconds=-3),
        [
            f"{C}.readinessProbe.initialDelaySeconds: Invalid value: -1: must be greater than or equal to 0",
            f"{C}.readinessProbe.timeoutSeconds: Invalid value: -2: must be greater than or equal to 0",
            f"{C}.readinessProbe.periodSeconds: Invalid value: -3: must be greater than or equal to 0",
        ],
    ),
    "two successes for life": (
        probe(**{**EXEC, "successThreshold": 2}),
        [f"{C}.livenessProbe.successThreshold: Invalid value: 2: must be 1"],
    ),
    "two successes for the start": (
        probe("startupProbe", **{**EXEC, "successThreshold": 2}),
        [f"{C}.startupProbe.successThreshold: Invalid value: 2: must be 1"],
    ),
    "no grace for a probe": (
        probe(**EXEC, terminationGracePeriodSeconds=0),
        [f"{C}.livenessProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0"],
    ),
    "grace for readiness": (
        probe("readinessProbe", **EXEC, terminationGracePeriodSeconds=5),
        [f"{C}.readinessProbe.terminationGracePeriodSeconds: Invalid value: 5: must not be set for readinessProbes"],
    ),
    "a hook of nothing": (
        {f"{C}.lifecycle": {"postStart": {}}},
        [f"{C}.lifecycle.postStart: Required value: must specify a handler type"],
    ),
    "a hook of two": (
        {f"{C}.lifecycle": {"preStop": {**EXEC, "sleep": {"seconds": 1}}}},
        [f"{C}.lifecycle.preStop.sleep: Forbidden: may not specify more than 1 handler type"],
    ),
    "a sleep beyond the grace": (
        {f"{C}.lifecycle": {"preStop": {"sleep": {"seconds": 31}}}},
        [
            (
                f"{C}.lifecycle.preStop.sleep: Invalid value: 31: "
                "must be non-negative and less than terminationGracePeriodSeconds (30)"
            )
        ],
    ),
    "a negative sleep": (
        {f"{C}.lifecycle": {"preStop": {"sleep": {"seconds": -1}}}},
        [
            (
                f"{C}.lifecycle.preStop.sleep: Invalid value: -1: "
                "must be non-negative and less than terminationGracePeriodSeconds (30)"
            )
        ],
    ),
    "a stop signal for no system": (
        {f"{C}.lifecycle": {"stopSignal": "SIGUSR1"}},
        [f"{C}.lifecycle.stopSignal: Forbidden: may not be set for containers with empty `spec.os.name`"],
    ),
    "a stop signal that windows lacks": (
        {f"{C}.lifecycle": {"stopSignal": "SIGUSR1"}, "spec.os": {"name": "windows"}},
        [f'{C}.lifecycle.stopSignal: Unsupported value: "SIGUSR1": supported values: "SIGKILL", "SIGTERM"'],
    ),
}


@pytest.mark.parametrize(("changes", "expected"), CASES.values(), ids=CASES)
def test_invalid_probes_and_hooks_are_rejected(changes, expected, errors_of):
    assert errors_of(changes) == expected


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(probe(httpGet=http(port="http", scheme="HTTPS", host="x")), id="http on a named port"),
        pytest.param(probe("readinessProbe", **{**EXEC, "successThreshold": 3}), id="three successes to be ready"),
        pytest.param(probe(grpc={"port": 9090, "service": "x"}), id="grpc"),
        pytest.param({f"{C}.lifecycle": {"preStop": {"sleep": {"seconds": 0}}}}, id="no sleep at all"),
        pytest.param(
            {f"{C}.lifecycle": {"stopSignal": "SIGRTMIN+3"}, "spec.os": {"name": "linux"}}, id="a real-time stop signal"
        ),
    ],
)
def test_valid_probes_and_hooks_are_accepted(changes, errors_of):
    assert errors_of(changes) == []
