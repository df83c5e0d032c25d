import pytest

R = "spec.containers[0].resources"


def resources(limits=None, requests=None, claims=None):
    given = {"limits": limits, "requests": requests, "claims": claims}
    return {R: {key: value for key, value in given.items() if value is not None}}


CLAIMS = {"spec.resourceClaims": [{"name": "gpu", "resourceClaimName": "g"}, {"name": "nic", "resourceClaimName": "n"}]}
UNKNOWN_CLAIM = "must be one of the names in pod.spec.resourceClaims"

CASES = {
    "more than the limit": (
        resources({"cpu": "1"}, {"cpu": "2"}),
        [f'{R}.requests: Invalid value: "2": must be less than or equal to cpu limit of 1'],
    ),
    "more memory than the limit, written differently": (
        resources({"memory": "1Gi"}, {"memory": "2G"}),
        [f'{R}.requests: Invalid value: "2G": must be less than or equal to memory limit of 1Gi'],
    ),
    "a negative limit": (
        resources({"cpu": "-1"}),
        [f'{R}.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0'],
    ),
    "a negative request": (
        resources(None, {"memory": "-1Mi"}),
        [f'{R}.requests[memory]: Invalid value: "-1Mi": must be greater than or equal to 0'],
    ),
    "a name of nothing": (
        resources({"disk": "1"}),
        [
            f'{R}.limits[disk]: Invalid value: "disk": must be a standard resource type or fully qualified',
            f'{R}.limits[disk]: Invalid value: "disk": must be a standard resource for containers',
        ],
    ),
    "a name that only quotas use": (
        resources({"pods": "1"}),
        [f'{R}.limits[pods]: Invalid value: "pods": must be a standard resource for containers'],
    ),
    "an extended name like a quota's": (
        resources({"requests.example.com/nic": "1"}),
        [
            (
                f'{R}.limits[requests.example.com/nic]: Invalid value: "requests.example.com/nic": '
                "doesn't follow extended resource name standard"
            )
        ],
    ),
    "half a device": (
        resources({"example.com/nic": "500m"}),
        [f'{R}.limits[example.com/nic]: Invalid value: "500m": must be an integer'],
    ),
    "a device only requested": (
        resources(None, {"example.com/nic": "1"}),
        [f"{R}.limits: Required value: Limit must be set for non overcommitable resources"],
    ),
    "fewer devices requested than the limit": (
        resources({"example.com/nic": "2"}, {"example.com/nic": "1"}),
        [f'{R}.requests: Invalid value: "1": must be equal to example.com/nic limit of 2'],
    ),
    "huge pages alone": (
        resources({"hugepages-2Mi": "2Mi"}, {"hugepages-2Mi": "2Mi"}),
        [f"{R}: Forbidden: HugePages require cpu or memory"],
    ),
    "a broken huge page": (
        resources({"hugepages-2Mi": "3Mi", "cpu": "1"}),
        [f'{R}.limits[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer multiple of hugepages-2Mi'],
    ),
    "huge pages of no size": (
        resources({"hugepages-big": "2Mi", "cpu": "1"}),
        [f'{R}.limits[hugepages-big]: Invalid value: "2Mi": 2Mi is not positive integer multiple of hugepages-big'],
    ),
    "a claim of nothing": (resources(claims=[{"name": ""}]), [f"{R}.claims[0]: Required value"]),
    "a claim that no pod has": (
        resources(claims=[{"name": "gpu"}]),
        [f'{R}.claims[0]: Not found: "gpu": {UNKNOWN_CLAIM} which is empty'],
    ),
    "a claim that this pod has not": (
        {**CLAIMS, **resources(claims=[{"name": "tpu"}])},
        [f'{R}.claims[0]: Not found: "tpu": {UNKNOWN_CLAIM}: gpu, nic'],
    ),
    "a claim twice": (
        {**CLAIMS, **resources(claims=[{"name": "gpu"}, {"name": "gpu"}])},
        [f'{R}.claims[1]: Duplicate value: "gpu"'],
    ),
    "a part of a claim after the whole": (
        {**CLAIMS, **resources(claims=[{"name": "gpu"}, {"name": "gpu", "request": "a"}])},
        [f'{R}.claims[1]: Duplicate value: "gpu"'],
    ),
    "a whole claim after a part": (
        {**CLAIMS, **resources(claims=[{"name": "gpu", "request": "a"}, {"name": "gpu"}])},
        [f'{R}.claims[1]: Duplicate value: "gpu"'],
    ),
    "a part of a claim twice": (
        {**CLAIMS, **resources(claims=[{"name": "gpu", "request": "a"}, {"name": "gpu", "request": "a"}])},
        [f'{R}.claims[1]: Duplicate value: "gpu/a"'],
    ),
    "pod-level claims": (
        {"spec.resources": {"claims": []}},
        ["spec.resources.claims: Forbidden: claims may not be set for Resources at pod-level"],
    ),
    "pod-level storage": (
        {"spec.resources": {"limits": {"ephemeral-storage": "-1"}}},
        [
            (
                'spec.resources.limits[ephemeral-storage]: Unsupported value: "ephemeral-storage": '
                'supported values: "cpu", "hugepages-", "memory"'
            ),
            'spec.resources.limits[ephemeral-storage]: Invalid value: "-1": must be greater than or equal to 0',
        ],
    ),
    "a pod that asks for less than its containers": (
        {"spec.resources": {"requests": {"cpu": "1"}}, **resources(None, {"cpu": "1500m"})},
        [
            (
                'spec.resources.requests[cpu]: Invalid value: "1": '
                "must be greater than or equal to aggregate container requests of 1500m"
            )
        ],
    ),
    "a container above its pod": (
        {"spec.resources": {"limits": {"memory": "1Gi"}}, **resources({"memory": "2Gi"})},
        [
            (
                'spec.resources.containers[0][memory].limits: Invalid value: "2Gi": '
                "must be less than or equal to pod limits of 1Gi"
            )
        ],
    ),
    "overhead of nothing": (
        {"spec.overhead": {"cpu": "-100m"}},
        ['spec.overhead.limits[cpu]: Invalid value: "-100m": must be greater than or equal to 0'],
    ),
}


@pytest.mark.parametrize(("changes", "expected"), CASES.values(), ids=CASES)
def test_invalid_resources_are_rejected(changes, expected, errors_of):
    assert errors_of(changes) == expected


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(resources({"cpu": "1"}, {"cpu": "1000m"}), id="a request that is the limit in other words"),
        pytest.param(resources({"example.com/nic": "2"}, {"example.com/nic": "2"}), id="two devices"),
        pytest.param(resources({"example.com/nic": "2k"}), id="two thousand devices"),
        pytest.param(resources({"hugepages-1Gi": "2Gi", "memory": "1Gi"}), id="huge pages beside memory"),
        pytest.param(
            {**CLAIMS, **resources(claims=[{"name": "gpu", "request": "a"}, {"name": "gpu", "request": "b"}])},
            id="two parts of a claim",
        ),
        pytest.param(
            {"spec.resources": {"requests": {"cpu": "2"}}, **resources(None, {"cpu": "2"})}, id="a pod that asks enough"
        ),
    ],
)
def test_valid_resources_are_accepted(changes, errors_of):
    assert errors_of(changes) == []


def starter(name, cpu, **fields):
    return {
        "name": name,
        "image": "x",
        "imagePullPolicy": "Always",
        "terminationMessagePolicy": "File",
        "resources": {"requests": {"cpu": cpu}},
        **fields,
    }


@pytest.mark.parametrize(
    ("starters", "needed"),
    [
        pytest.param([starter("a", "3")], "3", id="one step is larger than all that runs"),
        pytest.param([starter("a", "1"), starter("b", "1")], None, id="steps do not add up"),
        pytest.param([starter("a", "2", restartPolicy="Always")], "3", id="a sidecar runs beside the containers"),
        pytest.param(
            [starter("a", "1", restartPolicy="Always"), starter("b", "3")],
            "4",
            id="a step runs beside earlier sidecars",
        ),
    ],
)
def test_a_pod_asks_for_its_largest_moment(starters, needed, errors_of):
    changes = {
        "spec.resources": {"requests": {"cpu": "2"}},
        "spec.initContainers": starters,
        **resources(None, {"cpu": "1"}),
    }
    detail = f"must be greater than or equal to aggregate container requests of {needed}"
    assert errors_of(changes) == ([f'spec.resources.requests[cpu]: Invalid value: "2": {detail}'] if needed else [])
