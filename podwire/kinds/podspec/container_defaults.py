"""Defaults of one container: pull policy, termination message, ports, variables, probes and hooks."""

import re
from functools import lru_cache
from typing import Any

from podwire.kinds.podspec.resource_defaults import round_up_requirements

_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"""(?:(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(?::[0-9]+)?/)?
    {_COMPONENT}(?:/{_COMPONENT})*
    (?::(?P<tag>[\w][\w.-]{{0,127}}))?
    (?P<digest>@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{{32,}})?""",
    re.VERBOSE | re.ASCII,
)


@lru_cache(maxsize=1024)
def pull_policy(image: str) -> str:
    """Returns Always for the tag `latest`, explicit or implied, else IfNotPresent."""
    reference = _REFERENCE.fullmatch(image)
    if reference is None:  # validation reports it
        return "IfNotPresent"
    tag = reference["tag"] or ("" if reference["digest"] else "latest")
    return "Always" if tag == "latest" else "IfNotPresent"


def default_container(container: dict[str, Any]) -> None:
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = pull_policy(container.get("image", ""))
    if not container.get("terminationMessagePath"):
        container["terminationMessagePath"] = "/dev/termination-log"
    if not container.get("terminationMessagePolicy"):
        container["terminationMessagePolicy"] = "File"
    resources = container.get("resources")
    if resources is None:
        container["resources"] = {}
    else:
        round_up_requirements(resources)
    for port in container.get("ports") or ():
        if not port.get("protocol"):
            port["protocol"] = "TCP"
    for variable in container.get("env") or ():
        if source := variable.get("valueFrom"):
            _default_source(source)
    _default_probes(container)


def _default_source(source: dict[str, Any]) -> None:
    if field := source.get("fieldRef"):
        default_field_ref(field)
    if (file := source.get("fileKeyRef")) is not None:
        file.setdefault("optional", False)


def default_field_ref(reference: dict[str, Any]) -> None:
    if not reference.get("apiVersion"):
        reference["apiVersion"] = "v1"


def _default_probes(container: dict[str, Any]) -> None:
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if (probe := container.get(name)) is not None:
            _default_probe(probe)
    if lifecycle := container.get("lifecycle"):
        for name in ("postStart", "preStop"):
            if (hook := lifecycle.get(name)) and (action := hook.get("httpGet")) is not None:
                _default_http_get(action)


def _default_probe(probe: dict[str, Any]) -> None:
    for name, number in (
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ):
        if not probe.get(name):
            probe[name] = number
    if (action := probe.get("httpGet")) is not None:
        _default_http_get(action)
    if (action := probe.get("grpc")) is not None:
        action.setdefault("service", "")


def _default_http_get(action: dict[str, Any]) -> None:
    if not action.get("path"):
        action["path"] = "/"
    if not action.get("scheme"):
        action["scheme"] = "HTTP"
