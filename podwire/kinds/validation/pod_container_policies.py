"""When a container is restarted: its own restart policy and rules, and what a resize does to it."""

from collections.abc import Sequence

from podwire.kinds.validation.pod_values import Choice, Errors, Object
from podwire.protocols.k8sapi.status import duplicate, invalid, required, too_many

_RESTART_POLICIES = Choice(("Always", "Never", "OnFailure"))
_RULE_ACTIONS = Choice(("Restart", "RestartAllContainers"))
_RULE_OPERATORS = Choice(("In", "NotIn"))
_MOST_RULES = 20
_MOST_EXIT_CODES = 255
_RESIZED = Choice(("cpu", "memory"))
_RESIZE_POLICIES = Choice(("NotRequired", "RestartContainer"))


def restart_policy(container: Object, path: str, errors: Errors) -> None:
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules") or ()
    if policy is not None:
        _RESTART_POLICIES.check(policy, f"{path}.restartPolicy", errors)
    elif rules:
        detail = "must specify restartPolicy when restart rules are used"
        errors.append(required(f"{path}.restartPolicy", detail))
    if len(rules) > _MOST_RULES:
        errors.append(too_many(f"{path}.restartPolicyRules", len(rules), _MOST_RULES))
    for index, rule in enumerate(rules):
        _rule(rule, f"{path}.restartPolicyRules[{index}]", errors)


def _rule(rule: Object, path: str, errors: Errors) -> None:
    _RULE_ACTIONS.check(rule.get("action", ""), f"{path}.action", errors)
    if (codes := rule.get("exitCodes")) is None:
        errors.append(required(f"{path}.exitCodes", "must be specified"))
        return
    _RULE_OPERATORS.check(codes.get("operator", ""), f"{path}.exitCodes.operator", errors)
    values = codes.get("values") or ()
    if len(values) > _MOST_EXIT_CODES:
        errors.append(too_many(f"{path}.exitCodes.values", len(values), _MOST_EXIT_CODES))


def resize_policy(policies: Sequence[Object], pod_restart_policy: str, path: str, errors: Errors) -> None:
    seen: set[str] = set()
    for index, each in enumerate(policies):
        resource, policy = each.get("resourceName", ""), each.get("restartPolicy", "")
        if resource in seen:
            errors.append(duplicate(f"{path}[{index}]", resource))
        seen.add(resource)
        _RESIZED.require(resource, path, errors)
        _RESIZE_POLICIES.require(policy, path, errors)
        if pod_restart_policy == "Never" and policy != "NotRequired":
            detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            errors.append(invalid(path, policy, detail))
