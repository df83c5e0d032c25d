import pytest

NODE = "spec.affinity.nodeAffinity"
POD = "spec.affinity.podAffinity"
ANTI = "spec.affinity.podAntiAffinity"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
TERM = f"{NODE}.{REQUIRED}.nodeSelectorTerms[0]"
NOT_NAME = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
NOT_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def nodes(*expressions, fields=()):
    term = {"matchExpressions": list(expressions), "matchFields": list(fields)}
    return {f"{NODE}.{REQUIRED}": {"nodeSelectorTerms": [term]}}


def rule(key, operator, *values):
    return {"key": key, "operator": operator, "values": list(values)}


def near(**term):
    return {f"{POD}.{REQUIRED}": [{"topologyKey": "zone", **term}]}


CASES = {
    "no terms": (
        {f"{NODE}.{REQUIRED}": {"nodeSelectorTerms": []}},
        [f"{NODE}.{REQUIRED}.nodeSelectorTerms: Required value: must have at least one node selector term"],
    ),
    "one of nothing": (
        nodes(rule("a", "In")),
        [f"{TERM}.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"],
    ),
    "there, with a value": (
        nodes(rule("a", "Exists", "x")),
        [
            (
                f"{TERM}.matchExpressions[0].values: Forbidden: "
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            )
        ],
    ),
    "greater than two": (
        nodes(rule("a", "Gt", "1", "2")),
        [
            (
                f"{TERM}.matchExpressions[0].values: Required value: "
                "must be specified single value when `operator` is 'Lt' or 'Gt'"
            )
        ],
    ),
    "an unknown operator": (
        nodes(rule("a", "Like", "x")),
        [f'{TERM}.matchExpressions[0].operator: Invalid value: "Like": not a valid selector operator'],
    ),
    "a key of no label": (
        nodes(rule("a b", "Exists")),
        [f'{TERM}.matchExpressions[0].key: Invalid value: "a b": {NOT_NAME}'],
    ),
    "a value of no label": (
        nodes(rule("a", "In", "x", "-")),
        [f'{TERM}.matchExpressions[0].values[1]: Invalid value: "-": {NOT_VALUE}'],
    ),
    "a field of no node": (
        nodes(fields=[rule("spec.x", "In", "x")]),
        [f'{TERM}.matchFields[0].key: Invalid value: "spec.x": not a valid field selector key'],
    ),
    "a field of two nodes": (
        nodes(fields=[rule("metadata.name", "In", "a", "b")]),
        [
            (
                f"{TERM}.matchFields[0].values: Required value: "
                "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            )
        ],
    ),
    "a field that is merely there": (
        nodes(fields=[{"key": "metadata.name", "operator": "Exists"}]),
        [f'{TERM}.matchFields[0].operator: Invalid value: "Exists": not a valid selector operator'],
    ),
    "a preference without weight": (
        {f"{NODE}.{PREFERRED}": [{"weight": 0, "preference": {}}, {"weight": 101, "preference": {}}]},
        [
            f"{NODE}.{PREFERRED}[0].weight: Invalid value: 0: must be in the range 1-100",
            f"{NODE}.{PREFERRED}[1].weight: Invalid value: 101: must be in the range 1-100",
        ],
    ),
    "no topology": (
        near(topologyKey=""),
        [
            f"{POD}.{REQUIRED}[0].topologyKey: Required value: can not be empty",
            f'{POD}.{REQUIRED}[0].topologyKey: Invalid value: "": name part must be non-empty',
            f'{POD}.{REQUIRED}[0].topologyKey: Invalid value: "": {NOT_NAME}',
        ],
    ),
    "far from pods without weight": (
        {f"{ANTI}.{PREFERRED}": [{"weight": -1, "podAffinityTerm": {"topologyKey": "zone"}}]},
        [f"{ANTI}.{PREFERRED}[0].weight: Invalid value: -1: must be in the range 1-100"],
    ),
    "near pods in no namespace": (
        near(namespaces=["a.b"]),
        [f'{POD}.{REQUIRED}[0].namespace: Invalid value: "a.b": must not contain dots'],
    ),
    "near pods with odd labels": (
        near(labelSelector={"matchLabels": {"a": "-"}, "matchExpressions": [{"key": "b", "operator": "Gt"}]}),
        [
            f'{POD}.{REQUIRED}[0].labelSelector.matchLabels: Invalid value: "-": {NOT_VALUE}',
            (
                f"{POD}.{REQUIRED}[0].labelSelector.matchExpressions[0].operator: "
                'Invalid value: "Gt": not a valid selector operator'
            ),
        ],
    ),
    "keys without a selector": (
        near(matchLabelKeys=["a"]),
        [f"{POD}.{REQUIRED}[0].matchLabelKeys: Forbidden: must not be specified when labelSelector is not set"],
    ),
    "a key to match and to miss": (
        near(labelSelector={}, matchLabelKeys=["a"], mismatchLabelKeys=["a"]),
        [
            (
                f'{POD}.{REQUIRED}[0].matchLabelKeys[0]: Invalid value: "a": '
                "exists in both matchLabelKeys and mismatchLabelKeys"
            )
        ],
    ),
    "a key that is selected anyway": (
        near(
            labelSelector={"matchLabels": {"a": "1"}, "matchExpressions": [rule("a", "In", "1")]}, matchLabelKeys=["a"]
        ),
        [f'{POD}.{REQUIRED}[0][0]: Invalid value: "a": exists in both matchLabelKeys and labelSelector'],
    ),
    "a label that no node has": (
        {"spec.nodeSelector": {"disk type": "ssd", "zone": "?"}},
        [
            f'spec.nodeSelector: Invalid value: "disk type": {NOT_NAME}',
            f'spec.nodeSelector: Invalid value: "?": {NOT_VALUE}',
        ],
    ),
}


@pytest.mark.parametrize(("changes", "expected"), CASES.values(), ids=CASES)
def test_invalid_affinities_are_rejected(changes, expected, errors_of):
    assert errors_of(changes) == expected


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(nodes(rule("a", "In", "x"), rule("b", "Gt", "4"), rule("c", "DoesNotExist")), id="three rules"),
        pytest.param(nodes(fields=[rule("metadata.name", "In", "node-1")]), id="one node"),
        pytest.param(
            {f"{NODE}.{PREFERRED}": [{"weight": 1, "preference": {"matchExpressions": [rule("a", "In", "-")]}}]},
            id="a preference for a value that no label has",
        ),
        pytest.param(near(labelSelector={"matchLabels": {"a": "b"}}, namespaceSelector={}), id="near pods"),
        pytest.param(
            near(labelSelector={"matchExpressions": [rule("a", "In", "1")]}, matchLabelKeys=["a"]),
            id="keys that were merged into the selector",
        ),
    ],
)
def test_valid_affinities_are_accepted(changes, errors_of):
    assert errors_of(changes) == []
