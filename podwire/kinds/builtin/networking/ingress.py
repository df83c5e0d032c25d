"""Ingress and IngressClass."""

from typing import Any

from podwire.kinds.builtin.core.service.table import balancers
from podwire.kinds.builtin.networking import ingress_rules
from podwire.kinds.strategy import Strategy, as_on_create
from podwire.kinds.tables import NONE, Json, age_of, count, elements, name_of, part, text

_LISTED = 3
"""More endpoints, ports or hosts than these are only counted."""


def default_ingress(obj: dict[str, Any]) -> None:
    spec = obj["spec"]
    _default_backend(spec.get("defaultBackend"))
    for rule in spec.get("rules") or ():
        for path in (rule.get("http") or {}).get("paths") or ():
            _default_backend(path.setdefault("backend", {}))


def _default_backend(backend: dict[str, Any] | None) -> None:
    if backend and (service := backend.get("service")) is not None:
        service.setdefault("port", {})


def default_ingress_class(obj: dict[str, Any]) -> None:
    if (parameters := obj["spec"].get("parameters")) is not None:
        parameters.setdefault("scope", "Cluster")


def ingress_row(obj: Json, now: float) -> list[Any]:
    spec = part(obj, "spec")
    return [
        name_of(obj),
        text(spec, "ingressClassName", NONE),
        _hosts(spec),
        ",".join(balancers(part(obj, "status"))),
        "80, 443" if count(spec, "tls") else "80",
        age_of(obj, now),
    ]


def _hosts(spec: Json) -> str:
    """Returns the first hosts; the number of further ones counts rules, with a host or without."""
    rules = elements(spec, "rules")
    named = [(index, host) for index, rule in enumerate(rules) if (host := text(rule, "host"))][:_LISTED]
    listed = ",".join(host for _, host in named) or "*"
    cut = len(named) == _LISTED and named[-1][0] + 1 < len(rules)
    return f"{listed} + {len(rules) - _LISTED} more..." if cut else listed


def ingress_class_row(obj: Json, now: float) -> list[Any]:
    spec = part(obj, "spec")
    parameters = part(spec, "parameters")
    kind = ".".join(filter(None, (text(parameters, "kind"), text(parameters, "apiGroup"))))
    reference = f"{kind}/{text(parameters, 'name')}" if parameters else NONE
    return [name_of(obj), text(spec, "controller"), reference, age_of(obj, now)]


def ingress_warnings(new: Json, old: Json | None) -> list[str]:
    """Warns about the annotation that the field replaced; updates of existing objects are not bothered, as upstream."""
    key = ingress_rules.CLASS_ANNOTATION
    if old is not None or key not in part(new, "metadata", "annotations"):
        return []
    return [f"annotation \"{key}\" is deprecated, please use 'spec.ingressClassName' instead"]


INGRESS = Strategy(
    group="networking.k8s.io",
    kind="Ingress",
    stored_as="ingress",
    parts={"spec": {}, "status": {"loadBalancer": {}}},
    default=default_ingress,
    counts_generation=True,
    validate_create=ingress_rules.validate_create,
    validate_update=as_on_create(ingress_rules.validate),
    warnings=ingress_warnings,
    columns="Name|Class|Hosts|Address|Ports|Age",
    row=ingress_row,
)

INGRESS_CLASS = Strategy(
    group="networking.k8s.io",
    kind="IngressClass",
    parts={"spec": {}},
    default=default_ingress_class,
    counts_generation=True,
    validate_create=ingress_rules.validate_class,
    validate_update=ingress_rules.validate_class_update,
    columns="Name|Controller|Parameters|Age",
    row=ingress_class_row,
)
