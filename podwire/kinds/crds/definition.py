"""Validation of a CustomResourceDefinition: names, versions, schemas, columns, subresources."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from podwire.kinds.builtin.admissionregistration.webhooks import client_config
from podwire.kinds.crds.jsonpath import BadPath, compile_path
from podwire.kinds.crds.naming import condition, established
from podwire.kinds.crds.rule_checks import rule_errors
from podwire.kinds.crds.schema_rules import default_errors, schema_errors, selectable_errors
from podwire.objects import names
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.status import FieldError, forbidden, invalid, not_supported, required

__all__ = ["condition", "create", "established", "update"]

Json = Mapping[str, Any]

SCOPES = ("Cluster", "Namespaced")
COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")

APPROVAL = "api-approved.kubernetes.io"
_PROTECTED = ("k8s.io", "kubernetes.io")
_BUILTIN = frozenset(f"{kind.resource}.{kind.group}" for kind in BUILTIN.all)


def create(crd: Json) -> list[FieldError]:
    """Returns the errors of a new definition."""
    spec: Json = crd.get("spec") or {}
    return [*_metadata(crd, spec), *_spec(spec)]


def update(new: Json, old: Json) -> list[FieldError]:
    """Returns the errors of a changed definition: those of a new one, and changes of fixed fields.

    A version that stays as it was is not checked again: its rules would be compiled for every change of a status.
    """
    spec: Json = new.get("spec") or {}
    before: Json = old.get("spec") or {}
    errors = [*_metadata(new, spec), *_spec(spec, unchanged=before.get("versions") or [])]
    fixed = ["group", "names.plural"]
    if condition(old, "Established"):
        fixed += ["scope", "names.kind"]
    for path in fixed:
        now, then = _at(spec, path), _at(before, path)
        if now != then:
            errors.append(invalid(f"spec.{path}", now, "field is immutable"))
    stored = (new.get("status") or {}).get("storedVersions") or []
    served = {version.get("name") for version in spec.get("versions") or []}
    errors += [
        invalid(f"status.storedVersions[{index}]", name, "missing from spec.versions; "
                f"{name} was previously a storage version, and must remain in spec.versions until a storage "
                "migration ensures no data remains persisted in "
                f"{name} and removes {name} from status.storedVersions")
        for index, name in enumerate(stored)
        if name not in served
    ]  # fmt: skip
    return errors


def _at(value: Any, path: str) -> Any:
    for word in path.split("."):
        value = value.get(word) if isinstance(value, dict) else None
    return value


def _metadata(crd: Json, spec: Json) -> list[FieldError]:
    metadata: Json = crd.get("metadata") or {}
    name, group = metadata.get("name", ""), spec.get("group", "")
    errors = [invalid("metadata.name", name, problem) for problem in names.dns_subdomain(name)]
    if name != f"{(spec.get('names') or {}).get('plural', '')}.{group}":
        errors.append(invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    if name in _BUILTIN:
        errors.append(
            forbidden("spec.names.plural", f"{name} is built in, and its objects are not a definition's to delete")
        )
    if any(group == suffix or group.endswith(f".{suffix}") for suffix in _PROTECTED):
        errors += _approval((metadata.get("annotations") or {}).get(APPROVAL, ""))
    return errors


def _approval(value: str) -> list[FieldError]:
    """Checks the approval annotation, which groups of the Kubernetes project itself need."""
    where = f"metadata.annotations[{APPROVAL}]"
    if not value:
        return [required(where, f'protected groups must have approval annotation "{APPROVAL}"')]
    if value.startswith(("unapproved", "https://", "http://")):
        return []
    return [invalid(where, value, "protected groups must have approval annotation with either a URL or a reason "
                                  'starting with "unapproved"')]  # fmt: skip


def _spec(spec: Json, unchanged: Sequence[Json] = ()) -> list[FieldError]:
    errors = [*_group(spec.get("group", "")), *_scope(spec.get("scope", "")), *_names(spec.get("names") or {})]
    errors += _versions(spec.get("versions") or [], unchanged)
    if spec.get("preserveUnknownFields"):
        detail = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        )
        errors.append(invalid("spec.preserveUnknownFields", True, detail))
    return errors + _conversion(spec.get("conversion") or {})


def _group(group: str) -> list[FieldError]:
    if not group:
        return [required("spec.group")]
    if problems := names.dns_subdomain(group):
        return [invalid("spec.group", group, ",".join(problems))]
    return [] if "." in group else [invalid("spec.group", group, "should be a domain with at least one dot")]


def _scope(scope: str) -> list[FieldError]:
    if not scope:
        return [required("spec.scope")]
    return [] if scope in SCOPES else [not_supported("spec.scope", scope, SCOPES)]


def _names(requested: Json) -> list[FieldError]:
    path = "spec.names"
    errors = [
        required(f"{path}.{word}") for word in ("plural", "singular", "kind", "listKind") if not requested.get(word)
    ]
    for word in ("plural", "singular"):
        errors += _label(requested.get(word, ""), f"{path}.{word}")
    for word in ("kind", "listKind"):
        value = requested.get(word, "")
        if value and (problems := names.dns1035_label(value.lower())):
            detail = f"may have mixed case, but should otherwise match: {','.join(problems)}"
            errors.append(invalid(f"{path}.{word}", value, detail))
    for word in ("shortNames", "categories"):
        for index, name in enumerate(requested.get(word) or []):
            errors += _label(name, f"{path}.{word}[{index}]")
    if requested.get("kind") and requested.get("kind") == requested.get("listKind"):
        errors.append(invalid(f"{path}.listKind", requested["listKind"], "kind and listKind may not be the same"))
    return errors


def _label(value: str, path: str) -> list[FieldError]:
    problems = names.dns1035_label(value) if value else []
    return [invalid(path, value, ",".join(problems))] if problems else []


def _versions(versions: list[Json], unchanged: Sequence[Json]) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, version in enumerate(versions):
        if version not in unchanged:
            errors += _version(version, f"spec.versions[{index}]")
    listed = [version.get("name", "") for version in versions]
    if len(set(listed)) < len(listed):
        errors.append(invalid("spec.versions", listed, "must contain unique version names"))
    if sum(bool(version.get("storage")) for version in versions) != 1:
        errors.append(invalid("spec.versions", listed, "must have exactly one version marked as storage version"))
    if not any(version.get("served") for version in versions):
        errors.append(invalid("spec.versions", listed, "must have at least one served version"))
    return errors


def _version(version: Json, path: str) -> list[FieldError]:
    name = version.get("name", "")
    problems = names.dns1035_label(name)
    errors = [invalid(f"{path}.name", name, ",".join(problems))] if problems else []
    errors += _schema(version, path)
    for index, column in enumerate(version.get("additionalPrinterColumns") or []):
        errors += _column(column, f"{path}.additionalPrinterColumns[{index}]")
    errors += _scale((version.get("subresources") or {}).get("scale"), f"{path}.subresources.scale")
    if version.get("deprecationWarning") is not None and not version.get("deprecated"):
        detail = "can only be set for deprecated versions"
        errors.append(invalid(f"{path}.deprecationWarning", version["deprecationWarning"], detail))
    return errors


def _schema(version: Json, path: str) -> list[FieldError]:
    """Checks the schema's form, and only if that is valid its defaults, rules and selectable fields."""
    schema, where = (version.get("schema") or {}).get("openAPIV3Schema"), f"{path}.schema.openAPIV3Schema"
    if schema is None:
        return [required(where, "schemas are required")]
    if errors := schema_errors(schema, where):
        return sorted(errors, key=str)
    errors = default_errors(schema, where)
    return [
        *errors,
        *([] if errors else rule_errors(schema, where)),
        *selectable_errors(version.get("selectableFields") or [], schema, f"{path}.selectableFields"),
    ]


def _column(column: Json, path: str) -> list[FieldError]:
    errors = [] if column.get("name") else [required(f"{path}.name")]
    errors += _one_of(column.get("type", ""), COLUMN_TYPES, f"{path}.type", needed=True)
    errors += _one_of(column.get("format", ""), COLUMN_FORMATS, f"{path}.format", needed=False)
    return errors + _path(column.get("jsonPath", ""), f"{path}.jsonPath")


def _one_of(value: str, allowed: Iterable[str], path: str, *, needed: bool) -> list[FieldError]:
    detail = f"must be one of {','.join(allowed)}"
    if not value:
        return [required(path, detail)] if needed else []
    return [] if value in allowed else [invalid(path, value, detail)]


def _scale(scale: Json | None, path: str) -> list[FieldError]:
    if scale is None:
        return []
    errors = _path(scale.get("specReplicasPath", ""), f"{path}.specReplicasPath", (".spec.",))
    errors += _path(scale.get("statusReplicasPath", ""), f"{path}.statusReplicasPath", (".status.",))
    if scale.get("labelSelectorPath"):
        errors += _path(scale["labelSelectorPath"], f"{path}.labelSelectorPath", (".spec.", ".status."))
    return errors


def _path(value: str, where: str, under: tuple[str, ...] = ()) -> list[FieldError]:
    if not value:
        return [required(where)]
    try:
        compile_path(value)
    except BadPath as error:
        return [invalid(where, value, str(error))]
    if under and not value.startswith(under):
        places = " or ".join(prefix.rstrip(".") for prefix in under)
        detail = f"should be a json path under {'either ' if len(under) > 1 else ''}{places}"
        return [invalid(where, value, detail)]
    return []


def _conversion(conversion: Json) -> list[FieldError]:
    strategy = conversion.get("strategy") or "None"
    if strategy == "Webhook":
        return _webhook(conversion.get("webhook") or {})
    if strategy != "None":
        return [not_supported("spec.conversion.strategy", strategy, ("None", "Webhook"))]
    if conversion.get("webhook"):
        return [forbidden("spec.conversion.webhook", "should not be set when strategy is not set to Webhook")]
    return []


def _webhook(webhook: Json) -> list[FieldError]:
    """Checks a conversion webhook; the fields are named as upstream names them."""
    errors: list[FieldError] = []
    where, path = "spec.conversion.webhookClientConfig", "spec.conversion.conversionReviewVersions"
    if webhook.get("clientConfig") is None:
        errors.append(required(where, "required when strategy is set to Webhook"))
    else:
        client_config(webhook["clientConfig"], where, errors)
    versions = webhook.get("conversionReviewVersions") or []
    if not versions:
        return [*errors, required(path)]
    for index, version in enumerate(versions):
        if version in versions[:index]:
            errors.append(invalid(f"{path}[{index}]", version, "duplicate version"))
            continue
        errors += [invalid(f"{path}[{index}]", version, problem) for problem in names.dns1035_label(version)]
    if not {*versions} & {"v1", "v1beta1"}:
        errors.append(invalid(path, versions, "must include at least one of v1, v1beta1"))
    return errors
