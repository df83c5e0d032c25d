"""The decision of the policies: a refusal, warnings for the client, audit records in the log."""

from dataclasses import dataclass, field

import msgspec

from podwire.apiserver.admission.chain import Operation
from podwire.apiserver.request import context
from podwire.kinds.policies.evaluation import Failure, Outcome
from podwire.kinds.policies.policy import Binding, Policy
from podwire.protocols.k8sapi.status import ApiError, named, qualified

FAILURE = "validation.policy.admission.k8s.io/validation_failure"


@dataclass(slots=True)
class Decision:
    """Collects the results for one request; the first refusal counts."""

    refused: ApiError | None = None
    _annotations: dict[str, list[str]] = field(default_factory=dict)

    def misconfigured(self, operation: Operation, policy: Policy, binding: Binding | None, why: str) -> None:
        """Handles a policy or binding that cannot be evaluated."""
        if policy.fails:
            what = "binding" if binding else "policy"
            self._refuse(operation, policy, binding, Failure(f"failed to configure {what}: {why}"))

    def take(self, operation: Operation, policy: Policy, binding: Binding, outcome: Outcome) -> None:
        """Handles the outcome of a policy by the actions of its binding."""
        for failure in outcome.failures:
            if "Deny" in binding.actions:
                self._refuse(operation, policy, binding, failure)
            if "Warn" in binding.actions:
                who = f"ValidatingAdmissionPolicy '{policy.name}' with binding '{binding.name}'"
                context.warn(f"Validation failed for {who}: {failure.message}")
            if "Audit" in binding.actions:
                operation.annotate({FAILURE: _audit_value(policy, binding, failure)})
        for failure in outcome.broken:
            self._refuse(operation, policy, binding, failure)
        for key, value in outcome.annotations:
            values = self._annotations.setdefault(f"{policy.name}/{key}", [])
            if value not in values:
                values.append(value)

    def conclude(self, operation: Operation) -> None:
        """Raises the refusal, if there is one."""
        if self._annotations:
            operation.annotate({key: ", ".join(values) for key, values in self._annotations.items()})
        if self.refused is not None:
            raise self.refused

    def _refuse(self, operation: Operation, policy: Policy, binding: Binding | None, failure: Failure) -> None:
        if self.refused is not None:
            return
        by = f" with binding '{binding.name}'" if binding else ""
        message = f"ValidatingAdmissionPolicy '{policy.name}'{by} denied request: {failure.message}"
        resource = operation.resource
        self.refused = ApiError(
            failure.reason,
            f'{qualified(resource.name, resource.group)} "{operation.name}" is forbidden: {message}',
            details={**named(resource.name, operation.name, resource.group), "causes": [{"message": message}]},
        )


def _audit_value(policy: Policy, binding: Binding, failure: Failure) -> str:
    value = {
        "message": failure.message,
        "policy": policy.name,
        "binding": binding.name,
        "expressionIndex": failure.place,
        "validationActions": binding.actions,
    }
    return msgspec.json.encode([value]).decode()
