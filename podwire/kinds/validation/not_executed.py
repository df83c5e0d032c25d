"""Kinds that would have to be executed and are not: nobody may think that they hold.

What lies in a store already can be read and deleted; so it may be changed while it is being deleted, or a finalizer
would keep it for ever.
"""

from functools import partial

from podwire.kinds.validation.pod_values import Object
from podwire.kinds.validation.rules import Rules
from podwire.protocols.k8sapi.status import FieldError, forbidden

_GROUP = "admissionregistration.k8s.io"


def create(field: str, what: str, _obj: Object) -> list[FieldError]:
    return [forbidden(field, f"{what} not executed by this API server, so that they would have no effect")]


def update(field: str, what: str, new: Object, _old: Object) -> list[FieldError]:
    return [] if (new.get("metadata") or {}).get("deletionTimestamp") else create(field, what, new)


def _rules(field: str, what: str) -> Rules:
    return Rules(partial(create, field, what), partial(update, field, what))


RULES = {
    (_GROUP, "MutatingWebhookConfiguration"): _rules("webhooks", "mutating admission webhooks are"),
    (_GROUP, "ValidatingWebhookConfiguration"): _rules("webhooks", "validating admission webhooks are"),
    (_GROUP, "MutatingAdmissionPolicy"): _rules("spec.mutations", "mutating admission policies are"),
    (_GROUP, "MutatingAdmissionPolicyBinding"): _rules("spec.policyName", "mutating admission policies are"),
}
