"""Kinds of several groups that are little more than a table."""

from base64 import b64decode
from typing import Any

from podwire.kinds.builtin.admissionregistration.strategy import HTTPS
from podwire.kinds.builtin.apps.template import container_cells
from podwire.kinds.field_checks import Choice, Errors, Object, labels, named, non_negative, unchanged
from podwire.kinds.podspec import validation
from podwire.kinds.podspec.defaults import POD_TEMPLATE, default_template
from podwire.kinds.podspec.scheduling_rules import tolerations
from podwire.kinds.podspec.warnings import DEPRECATED_NODE_LABELS, template_warnings
from podwire.kinds.strategy import Strategy, as_on_create, selectable
from podwire.kinds.tables import (
    NONE,
    Json,
    age_of,
    condition,
    elements,
    label_text,
    name_of,
    named_row,
    number,
    part,
    shown,
    text,
)
from podwire.objects import names
from podwire.objects.times import human_duration
from podwire.protocols.k8sapi.status import FieldError, invalid, required

LOCAL_REASON, LOCAL_MESSAGE = "Local", "Local APIServices are always available"
MOUNTABLE_SECRETS = "kubernetes.io/enforce-mountable-secrets"
CONDITION_STATUS = Choice(("True", "False", "Unknown"))


def component_status_row(obj: Json, _now: float) -> list[Any]:
    healthy = condition(obj, "Healthy")
    state = "Unknown" if not healthy else "Healthy" if healthy.get("status") == "True" else "Unhealthy"
    return [name_of(obj), state, text(healthy, "message"), text(healthy, "error")]


COMPONENT_STATUS = Strategy(
    group="",
    kind="ComponentStatus",
    deprecated="v1 ComponentStatus is deprecated in v1.19+",
    columns="Name|Status|Message|Error",
    row=component_status_row,
)


def service_account_warnings(new: Json, old: Json | None) -> list[str]:
    """Warns when the annotation is set, not as long as it is."""
    if MOUNTABLE_SECRETS not in part(new, "metadata", "annotations") or MOUNTABLE_SECRETS in part(
        old or {}, "metadata", "annotations"
    ):
        return []
    advice = "prefer separate namespaces to isolate access to mounted secrets"
    return [f"metadata.annotations[{MOUNTABLE_SECRETS}]: deprecated in v1.32+; {advice}"]


SERVICE_ACCOUNT = Strategy(
    group="",
    kind="ServiceAccount",
    warnings=service_account_warnings,
    returns_deleted=True,
    columns="Name|Age",
    row=named_row,
)


def validate_pod_template(obj: Object) -> list[FieldError]:
    return validation.validate_template(obj.get("template") or {}, "template")


def default_pod_template(obj: dict[str, Any]) -> None:
    default_template(obj["template"])


def pod_template_row(obj: Json, _now: float) -> list[Any]:
    containers, images = container_cells(part(obj, "template"))
    return [name_of(obj), containers, images, label_text(part(obj, "template", "metadata"), "labels")]


POD_TEMPLATE_STRATEGY = Strategy(
    group="",
    kind="PodTemplate",
    parts=POD_TEMPLATE,
    default=default_pod_template,
    counts_generation=True,
    validate_create=validate_pod_template,
    validate_update=as_on_create(validate_pod_template),
    warnings=lambda new, old: template_warnings(new, old, ("template",)),
    returns_deleted=True,
    columns="Name|Containers|Images|Pod Labels",
    row=pod_template_row,
)


def controller_revision_row(obj: Json, now: float) -> list[Any]:
    return [name_of(obj), _controller(obj), number(obj, "revision"), age_of(obj, now)]


def _controller(obj: Json) -> str:
    for owner in elements(part(obj, "metadata"), "ownerReferences"):
        if owner.get("controller") is True:
            group = text(owner, "apiVersion").rpartition("/")[0]
            kind = ".".join(filter(None, (text(owner, "kind"), group)))
            return f"{kind.lower()}/{text(owner, 'name')}"
    return NONE


def validate_controller_revision(obj: Object) -> list[FieldError]:
    errors: Errors = []
    if obj.get("data") is None:
        errors.append(required("data", "data is mandatory"))
    non_negative(obj.get("revision") or 0, "revision", errors)
    return errors


def validate_controller_revision_update(new: Object, old: Object) -> list[FieldError]:
    errors = validate_controller_revision(new)
    unchanged(new.get("data"), old.get("data"), "data", errors)
    return errors


CONTROLLER_REVISION = Strategy(
    group="apps",
    kind="ControllerRevision",
    validate_create=validate_controller_revision,
    validate_update=validate_controller_revision_update,
    columns="Name|Controller|Revision|Age",
    row=controller_revision_row,
)


def runtime_class_row(obj: Json, now: float) -> list[Any]:
    return [name_of(obj), text(obj, "handler"), age_of(obj, now)]


def validate_runtime_class(obj: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    if handler := obj.get("handler"):
        named(names.dns_label, handler, "handler", errors)
    else:
        errors.append(required("handler"))
    scheduling = obj.get("scheduling") or {}
    if selector := scheduling.get("nodeSelector"):
        labels(selector, "scheduling.nodeSelector", errors)
    tolerations(scheduling.get("tolerations") or (), "scheduling.tolerations", errors)
    return errors


def validate_runtime_class_update(new: Object, old: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    unchanged(new.get("handler"), old.get("handler"), "handler", errors)
    return errors


def runtime_class_warnings(new: Json, _old: Json | None) -> list[str]:
    labels = DEPRECATED_NODE_LABELS.keys() & part(new, "scheduling", "nodeSelector").keys()
    return [f"scheduling.nodeSelector: {DEPRECATED_NODE_LABELS[label]}" for label in sorted(labels)]


RUNTIME_CLASS = Strategy(
    group="node.k8s.io",
    kind="RuntimeClass",
    validate_create=validate_runtime_class,
    validate_update=validate_runtime_class_update,
    warnings=runtime_class_warnings,
    allow_create_on_update=True,
    allow_unconditional_update=False,
    columns="Name|Handler|Age",
    row=runtime_class_row,
)


def default_api_service(obj: dict[str, Any]) -> None:
    if (service := obj["spec"].get("service")) is not None:
        service.setdefault("port", HTTPS)


def prepare_api_service(obj: dict[str, Any]) -> None:
    """A local APIService is available from the beginning."""
    if obj["spec"].get("service") is None:
        available = {"type": "Available", "status": "True", "reason": LOCAL_REASON, "message": LOCAL_MESSAGE}
        since = {"lastTransitionTime": obj["metadata"]["creationTimestamp"]}
        obj["status"] = {"conditions": [{**available, **since}]}


def validate_api_service(obj: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    spec, name = obj["spec"], obj["metadata"].get("name", "")
    group, version = spec.get("group", ""), spec.get("version", "")
    if name != f"{version}.{group}":
        detail = f'must be `spec.version+"."+spec.group`: "{version}.{group}"'
        errors.append(invalid("metadata.name", name, detail))
    if not group and version != "v1":
        errors.append(required("spec.group", "only v1 may have an empty group and it better be legacy kube"))
    if group:
        named(names.dns_subdomain, group, "spec.group", errors)
    named(names.dns1035_label, version, "spec.version", errors)
    for key, most in (("groupPriorityMinimum", 20_000), ("versionPriority", 1_000)):
        if not 0 < (value := spec.get(key, 0)) <= most:
            errors.append(invalid(f"spec.{key}", value, f"must be positive and less than {most}"))
    return errors + _aggregated_server_errors(spec)


def _aggregated_server_errors(spec: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    ca, insecure = spec.get("caBundle"), spec.get("insecureSkipTLSVerify", False)
    if (service := spec.get("service")) is None:
        if ca:
            size = f"{len(b64decode(ca))} bytes"
            errors.append(invalid("spec.caBundle", size, "local APIServices may not have a caBundle"))
        if insecure:
            detail = "local APIServices may not have insecureSkipTLSVerify"
            errors.append(invalid("spec.insecureSkipTLSVerify", True, detail))
        return errors
    errors += [required(f"spec.service.{key}") for key in ("namespace", "name") if not service.get(key)]
    port = service.get("port", 0)
    if not 1 <= port <= 65535:
        detail = "port is not valid: must be between 1 and 65535, inclusive"
        errors.append(invalid("spec.service.port", port, detail))
    if insecure and ca:
        detail = "may not be true if caBundle is present"
        errors.append(invalid("spec.insecureSkipTLSVerify", True, detail))
    return errors


def validate_api_service_status(new: Object, _old: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, given in enumerate(part(new, "status").get("conditions") or ()):
        CONDITION_STATUS.check(given.get("status", ""), f"status.conditions[{index}].status", errors)
    return errors


def api_service_row(obj: Json, now: float) -> list[Any]:
    service = part(obj, "spec", "service")
    place = f"{text(service, 'namespace')}/{text(service, 'name')}" if service else "Local"
    available = condition(part(obj, "status"), "Available")
    state = shown(available, "status", "Unknown")
    if state != "True" and available:
        state = f"{state} ({text(available, 'reason')})"
    return [name_of(obj), place, state, age_of(obj, now)]


API_SERVICE = Strategy(
    group="apiregistration.k8s.io",
    kind="APIService",
    check_name=names.path_segment,
    qualified_finalizers=False,
    stored_as="apiregistration.k8s.io/apiservices",
    parts={"spec": {}, "status": {}},
    default=default_api_service,
    prepare_create=prepare_api_service,
    validate_create=validate_api_service,
    validate_update=as_on_create(validate_api_service),
    validate_subresources={"status": validate_api_service_status},
    allow_unconditional_update=False,
    columns="Name|Service|Available|Age",
    row=api_service_row,
)


def signing_request_row(obj: Json, now: float) -> list[Any]:
    spec = part(obj, "spec")
    lasting = human_duration(number(spec, "expirationSeconds")) if "expirationSeconds" in spec else NONE
    return [
        name_of(obj),
        age_of(obj, now),
        text(spec, "signerName", NONE),
        text(spec, "username"),
        lasting,
        _signing_state(part(obj, "status")),
    ]


def _signing_state(status: Json) -> str:
    met = {text(entry, "type") for entry in elements(status, "conditions")}
    states = ["Denied" if "Denied" in met else "Approved" if "Approved" in met else "Pending"]
    if "Failed" in met:
        states.append("Failed")
    if status.get("certificate"):
        states.append("Issued")
    return ",".join(states)


SIGNING_REQUEST = Strategy(
    group="certificates.k8s.io",
    kind="CertificateSigningRequest",
    check_name=names.path_segment,
    parts={"spec": {}, "status": {}},
    selectable=(selectable("spec.signerName"),),
    columns="Name|Age|SignerName|Requestor|RequestedDuration|Condition",
    row=signing_request_row,
)
