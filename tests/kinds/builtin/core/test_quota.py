"""Scopes of a ResourceQuota are checked, in upstream's words."""

import pytest

from podwire.kinds.builtin.core.resource_quota import validate_create

PATH = "spec.scopeSelector.matchExpressions"


def errors(hard=("pods",), **spec):
    return [str(error) for error in validate_create({"spec": {"hard": dict.fromkeys(hard, "1"), **spec}})]


def selecting(**expression):
    return {"scopeSelector": {"matchExpressions": [expression]}}


@pytest.mark.parametrize(
    "spec",
    [
        {"scopes": ["Terminating", "NotBestEffort"]},
        {"hard": ("count/pods", "example.com/x", "requests.cpu"), "scopes": ["PriorityClass"]},
        {"hard": ("persistentvolumeclaims",), "scopes": ["VolumeAttributesClass"]},
        selecting(scopeName="PriorityClass", operator="In", values=["high"]),
        selecting(scopeName="PriorityClass", operator="DoesNotExist"),
        selecting(scopeName="Terminating", operator="Exists"),
    ],
)
def test_valid_scopes(spec):
    assert errors(**spec) == []


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"scopes": ["Other"]}, 'spec.scopes: Invalid value: ["Other"]: unsupported scope'),
        (
            {"hard": ("requests.cpu",), "scopes": ["BestEffort"]},
            'spec.scopes: Invalid value: ["BestEffort"]: unsupported scope applied to resource',
        ),
        (
            {"scopes": ["Terminating", "NotTerminating"]},
            'spec.scopes: Invalid value: ["Terminating","NotTerminating"]: conflicting scopes',
        ),
        (
            selecting(scopeName="Other", operator="Exists"),
            f'{PATH}.scopeName: Invalid value: "Other": unsupported scope',
        ),
        (
            selecting(scopeName="PriorityClass", operator="In"),
            (
                f"{PATH}.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' "
                "for scope selector"
            ),
        ),
        (
            selecting(scopeName="PriorityClass", operator="Exists", values=["a"]),
            (
                f"{PATH}.values: Invalid value: [\"a\"]: must be no value when `operator` is 'Exist' or 'DoesNotExist' "
                "for scope selector"
            ),
        ),
        (
            selecting(scopeName="PriorityClass", operator="Like"),
            f'{PATH}.operator: Invalid value: "Like": not a valid selector operator',
        ),
    ],
)
def test_invalid_scopes(spec, words):
    assert errors(**spec) == [words]


def test_scopes_without_values_only_exist():
    [error] = errors(**selecting(scopeName="BestEffort", operator="DoesNotExist"))
    assert error.startswith(f"{PATH}.operator: Invalid value: \"DoesNotExist\": must be 'Exists' when scope is any of")


def test_a_selector_may_not_contradict_itself():
    expressions = [{"scopeName": name, "operator": "Exists"} for name in ("BestEffort", "NotBestEffort")]
    [error] = errors(scopeSelector={"matchExpressions": expressions})
    assert error.startswith(f"{PATH}: Invalid value: ")
    assert error.endswith("conflicting scopes")
