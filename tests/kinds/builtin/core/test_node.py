import pytest

from podwire.kinds.builtin.core.node import validate_create, validate_status, validate_update

NODE = {
    "metadata": {"name": "node-1"},
    "spec": {},
    "status": {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}, "allocatable": {"cpu": "3900m"}},
}
T = "metadata.taints"
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
EFFECTS = 'supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"'
NO_CONFIG = "kubelets do not take their configuration from the API any more"


def tainted(*taints):
    return {"spec.taints": list(taints)}


CREATED = {
    "as it is": ({}, []),
    "not schedulable": ({"spec.unschedulable": True}, []),
    "a taint": (tainted({"key": "example.com/gpu", "value": "", "effect": "NoSchedule"}), []),
    "a taint for two effects": (
        tainted({"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}),
        [],
    ),
    "a taint without effect": (tainted({"key": "a"}), [f"{T}[0].effect: Required value"]),
    "a taint with an odd effect": (
        tainted({"key": "a", "effect": "Never"}),
        [f'{T}[0].effect: Unsupported value: "Never": {EFFECTS}'],
    ),
    "a taint with an odd key": (
        tainted({"key": "a b", "effect": "NoExecute"}),
        [f'{T}[0].key: Invalid value: "a b": {NOT_NAME}'],
    ),
    "a taint with an odd value": (
        tainted({"key": "a", "value": "b c", "effect": "NoExecute"}),
        [f'{T}[0].value: Invalid value: "b c": {NOT_VALUE}'],
    ),
    "a taint twice": (
        tainted({"key": "a", "effect": "NoExecute"}, {"key": "a", "value": "b", "effect": "NoExecute"}),
        [
            (
                f'{T}[1]: Duplicate value: {{"key":"a","value":"b","effect":"NoExecute"}}: '
                "taints must be unique by key and effect pair"
            )
        ],
    ),
    "a network": ({"spec.podCIDRs": ["10.244.0.0/24"], "spec.podCIDR": "10.244.0.0/24"}, []),
    "a network of each family": ({"spec.podCIDRs": ["10.244.0.0/24", "fd00:1::/64"]}, []),
    "two networks of one family": (
        {"spec.podCIDRs": ["10.244.0.0/24", "10.245.0.0/24"]},
        [
            (
                'spec.podCIDRs: Invalid value: ["10.244.0.0/24","10.245.0.0/24"]: '
                "may specify no more than one CIDR for each IP family"
            )
        ],
    ),
    "three networks": (
        {"spec.podCIDRs": ["10.244.0.0/24", "fd00:1::/64", "fd00:2::/64"]},
        [
            (
                'spec.podCIDRs: Invalid value: ["10.244.0.0/24","fd00:1::/64","fd00:2::/64"]: '
                "may specify no more than one CIDR for each IP family"
            )
        ],
    ),
    "a network that is an address": (
        {"spec.podCIDRs": ["10.244.0.1"]},
        [
            (
                'spec.podCIDRs[0]: Invalid value: "10.244.0.1": '
                "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            )
        ],
    ),
    "a network with an address inside": (
        {"spec.podCIDRs": ["10.244.0.1/24"]},
        ['spec.podCIDRs[0]: Invalid value: "10.244.0.1/24": must not have bits set beyond the prefix length'],
    ),
    "negative capacity": (
        {"status.capacity.cpu": "-1"},
        ['status.capacity.cpu: Invalid value: "-1": must be greater than or equal to 0'],
    ),
    "half a pod": (
        {"status.capacity.pods": "500m"},
        ['status.capacity.pods: Invalid value: "500m": must be an integer'],
    ),
    "half a device": (
        {"status.allocatable": {"example.com/nic": "1500m"}},
        ['status.allocatable.example.com/nic: Invalid value: "1500m": must be an integer'],
    ),
    "features": ({"status.declaredFeatures": ["A", "B/c"]}, []),
    "features in disorder": (
        {"status.declaredFeatures": ["B", "A", "A"]},
        [
            'status.declaredFeatures[1]: Invalid value: "A": list must be sorted alphabetically',
            'status.declaredFeatures[2]: Duplicate value: "A"',
        ],
    ),
    "a feature in small letters": (
        {"status.declaredFeatures": ["a"]},
        [
            (
                'status.declaredFeatures[0]: Invalid value: "a": invalid feature name "a": must start with '
                "an UpperCamelCase "
                "segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and "
                "contain only alphanumeric characters and slashes"
            )
        ],
    ),
    "no swap to speak of": (
        {"status.nodeInfo": {"swap": {"capacity": 0}}},
        ["metadata.nodeSwapStatus.capacity: Invalid value: 0: must be greater than zero"],
    ),
    "a configuration from elsewhere": (
        {"spec.configSource": {}, "status.config": {}},
        [f"spec.configSource: Forbidden: {NO_CONFIG}", f"status.config: Forbidden: {NO_CONFIG}"],
    ),
}


@pytest.mark.parametrize(("changes", "expected"), CREATED.values(), ids=CREATED)
def test_a_node_is_created_so(changes, expected, edit):
    assert [str(error) for error in validate_create(edit(NODE, changes))] == expected


ONCE_NETWORK = 'spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid'
ONCE_PROVIDER = 'spec.providerID: Forbidden: node updates may not change providerID except from "" to valid'
A, B = {"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "n"}

UPDATED = {
    "not at all": ({}, {}, []),
    "to not schedulable": ({}, {"spec.unschedulable": True}, []),
    "to a taint": ({}, tainted({"key": "a", "effect": "NoSchedule"}), []),
    "to a network": ({}, {"spec.podCIDRs": ["10.244.0.0/24"]}, []),
    "to no network": ({"spec.podCIDRs": ["10.244.0.0/24"]}, {}, [ONCE_NETWORK]),
    "to another network": ({"spec.podCIDRs": ["10.244.0.0/24"]}, {"spec.podCIDRs": ["10.245.0.0/24"]}, [ONCE_NETWORK]),
    "to one network more": (
        {"spec.podCIDRs": ["10.244.0.0/24"]},
        {"spec.podCIDRs": ["10.244.0.0/24", "fd00::/64"]},
        [ONCE_NETWORK],
    ),
    "to a provider": ({}, {"spec.providerID": "podwire://1"}, []),
    "to another provider": ({"spec.providerID": "a"}, {"spec.providerID": "b"}, [ONCE_PROVIDER]),
    "to no provider": ({"spec.providerID": "a"}, {}, [ONCE_PROVIDER]),
    "to an external id": ({}, {"spec.externalID": "x"}, ["spec.externalID: Forbidden: may not be updated"]),
    "to two addresses": ({}, {"status.addresses": [A, B, {**A, "type": "ExternalIP"}]}, []),
    "to an address twice": (
        {},
        {"status.addresses": [A, B, A]},
        ['status.addresses[2]: Duplicate value: {"type":"InternalIP","address":"10.0.0.1"}'],
    ),
    "to a bad taint": ({}, tainted({"key": "a"}), [f"{T}[0].effect: Required value"]),
    "to negative capacity": (
        {},
        {"status.capacity.memory": "-1Gi"},
        ['status.capacity.memory: Invalid value: "-1Gi": must be greater than or equal to 0'],
    ),
}


@pytest.mark.parametrize(("before", "after", "expected"), UPDATED.values(), ids=UPDATED)
@pytest.mark.parametrize("change", [validate_update, validate_status], ids=["node", "status"])
def test_a_node_changes_so(before, after, expected, change, edit):
    assert [str(error) for error in change(edit(NODE, after), edit(NODE, before))] == expected
