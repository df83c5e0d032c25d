import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.kinds.builtin.core.pod.validate import update, update_ephemeral_containers

ONLY = (
    "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n"
)
T = {"key": "a", "operator": "Exists", "effect": "NoExecute"}
GATED = {"spec.schedulingGates": [{"name": "one"}, {"name": "two"}]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NODES = f"spec.affinity.nodeAffinity.{REQUIRED}"
OTHER = {
    "name": "other",
    "image": "busybox",
    "imagePullPolicy": "Always",
    "terminationMessagePolicy": "File",
}


def terms(*given):
    return {NODES: {"nodeSelectorTerms": [{"matchExpressions": list(item)} for item in given]}}


def there(key):
    return {"key": key, "operator": "Exists"}


CASES = {
    "nothing": ({}, {}, []),
    "an image": ({}, {"spec.containers[0].image": "nginx:2"}, []),
    "an image of an init container": (
        {"spec.initContainers": [OTHER]},
        {"spec.initContainers": [{**OTHER, "image": "busybox:2"}]},
        [],
    ),
    "an image to none": ({}, {"spec.containers[0].image": ""}, ["spec.containers[0].image: Required value"]),
    "one more container": (
        {},
        {"spec.containers[1]": OTHER},
        ["spec.containers: Forbidden: pod updates may not add or remove containers"],
    ),
    "one more init container": (
        {},
        {"spec.initContainers": [OTHER]},
        ["spec.initContainers: Forbidden: pod updates may not add or remove containers"],
    ),
    "a deadline": ({}, {"spec.activeDeadlineSeconds": 10}, []),
    "a nearer deadline": ({"spec.activeDeadlineSeconds": 10}, {"spec.activeDeadlineSeconds": 5}, []),
    "a later deadline": (
        {"spec.activeDeadlineSeconds": 10},
        {"spec.activeDeadlineSeconds": 11},
        ["spec.activeDeadlineSeconds: Invalid value: 11: must be less than or equal to previous value"],
    ),
    "no deadline any more": (
        {"spec.activeDeadlineSeconds": 10},
        {},
        ["spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value"],
    ),
    "one more toleration": ({"spec.tolerations": [T]}, {"spec.tolerations": [{"operator": "Exists"}, T]}, []),
    "a shorter toleration": (
        {"spec.tolerations": [{**T, "tolerationSeconds": 300}]},
        {"spec.tolerations": [{**T, "tolerationSeconds": 3}]},
        [],
    ),
    "one toleration less": (
        {"spec.tolerations": [T]},
        {},
        ["spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"],
    ),
    "a bad toleration more": (
        {},
        {"spec.tolerations": [{**T, "operator": "Maybe"}]},
        ['spec.tolerations[0].operator: Unsupported value: "Maybe": supported values: "Equal", "Exists"'],
    ),
    "a grace of one instead of none": (
        {"spec.terminationGracePeriodSeconds": -1},
        {"spec.terminationGracePeriodSeconds": 1},
        [],
    ),
    "another grace": (
        {},
        {"spec.terminationGracePeriodSeconds": 1},
        [ONLY + "  spec.terminationGracePeriodSeconds: 30 would become 1"],
    ),
    "a node": ({}, {"spec.nodeName": "n"}, [ONLY + '  spec.nodeName: nothing would become "n"']),
    "the host's network": (
        {},
        {"spec.hostNetwork": True},
        [ONLY + "  spec.hostNetwork: nothing would become true"],
    ),
    "a variable": (
        {"spec.containers[0].env": [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}]},
        {"spec.containers[0].env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
        [ONLY + '  spec.containers[0].env[1].value: "1" would become "2"'],
    ),
    "the root user": (
        {},
        {"spec.securityContext.runAsUser": 0},
        [ONLY + "  spec.securityContext.runAsUser: nothing would become 0"],
    ),
    "a label that nodes must have": (
        {},
        {"spec.nodeSelector": {"a": "b"}},
        [ONLY + '  spec.nodeSelector: nothing would become {"a":"b"}'],
    ),
    "zeros that were left out": (
        {"spec.hostNetwork": False, "spec.nodeName": "", "spec.tolerations": [], "spec.nodeSelector": {}},
        {"spec.containers[0].env": [], "spec.containers[0].stdin": False},
        [],
    ),
    "the last gate": (GATED, {}, []),
    "one gate less": (GATED, {"spec.schedulingGates": [{"name": "two"}]}, []),
    "one gate more": (
        GATED,
        {"spec.schedulingGates": [{"name": "one"}, {"name": "two"}, {"name": "three"}]},
        ["spec.schedulingGates[2].name: Forbidden: only deletion is allowed, but found new scheduling gate 'three'"],
    ),
    "a gate where there was none": (
        {},
        {"spec.schedulingGates": [{"name": "one"}]},
        ["spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'one'"],
    ),
    "fewer nodes for a gated pod": (
        {**GATED, "spec.nodeSelector": {"a": "1"}},
        {**GATED, "spec.nodeSelector": {"a": "1", "b": "2"}},
        [],
    ),
    "other nodes for a gated pod": (
        {**GATED, "spec.nodeSelector": {"a": "1"}},
        {**GATED, "spec.nodeSelector": {"a": "2"}},
        [
            (
                'spec.nodeSelector: Invalid value: {"a":"2"}: '
                "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
            )
        ],
    ),
    "an affinity for a gated pod": (GATED, {**GATED, **terms([there("a")])}, []),
    "a narrower affinity for a gated pod": (
        {**GATED, **terms([there("a")])},
        {**GATED, **terms([there("a"), there("b")])},
        [],
    ),
    "a wider affinity for a gated pod": (
        {**GATED, **terms([there("a"), there("b")])},
        {**GATED, **terms([there("b")])},
        [
            (
                f"{NODES}.nodeSelectorTerms[0]: Invalid value: "
                f'{{"matchExpressions":[{{"key":"b","operator":"Exists"}}]}}: '
                "only additions are allowed (no mutations or deletions)"
            )
        ],
    ),
    "another way to be placed for a gated pod": (
        {**GATED, **terms([there("a")])},
        {**GATED, **terms([there("a")], [there("b")])},
        [
            (
                f"{NODES}.nodeSelectorTerms: Invalid value: "
                f'[{{"matchExpressions":[{{"key":"a","operator":"Exists"}}]}},'
                '{"matchExpressions":[{"key":"b","operator":"Exists"}]}]: '
                "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
            )
        ],
    ),
    "neighbours for a gated pod": (
        GATED,
        {**GATED, "spec.affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "zone"}]}}},
        [
            ONLY + '  spec.affinity: nothing would become {"podAffinity":{"requiredDuringSchedulingIgnored'
            'DuringExecution":[{"topologyKey"…'
        ],
    ),
    "an affinity without a gate": (
        {},
        terms([there("a")]),
        [
            ONLY + '  spec.affinity: nothing would become {"nodeAffinity":{"requiredDuringSchedulingIgnored'
            'DuringExecution":{"nodeSelector…'
        ],
    ),
}


@pytest.mark.parametrize(("before", "after", "expected"), CASES.values(), ids=CASES)
def test_a_pod_may_change_only_so(before, after, expected, spoiled):
    assert [str(error) for error in update(spoiled(after), spoiled(before))] == expected


def test_the_number_of_reported_differences_is_limited(spoiled):
    variables = [{"name": f"V{number}", "value": "1"} for number in range(20)]
    others = [{**variable, "value": "2"} for variable in variables]
    old, new = (spoiled({"spec.containers[0].env": item}) for item in (variables, others))
    (error,) = update(new, old)
    lines = str(error).splitlines()
    assert len(lines) == 12
    assert lines[-1] == "  and more"


@given(st.text(max_size=20), st.integers(0, 2**31))
def test_an_unchanged_pod_is_accepted(spoiled_name, grace):
    """An old pod may break rules that came later; as long as its spec stays, it can be labelled."""
    pod = {"metadata": {}, "spec": {"containers": [{"name": spoiled_name}], "terminationGracePeriodSeconds": grace}}
    assert update({**pod, "metadata": {"labels": {"a": "b"}}}, pod) == []


DEBUG = {**OTHER, "name": "debug"}
EPHEMERAL_CASES = {
    "one more": ([DEBUG], [DEBUG, {**DEBUG, "name": "second"}], []),
    "in another order": ([DEBUG, {**DEBUG, "name": "b"}], [{**DEBUG, "name": "b"}, DEBUG], []),
    "one less": (
        [DEBUG],
        [],
        ['spec.ephemeralContainers: Forbidden: existing ephemeral containers "debug" may not be removed\n'],
    ),
    "another image": (
        [DEBUG],
        [{**DEBUG, "image": "alpine"}],
        [
            (
                'spec.ephemeralContainers: Forbidden: existing ephemeral containers "debug" may not be changed\n'
                '  debug.image: "busybox" would become "alpine"'
            )
        ],
    ),
}


@pytest.mark.parametrize(("before", "after", "expected"), EPHEMERAL_CASES.values(), ids=EPHEMERAL_CASES)
def test_ephemeral_containers_can_only_be_added(before, after, expected, spoiled):
    old, new = (spoiled({"spec.ephemeralContainers": item}) for item in (before, after))
    assert [str(error) for error in update_ephemeral_containers(new, old)] == expected


def test_a_static_pod_gets_no_ephemeral_container(spoiled):
    mirror = {"metadata.annotations": {"kubernetes.io/config.mirror": "x"}, "spec.nodeName": "n"}
    old, new = spoiled(mirror), spoiled({**mirror, "spec.ephemeralContainers": [DEBUG]})
    assert [str(error) for error in update_ephemeral_containers(new, old)] == [
        "Forbidden: static pods do not support ephemeral containers"
    ]
