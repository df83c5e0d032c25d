"""Environment variables of containers, and the references to fields that they share with downward API volumes."""

from collections.abc import Iterable, Mapping

from podwire.kinds.field_checks import Choice, Errors, Object, named, no_backsteps, not_found
from podwire.objects import names
from podwire.protocols.k8sapi.status import invalid, required

ENV_FIELDS = Choice(
    (
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.serviceAccountName",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    )
)
VOLUME_FIELDS = Choice(
    ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
)
_KNOWN_FIELDS = frozenset(
    {*ENV_FIELDS.values, *VOLUME_FIELDS.values, "spec.restartPolicy", "spec.schedulerName", "status.phase"}
)
_RESOURCES = Choice(
    (
        "limits.cpu",
        "limits.ephemeral-storage",
        "limits.memory",
        "requests.cpu",
        "requests.ephemeral-storage",
        "requests.memory",
    )
)
_HUGE_PAGES = ("limits.hugepages-", "requests.hugepages-")
_CPU_DIVISORS = ("1m", "1")
_SIZE_DIVISORS = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
_SIZE_NAMES = {"memory": "memory", "ephemeral-storage": "local ephemeral storage"}
_NO_SOURCE = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
_TWO_SOURCES = "may not have more than one field specified at a time"

_prefix_subdomain = names.as_prefix(names.dns_subdomain)


def env(variables: Iterable[Object], volumes: Mapping[str, Object], path: str, errors: Errors) -> None:
    for index, variable in enumerate(variables):
        if not (name := variable.get("name")):
            errors.append(required(f"{path}[{index}].name"))
        elif messages := names.env_var_name(name):
            errors.append(invalid(f"{path}[{index}].name", name, messages[0]))
        source = variable.get("valueFrom")
        if source is not None:
            place = f"{path}[{index}].valueFrom"
            _value_from(source, bool(variable.get("value")), place, errors)
            if (file := source.get("fileKeyRef")) is not None:
                _file_key_ref(file, volumes, f"{place}.fileKeyRef", errors)


def _value_from(source: Object, has_value: bool, path: str, errors: Errors) -> None:
    if (ref := source.get("fieldRef")) is not None:
        field_ref(ref, ENV_FIELDS, f"{path}.fieldRef", errors)
    if (ref := source.get("resourceFieldRef")) is not None:
        resource_field_ref(ref, f"{path}.resourceFieldRef", errors)
    if (ref := source.get("configMapKeyRef")) is not None:
        _key_ref(ref, f"{path}.configMapKeyRef", errors)
    if (ref := source.get("secretKeyRef")) is not None:
        _key_ref(ref, f"{path}.secretKeyRef", errors)
    if not source:
        errors.append(invalid(path, "", _NO_SOURCE))
    elif has_value:
        errors.append(invalid(path, "", "may not be specified when `value` is not empty"))
    elif len(source) > 1:
        errors.append(invalid(path, "", _TWO_SOURCES))


def field_ref(ref: Object, supported: Choice, path: str, errors: Errors) -> None:
    version, field = ref.get("apiVersion"), ref.get("fieldPath")
    if not version:
        errors.append(required(f"{path}.apiVersion"))
        return
    if not field:
        errors.append(required(f"{path}.fieldPath"))
        return
    if version != "v1":
        detail = f"error converting fieldPath: unsupported pod version: {version}"
        errors.append(invalid(f"{path}.fieldPath", field, detail))
    elif field not in supported.values:
        _unusual_field(field, supported, path, errors)


def _unusual_field(field: str, supported: Choice, path: str, errors: Errors) -> None:
    """A key of labels or annotations, an old name, or none at all."""
    holder, bracket, key = field.removesuffix("']").partition("['")
    if field.endswith("']") and bracket and holder:
        if holder == "metadata.labels":
            named(names.qualified_name, key, path, errors)
        elif holder == "metadata.annotations":
            named(names.qualified_name, key.lower(), path, errors)
        else:
            detail = f"error converting fieldPath: field label does not support subscript: {field}"
            errors.append(invalid(f"{path}.fieldPath", field, detail))
        return
    current = "spec.nodeName" if field == "spec.host" else field
    if current in _KNOWN_FIELDS:
        supported.check(current, f"{path}.fieldPath", errors)
    else:
        detail = f"error converting fieldPath: field label not supported: {field}"
        errors.append(invalid(f"{path}.fieldPath", field, detail))


def resource_field_ref(ref: Object, path: str, errors: Errors, *, needs_container: bool = False) -> None:
    resource = ref.get("resource", "")
    if needs_container and not ref.get("containerName"):
        errors.append(required(f"{path}.containerName"))
    elif not resource:
        errors.append(required(f"{path}.resource"))
    elif not resource.startswith(_HUGE_PAGES):
        _RESOURCES.check(resource, f"{path}.resource", errors)
    divisor = ref.get("divisor", "0")
    if divisor != "0":
        _divisor(resource, divisor, f"{path}.divisor", errors)


def _divisor(resource: str, divisor: str, path: str, errors: Errors) -> None:
    _, _, name = resource.partition(".")
    if name == "cpu" and divisor not in _CPU_DIVISORS:
        errors.append(invalid(path, resource, "only divisor's values 1m and 1 are supported with the cpu resource"))
    unit = "hugepages" if name.startswith("hugepages-") else _SIZE_NAMES.get(name)
    if unit and divisor not in _SIZE_DIVISORS:
        listed = ", ".join(_SIZE_DIVISORS)
        detail = f"only divisor's values {listed} are supported with the {unit} resource"
        errors.append(invalid(path, resource, detail))


def _key_ref(ref: Object, path: str, errors: Errors) -> None:
    """A key of a ConfigMap or Secret."""
    named(names.dns_subdomain, ref.get("name", ""), f"{path}.name", errors)
    if not (key := ref.get("key")):
        errors.append(required(f"{path}.key"))
    else:
        named(names.config_key, key, f"{path}.key", errors)


def _file_key_ref(ref: Object, volumes: Mapping[str, Object], path: str, errors: Errors) -> None:
    """A variable in a file that another container of the pod wrote, which only an emptyDir can carry."""
    if not (key := ref.get("key")):
        errors.append(required(f"{path}.key"))
    else:
        named(names.env_var_name, key, f"{path}.key", errors)
    volume = ref.get("volumeName", "")
    if not volume:
        errors.append(required(f"{path}.volumeName"))
    else:
        named(names.dns_label, volume, f"{path}.volumeName", errors)
    if not (file := ref.get("path")):
        errors.append(required(f"{path}.path"))
    else:
        no_backsteps(file, f"{path}.path", errors)
    if volume not in volumes:
        errors.append(not_found(f"{path}.volumeName", volume))
    elif "emptyDir" not in volumes[volume]:
        errors.append(invalid(f"{path}.volumeName", volume, "referenced volume must be of type emptyDir"))


def env_from(sources: Iterable[Object], path: str, errors: Errors) -> None:
    for index, source in enumerate(sources):
        place = f"{path}[{index}]"
        if prefix := source.get("prefix"):
            named(names.env_var_name, prefix, f"{place}.prefix", errors)
        references = [field for field in ("configMapRef", "secretRef") if source.get(field) is not None]
        for field in references:
            _whole_ref(source[field], f"{place}.{field}", errors)
        if not references:
            errors.append(invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif len(references) > 1:
            errors.append(invalid(path, "", _TWO_SOURCES))


def _whole_ref(ref: Object, path: str, errors: Errors) -> None:
    if not (name := ref.get("name")):
        errors.append(required(f"{path}.name"))
    else:
        named(_prefix_subdomain, name, f"{path}.name", errors)
