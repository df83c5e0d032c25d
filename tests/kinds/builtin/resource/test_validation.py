"""Devices, what may be asked of them, and taints: refusals in upstream's words."""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podwire.kinds.builtin.resource.capacity_checks import capacity
from podwire.kinds.strategies import strategy_of
from podwire.objects import names
from podwire.protocols.k8sapi.builtin import BUILTIN

V1 = "resource.k8s.io/v1"


def errors_of(kind, spec, api_version=V1):
    found = BUILTIN.of_kind(api_version, kind)
    metadata = {"name": "x", "uid": "u", **({"namespace": "default"} if found.namespaced else {})}
    obj = {"metadata": metadata, "spec": copy.deepcopy(spec)}
    strategy_of(found).apply_defaults(obj)
    return [str(item) for item in strategy_of(found).errors_on_create(found, obj)]


def claim(**exactly):
    return {"devices": {"requests": [{"name": "nic", "exactly": {"deviceClassName": "nics", **exactly}}]}}


def one_device(**device):
    return {
        "driver": "net.example",
        "nodeName": "n1",
        "pool": {"name": "n1", "resourceSliceCount": 1},
        "devices": [{"name": "eth0", **device}],
    }


REQUEST = "spec.devices.requests[0].exactly"
TAINT = {"key": "k", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("spec", "errors"),
    [
        pytest.param(claim(), [], id="one of a class"),
        pytest.param(claim(selectors=[{"cel": {"expression": "device.driver == 'x'"}}]), [], id="selected"),
        pytest.param(
            claim(selectors=[{"cel": {"expression": "device.attributes['net.example'].mtu >= 9000"}}]),
            [],
            id="selected by an attribute",
        ),
        pytest.param(
            claim(selectors=[{"cel": {"expression": "device.color"}}]),
            [
                (
                    f'{REQUEST}.selectors[0].cel.expression: Invalid value: "device.color": compilation failed: '
                    "ERROR: <input>:1:7: undefined field 'color'\n | device.color\n | ......^"
                )
            ],
            id="selected by what devices do not have",
        ),
        pytest.param(
            claim(selectors=[{"cel": {"expression": "1"}}]),
            [
                (
                    f'{REQUEST}.selectors[0].cel.expression: Invalid value: "1": '
                    "must evaluate to bool or the unknown type, not int"
                )
            ],
            id="selected by a number",
        ),
        pytest.param(claim(selectors=[{}]), [f"{REQUEST}.selectors[0].cel: Required value"], id="an empty selector"),
        pytest.param(
            claim(selectors=[{"cel": {"expression": "x" * 10241}}]),
            [f"{REQUEST}.selectors[0].cel.expression: Too long: may not be more than 10240 bytes"],
            id="a long expression",
        ),
        pytest.param(
            claim(selectors=[{"cel": {"expression": "true"}}] * 33),
            [f"{REQUEST}.selectors: Too many: 33: must have at most 32 items"],
            id="too many selectors",
        ),
        pytest.param(
            claim(allocationMode="Most"),
            [f'{REQUEST}.allocationMode: Unsupported value: "Most": supported values: "All", "ExactCount"'],
            id="a mode that there is not",
        ),
        pytest.param(
            claim(count=-1), [f"{REQUEST}.count: Invalid value: -1: must be greater than zero"], id="less than none"
        ),
        pytest.param(
            claim(tolerations=[{"operator": "Exists", "value": "v", "effect": "Never"}]),
            [
                f'{REQUEST}.tolerations[0].value: Invalid value: "v": must be empty for operator `Exists`',
                (
                    f'{REQUEST}.tolerations[0].effect: Unsupported value: "Never": '
                    'supported values: "NoExecute", "NoSchedule", "None"'
                ),
            ],
            id="a toleration of nothing",
        ),
        pytest.param(
            {"devices": {"constraints": [{"matchAttribute": "a/b/c"}]}},
            [
                (
                    "spec.devices.constraints[0].matchAttribute: Invalid value: "
                    '"a/b/c": must not contain more than one slash'
                )
            ],
            id="an attribute with two slashes",
        ),
        pytest.param(
            {"devices": {"config": [{"opaque": {"driver": "d", "parameters": {"a": "x" * 10240}}}]}},
            ["spec.devices.config[0].opaque.parameters: Too long: may not be more than 10240 bytes"],
            id="much to tell a driver",
        ),
        pytest.param(
            {"devices": {"config": [{"opaque": {"driver": "d", "parameters": [1]}}]}},
            ['spec.devices.config[0].opaque.parameters: Invalid value: "<value omitted>": must be a valid JSON object'],
            id="parameters that are no object",
        ),
    ],
)
def test_invalid_claims_are_rejected(spec, errors):
    assert errors_of("ResourceClaim", spec) == errors


@pytest.mark.parametrize(
    ("spec", "errors"),
    [
        pytest.param(
            {**one_device(), "devices": [{"name": f"d{number}"} for number in range(129)]},
            ["spec.devices: Too many: 129: must have at most 128 items"],
            id="too many devices",
        ),
        pytest.param(
            {**one_device(), "devices": [{"name": f"d{number}", "taints": [TAINT]} for number in range(65)]},
            ["spec.devices: Too many: 65: must have at most 64 items"],
            id="too many for taints",
        ),
        pytest.param(
            one_device(attributes={"a/b/c": {"int": 1}}),
            ['spec.devices[0].attributes: Invalid value: "a/b/c": must not contain more than one slash'],
            id="two slashes",
        ),
        pytest.param(
            one_device(attributes={"text": {"string": "x" * 65}}),
            ["spec.devices[0].attributes[text].string: Too long: may not be more than 64 bytes"],
            id="a long text",
        ),
        pytest.param(
            one_device(attributes={f"a{number}": {"int": 1} for number in range(33)}),
            ["spec.devices[0]: Invalid value: 33: the total number of attributes and capacities must not exceed 32"],
            id="too many attributes",
        ),
        pytest.param(
            {**one_device(nodeName="", allNodes=False), "nodeName": None, "perDeviceNodeSelection": True},
            [
                'spec.devices[0].nodeName: Invalid value: "": must not be empty',
                "spec.devices[0].allNodes: Invalid value: false: must be either unset or set to true",
                (
                    "spec.devices[0]: Required value: exactly one of `nodeName`, `nodeSelector`, or `allNodes` is "
                    "required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
                ),
            ],
            id="a device that is nowhere",
        ),
        pytest.param(
            one_device(capacity={"bw": {"value": "1G", "requestPolicy": {"default": "1M"}}}),
            ["spec.devices[0].capacity[bw].requestPolicy: Forbidden: allowMultipleAllocations must be true"],
            id="a policy for a device that is not shared",
        ),
        pytest.param(
            {**one_device(), "nodeSelector": {"nodeSelectorTerms": []}, "nodeName": None},
            [
                "spec.nodeSelector.nodeSelectorTerms: Required value: must have at least one node selector term",
                "spec.nodeSelector.nodeSelectorTerms: Invalid value: []: must have exactly one node selector term",
            ],
            id="a selector without a term",
        ),
    ],
)
def test_invalid_slices_are_rejected(spec, errors):
    spec = {key: value for key, value in spec.items() if value is not None}
    assert errors_of("ResourceSlice", spec) == errors


def policies(policy, value="10"):
    errors = []
    capacity({"value": value, "requestPolicy": policy}, "bw", errors, shared=True)
    return [str(error) for error in errors]


@pytest.mark.parametrize(
    ("policy", "errors"),
    [
        pytest.param({}, [], id="nothing"),
        pytest.param({"default": "2", "validValues": ["1", "2", "4"]}, [], id="some values"),
        pytest.param({"default": "2", "validRange": {"min": "1", "max": "9", "step": "1"}}, [], id="a range"),
        pytest.param(
            {"default": "1", "validValues": ["1"], "validRange": {"min": "1"}},
            [
                (
                    "bw.requestPolicy: Forbidden: exactly one policy can be specified, "
                    'cannot specify "validValues" and "validRange" at the same time'
                )
            ],
            id="both",
        ),
        pytest.param(
            {"validValues": ["1"]},
            ["bw.requestPolicy.default: Required value: required when validValues is defined"],
            id="values without a default",
        ),
        pytest.param(
            {"validRange": {"min": "1"}},
            ["bw.requestPolicy.default: Required value: required when validRange is defined"],
            id="a range without a default",
        ),
        pytest.param(
            {"default": "3", "validValues": ["4", "2", "2", "11"]},
            [
                'bw.requestPolicy.validValues[1]: Invalid value: "2": values must be sorted in ascending order',
                'bw.requestPolicy.validValues[3]: Invalid value: "11": option is larger than capacity value: 10',
                'bw.requestPolicy.validValues[2]: Duplicate value: "2"',
                (
                    'bw.requestPolicy.validValues: Invalid value: "3": '
                    "default value is not valid according to the requestPolicy"
                ),
            ],
            id="values of every wrong kind",
        ),
        pytest.param(
            {"default": "1", "validRange": {"max": "3"}},
            ["bw.requestPolicy.validRange.min: Required value: required when validRange is defined"],
            id="a range without a beginning",
        ),
        pytest.param(
            {"default": "1", "validRange": {"min": "11", "max": "10500m"}},
            [
                'bw.requestPolicy.validRange.min: Invalid value: "11": min is larger than capacity value: 10',
                'bw.requestPolicy.validRange.default: Invalid value: "1": default is less than min: 11',
                'bw.requestPolicy.validRange.max: Invalid value: "11": min is larger than max: 10500m',
                'bw.requestPolicy.validRange.max: Invalid value: "10500m": max is larger than capacity value: 10',
            ],
            id="a range beyond the capacity",
        ),
        pytest.param(
            {"default": "4", "validRange": {"min": "1", "max": "3", "step": "10"}},
            [
                'bw.requestPolicy.validRange.default: Invalid value: "4": default is more than max: 3',
                'bw.requestPolicy.validRange.step: Invalid value: "10": one step 11 is larger than capacity value: 10',
                (
                    'bw.requestPolicy.validRange.step: Invalid value: "4": '
                    "value is not a multiple of a given step (10) from (1)"
                ),
                (
                    'bw.requestPolicy.validRange.step: Invalid value: "3": '
                    "value is not a multiple of a given step (10) from (1)"
                ),
            ],
            id="steps that lead past",
        ),
        pytest.param(
            {"default": "1", "validRange": {"min": "1", "step": "0"}},
            ['bw.requestPolicy.validRange.step: Invalid value: "0": must be greater than zero'],
            id="no step at all",
        ),
    ],
)
def test_a_policy_makes_sense(policy, errors):
    assert policies(policy) == errors


whole = st.integers(min_value=0, max_value=60)


@settings(max_examples=200)
@given(low=whole, step=st.integers(min_value=1, max_value=9), steps=whole, top=whole, most=whole)
def test_a_range_needs_a_default_and_an_end_on_steps_within_the_capacity(low, step, steps, top, most):
    default = low + steps * step
    policy = {"default": str(default), "validRange": {"min": str(low), "max": str(top), "step": str(step)}}

    good = low + step <= most and default <= top <= most and (top - low) % step == 0

    assert (policies(policy, str(most)) == []) is good


RULES = "resource.k8s.io/v1beta2"


@pytest.mark.parametrize(
    ("spec", "errors"),
    [
        pytest.param({"taint": TAINT}, [], id="for nothing yet"),
        pytest.param({"taint": TAINT, "deviceSelector": {}}, [], id="for all"),
        pytest.param(
            {"taint": {}, "deviceSelector": {"driver": "", "pool": "", "device": "A"}},
            [
                "spec.deviceSelector.driver: Required value",
                "spec.deviceSelector.pool: Required value",
                f'spec.deviceSelector.device: Invalid value: "A": {names.dns_label("A")[0]}',
                *(f'spec.taint.key: Invalid value: "": {item}' for item in names.qualified_name("")),
                "spec.taint.effect: Required value",
            ],
            id="of every wrong kind",
        ),
    ],
)
def test_a_taint_rule_taints(spec, errors):
    assert errors_of("DeviceTaintRule", spec, RULES) == errors


CONDITION = {"type": "Ready", "status": "True", "reason": "Ok", "lastTransitionTime": "2027-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("conditions", "errors"),
    [
        pytest.param([CONDITION], [], id="one"),
        pytest.param([CONDITION, CONDITION], ['status.conditions[1].type: Duplicate value: "Ready"'], id="two"),
        pytest.param(
            [{"type": "Ready", "status": "Maybe", "observedGeneration": -1}],
            [
                'status.conditions[0].status: Unsupported value: "Maybe": supported values: "False", "True", "Unknown"',
                "status.conditions[0].observedGeneration: Invalid value: -1: must be greater than or equal to zero",
                "status.conditions[0].lastTransitionTime: Required value: must be set",
                "status.conditions[0].reason: Required value: must be set",
            ],
            id="of every wrong kind",
        ),
        pytest.param(
            [{**CONDITION, "type": f"T{number}"} for number in range(9)],
            ["status.conditions: Too many: 9: must have at most 8 items"],
            id="too many",
        ),
    ],
)
def test_conditions_have_the_common_form(conditions, errors):
    kind = BUILTIN.of_kind(RULES, "DeviceTaintRule")
    old = {"metadata": {"name": "r", "uid": "u", "resourceVersion": "1"}, "spec": {"taint": TAINT}}
    new = {**old, "status": {"conditions": conditions}}
    assert [str(item) for item in strategy_of(kind).errors_on_update(new, old, "status")] == errors
