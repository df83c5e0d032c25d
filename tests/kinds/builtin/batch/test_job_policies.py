"""Validation of Jobs' policies, in upstream's words."""

import pytest

from podwire.kinds.builtin.batch import job


def made(name="sum", restart="Never", **spec):
    template = {
        "metadata": {"labels": {"app": "sum"}},
        "spec": {"restartPolicy": restart, "containers": [{"name": "c", "image": "x"}]},
    }
    given = {"parallelism": 1, "selector": {"matchLabels": {"app": "sum"}}, "template": template, **spec}
    obj = {"metadata": {"name": name}, "spec": given}
    job.default(obj)
    return obj


def messages(obj):
    return [str(error) for error in job.validate_create(obj)]


def rule(**parts):
    return {"podFailurePolicy": {"rules": [parts]}}


CODES = {"operator": "In", "values": [1]}
INDEXED = {"completionMode": "Indexed", "completions": 3}
P = "spec.podFailurePolicy.rules[0]"
S = "spec.successPolicy.rules"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (rule(action="FailJob", onExitCodes=CODES), None),
        (
            rule(onExitCodes=CODES),
            f'{P}.action: Required value: valid values: ["Count" "FailIndex" "FailJob" "Ignore"]',
        ),
        (
            rule(action="Explode", onExitCodes=CODES),
            f'{P}.action: Unsupported value: "Explode": supported values: "Count", "FailIndex", "FailJob", "Ignore"',
        ),
        (
            rule(action="FailIndex", onExitCodes=CODES),
            f'{P}.action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set',
        ),
        (
            rule(action="Ignore"),
            f"{P}: Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
        ),
        (
            rule(action="Ignore", onExitCodes=CODES, onPodConditions=[{"type": "X", "status": "True"}]),
            f"{P}: Invalid value: specifying both OnExitCodes and OnPodConditions is not supported",
        ),
        (
            rule(action="Ignore", onExitCodes={"operator": "In", "values": [0]}),
            f"{P}.onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator",
        ),
        (
            rule(action="Ignore", onExitCodes={"operator": "In", "values": [3, 2]}),
            f"{P}.onExitCodes.values: Invalid value: [3,2]: must be ordered",
        ),
        (
            rule(action="Ignore", onExitCodes={"operator": "In", "values": [2, 2]}),
            f"{P}.onExitCodes.values[1]: Duplicate value: 2",
        ),
        (
            rule(action="Ignore", onExitCodes={**CODES, "containerName": "other"}),
            (
                f'{P}.onExitCodes.containerName: Invalid value: "other": '
                "must be one of the container or initContainer names in the pod template"
            ),
        ),
        (
            {**rule(action="FailJob", onExitCodes=CODES), "podReplacementPolicy": "TerminatingOrFailed"},
            'spec.podReplacementPolicy: Unsupported value: "TerminatingOrFailed": supported values: "Failed"',
        ),
        ({**INDEXED, "successPolicy": {"rules": [{"succeededIndexes": "0,2", "succeededCount": 1}]}}, None),
        (
            {**INDEXED, "successPolicy": {}},
            f"{S}: Required value: at least one rules must be specified when the successPolicy is specified",
        ),
        (
            {**INDEXED, "successPolicy": {"rules": [{}]}},
            f"{S}[0]: Required value: at least one of succeededCount or succeededIndexes must be specified",
        ),
        (
            {**INDEXED, "successPolicy": {"rules": [{"succeededIndexes": "2-1"}]}},
            (
                f'{S}[0].succeededIndexes: Invalid value: "2-1": '
                "error parsing succeededIndexes: non-increasing order, previous: 2, current: 1"
            ),
        ),
        (
            {**INDEXED, "successPolicy": {"rules": [{"succeededIndexes": "3"}]}},
            f'{S}[0].succeededIndexes: Invalid value: "3": error parsing succeededIndexes: too large index: "3"',
        ),
        (
            {**INDEXED, "successPolicy": {"rules": [{"succeededCount": 4}]}},
            (
                f"{S}[0].succeededCount: Invalid value: 4: "
                "must be less than or equal to 3 (the number of specified completions)"
            ),
        ),
        (
            {**INDEXED, "backoffLimitPerIndex": 1, "maxFailedIndexes": 4},
            "spec.maxFailedIndexes: Invalid value: 4: must be less than or equal to completions",
        ),
        (
            {"completionMode": "Indexed", "completions": 200_000, "backoffLimitPerIndex": 1},
            "spec.maxFailedIndexes: Required value: must be specified when completions is above 100000",
        ),
        (
            {"managedBy": "queue"},
            'spec.managedBy: Invalid value: "queue": must be a domain-prefixed path (such as "acme.io/foo")',
        ),
    ],
)
def test_policies_are_checked(spec, expected):
    assert messages(made(**spec)) == ([expected] if expected else [])


def test_an_indexed_job_with_a_name_that_no_hostname_can_have_is_refused():
    name = "a" * 62
    (message,) = messages(made(name, **INDEXED))
    assert message.endswith(f"will not able to create pod with invalid DNS label: {name}-2")
