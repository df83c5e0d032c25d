import pytest

T = "spec.tolerations"
S = "spec.topologySpreadConstraints"
RC = "spec.resourceClaims"
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


def spread(**fields):
    return {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", **fields}


CASES = {
    "a toleration of everything that is equal": (
        {T: [{"operator": "Equal"}]},
        [
            (
                f'{T}[0].operator: Invalid value: "Equal": '
                'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            )
        ],
    ),
    "a toleration by an odd key": ({T: [{"key": "a b"}]}, [f'{T}[0].key: Invalid value: "a b": {NOT_NAME}']),
    "a toleration by an odd value": (
        {T: [{"key": "a", "value": "!"}]},
        [f'{T}[0].operator: Invalid value: "!": {NOT_VALUE}'],
    ),
    "a toleration for seconds of what does not evict": (
        {T: [{"key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 3}]},
        [f"{T}[0].effect: Invalid value: \"NoSchedule\": effect must be 'NoExecute' when `tolerationSeconds` is set"],
    ),
    "a toleration that exists with a value": (
        {T: [{"key": "a", "operator": "Exists", "value": "x"}]},
        [f"{T}[0].operator: Invalid value: \"x\": value must be empty when `operator` is 'Exists'"],
    ),
    "an unknown toleration operator": (
        {T: [{"key": "a", "operator": "Gt", "value": "1"}]},
        [f'{T}[0].operator: Unsupported value: "Gt": supported values: "Equal", "Exists"'],
    ),
    "an unknown effect": (
        {T: [{"key": "a", "operator": "Exists", "effect": "NoLunch"}]},
        [
            (
                f'{T}[0].effect: Unsupported value: "NoLunch": '
                'supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"'
            )
        ],
    ),
    "no skew": ({S: [spread(maxSkew=0)]}, [f"{S}[0].maxSkew: Invalid value: 0: must be greater than zero"]),
    "no topology": ({S: [spread(topologyKey="")]}, [f"{S}[0].topologyKey: Required value: can not be empty"]),
    "an unknown action": (
        {S: [spread(whenUnsatisfiable="Cry")]},
        [f'{S}[0].whenUnsatisfiable: Unsupported value: "Cry": supported values: "DoNotSchedule", "ScheduleAnyway"'],
    ),
    "the same constraint twice": (
        {S: [spread(), spread(maxSkew=2)]},
        [f'{S}[0].{{topologyKey, whenUnsatisfiable}}: Duplicate value: "{{zone, DoNotSchedule}}"'],
    ),
    "domains for a wish": (
        {S: [spread(whenUnsatisfiable="ScheduleAnyway", minDomains=2)]},
        [
            (
                f"{S}[0].minDomains: Invalid value: 2: "
                "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway"
            )
        ],
    ),
    "no domains": ({S: [spread(minDomains=0)]}, [f"{S}[0].minDomains: Invalid value: 0: must be greater than zero"]),
    "an unknown node policy": (
        {S: [spread(nodeAffinityPolicy="Obey")]},
        [f'{S}[0].nodeAffinityPolicy: Unsupported value: "Obey": supported values: "Honor", "Ignore"'],
    ),
    "keys without a selector": (
        {S: [spread(matchLabelKeys=["a"])]},
        [f"{S}[0].matchLabelKeys: Forbidden: must not be specified when labelSelector is not set"],
    ),
    "a gate of no name": (
        {"spec.schedulingGates": [{"name": "a b"}]},
        [f'spec.schedulingGates[0]: Invalid value: "a b": {NOT_NAME}'],
    ),
    "a gate twice": (
        {"spec.schedulingGates": [{"name": "a"}, {"name": "a"}]},
        ['spec.schedulingGates[1]: Duplicate value: "a"'],
    ),
    "a gate on a pod that is placed": (
        {"spec.schedulingGates": [{"name": "a"}], "spec.nodeName": "n"},
        ["spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"],
    ),
    "a readiness gate of no name": (
        {"spec.readinessGates": [{"conditionType": "x y"}]},
        [f'spec.readinessGates[0].conditionType: Invalid value: "x y": {NOT_NAME}'],
    ),
    "a claim without a name": (
        {RC: [{"resourceClaimName": "x"}]},
        [f"{RC}[0].name: Required value"],
    ),
    "a claim twice": (
        {RC: [{"name": "a", "resourceClaimName": "x"}, {"name": "a", "resourceClaimName": "y"}]},
        [f'{RC}[1].name: Duplicate value: "a"'],
    ),
    "a claim from nowhere": (
        {RC: [{"name": "a"}]},
        [
            (
                f'{RC}[0]: Invalid value: {{"name":"a"}}: '
                "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            )
        ],
    ),
    "a claim from two sources": (
        {RC: [{"name": "a", "resourceClaimName": "x", "resourceClaimTemplateName": "y"}]},
        [
            (
                f'{RC}[0]: Invalid value: {{"name":"a","resourceClaimName":"x","resourceClaimTemplateName":"y"}}: '
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            )
        ],
    ),
    "claims of a static pod": (
        {
            "metadata.annotations": {"kubernetes.io/config.mirror": "1"},
            "spec.nodeName": "n",
            RC: [{"name": "a", "resourceClaimName": "x"}],
        },
        ["Forbidden: static pods do not support resource claims"],
    ),
}


@pytest.mark.parametrize(("changes", "expected"), CASES.values(), ids=CASES)
def test_invalid_scheduling_fields_are_rejected(changes, expected, errors_of):
    assert errors_of(changes) == expected


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({T: [{"operator": "Exists"}]}, id="all is tolerated"),
        pytest.param({T: [{"key": "a", "effect": "NoExecute", "tolerationSeconds": 0}]}, id="no time at all"),
        pytest.param({S: [spread(), spread(topologyKey="host")]}, id="two topologies"),
        pytest.param({S: [spread(minDomains=2, labelSelector={}, matchLabelKeys=["a"])]}, id="domains and keys"),
        pytest.param({"spec.schedulingGates": [{"name": "example.com/wait"}]}, id="a gate"),
        pytest.param({RC: [{"name": "a", "resourceClaimTemplateName": "x.y"}]}, id="a claim from a template"),
    ],
)
def test_valid_scheduling_fields_are_accepted(changes, errors_of):
    assert errors_of(changes) == []
