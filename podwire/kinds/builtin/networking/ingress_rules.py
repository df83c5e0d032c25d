"""Validation of Ingresses, in upstream's words."""

from podwire.kinds.field_checks import Choice, Errors, Object, domain_prefixed_path, named, port_number, unchanged
from podwire.kinds.tables import part
from podwire.objects import names
from podwire.protocols.k8sapi.status import FieldError, forbidden, invalid, required, too_long

_PATH_TYPES = Choice(("Exact", "ImplementationSpecific", "Prefix"))
_NOT_IN_PATHS = ("//", "/./", "/../", "%2f", "%2F")
_NOT_AT_THE_END = ("/..", "/.")
CLASS_ANNOTATION = "kubernetes.io/ingress.class"
CLASS_SCOPES = Choice(("Cluster", "Namespace"))
LONGEST_CONTROLLER = 250
_WILDCARD = names.must_match(
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of "
    "lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
    r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
    "*.example.com",
)


def validate_create(obj: Object) -> list[FieldError]:
    errors = validate(obj)
    given = (obj["metadata"].get("annotations") or {}).get(CLASS_ANNOTATION)
    wanted = part(obj, "spec").get("ingressClassName")
    if given is not None and wanted is not None and given != wanted:
        detail = "must match `ingressClassName` when both are specified"
        errors.append(invalid(f"annotations.{CLASS_ANNOTATION}", given, detail))
    return errors


def validate(obj: Object) -> list[FieldError]:
    errors: Errors = []
    spec = part(obj, "spec")
    rules, backend = spec.get("rules") or (), spec.get("defaultBackend")
    if not rules and backend is None:
        errors.append(invalid("spec", spec.get("rules"), "either `defaultBackend` or `rules` must be specified"))
    if backend is not None:
        _backend(backend, "spec.defaultBackend", errors)
    for index, rule in enumerate(rules):
        _rule(rule, f"spec.rules[{index}]", errors)
    for index, tls in enumerate(spec.get("tls") or ()):
        for number, host in enumerate(tls.get("hosts") or ()):
            named(_host, host, f"spec.tls[{index}].hosts[{number}]", errors)
        if secret := tls.get("secretName"):
            named(names.dns_subdomain, secret, f"spec.tls[{index}].secretName", errors)
    if (name := spec.get("ingressClassName")) is not None:
        named(names.dns_subdomain, name, "spec.ingressClassName", errors)
    return errors


def _host(host: str) -> list[str]:
    if "*" not in host:
        return names.dns_subdomain(host)
    return [] if host.startswith("*.") and not names.dns_subdomain(host[2:]) else [_WILDCARD]


def _rule(rule: Object, path: str, errors: Errors) -> None:
    if host := rule.get("host"):
        if names.is_ip(host):
            errors.append(invalid(f"{path}.host", host, "must be a DNS name, not an IP address"))
        named(_host, host, f"{path}.host", errors)
    if (http := rule.get("http")) is None:
        return
    if not http.get("paths"):
        errors.append(required(f"{path}.http.paths"))
    for index, entry in enumerate(http.get("paths") or ()):
        _path(entry, f"{path}.http.paths[{index}]", errors)


def _path(entry: Object, path: str, errors: Errors) -> None:
    kind, text = entry.get("pathType"), entry.get("path") or ""
    if kind is None:
        errors.append(required(f"{path}.pathType", "pathType must be specified"))
        return
    _PATH_TYPES.check(kind, f"{path}.pathType", errors)
    exact = kind in ("Exact", "Prefix")
    if (exact or (text and kind == "ImplementationSpecific")) and not text.startswith("/"):
        errors.append(invalid(f"{path}.path", text, "must be an absolute path"))
    if exact:
        for sequence in _NOT_IN_PATHS:
            if sequence in text:
                errors.append(invalid(f"{path}.path", text, f"must not contain '{sequence}'"))
        for end in _NOT_AT_THE_END:
            if text.endswith(end):
                errors.append(invalid(f"{path}.path", text, f"cannot end with '{end}'"))
    _backend(entry.get("backend") or {}, f"{path}.backend", errors)


def _backend(backend: Object, path: str, errors: Errors) -> None:
    resource, service = backend.get("resource"), backend.get("service")
    if resource is not None and service is not None:
        errors.append(invalid(path, "", "cannot set both resource and service backends"))
    elif resource is not None:
        for key in ("kind", "name"):
            if not resource.get(key):
                errors.append(required(f"{path}.resource.{key}"))
    elif service is None:
        errors.append(invalid(path, "", "resource or service backend is required"))
    else:
        _service(service, path, errors)


def _service(service: Object, path: str, errors: Errors) -> None:
    if name := service.get("name"):
        named(names.dns_label, name, f"{path}.service.name", errors)
    else:
        errors.append(required(f"{path}.service.name"))
    port = service.get("port") or {}
    name, number = port.get("name"), port.get("number")
    if name and number:
        errors.append(invalid(path, "", "cannot set both port name & port number"))
    elif name:
        named(names.port_name, name, f"{path}.service.port.name", errors)
    elif number:
        port_number(number, f"{path}.service.port.number", errors)
    else:
        errors.append(required(path, "port name or number is required"))


def validate_class(obj: Object) -> list[FieldError]:
    errors: Errors = []
    spec = part(obj, "spec")
    controller = spec.get("controller") or ""
    if len(controller) > LONGEST_CONTROLLER:
        errors.append(too_long("spec.controller", LONGEST_CONTROLLER))
    domain_prefixed_path(controller, "spec.controller", errors)
    if (parameters := spec.get("parameters")) is not None:
        _class_parameters(parameters, errors)
    return errors


def validate_class_update(new: Object, old: Object) -> list[FieldError]:
    errors: Errors = []
    unchanged(part(new, "spec").get("controller"), part(old, "spec").get("controller"), "spec.controller", errors)
    return errors + validate_class(new)


def _class_parameters(parameters: Object, errors: Errors) -> None:
    path = "spec.parameters"
    if (group := parameters.get("apiGroup")) is not None:
        named(names.dns_subdomain, group, f"{path}.apiGroup", errors)
    for field in ("kind", "name"):
        if value := parameters.get(field):
            named(names.path_segment, value, f"{path}.{field}", errors)
        else:
            errors.append(required(f"{path}.{field}"))
    scope, namespace = parameters.get("scope"), parameters.get("namespace")
    if scope is None:
        errors.append(required(f"{path}.scope"))
    elif scope not in CLASS_SCOPES.values:
        CLASS_SCOPES.check(scope, f"{path}.scope", errors)
    elif scope == "Cluster" and namespace is not None:
        errors.append(forbidden(f"{path}.namespace", "`parameters.scope` is set to 'Cluster'"))
    elif scope == "Namespace" and namespace is None:
        errors.append(required(f"{path}.namespace", "`parameters.scope` is set to 'Namespace'"))
    elif namespace is not None:
        named(names.dns_label, namespace, f"{path}.namespace", errors)
