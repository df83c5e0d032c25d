"""Asking policies about what is sent to a part of an object and not stored as it is: bindings, evictions, tokens, and
connections to what runs."""

from collections.abc import Mapping
from typing import Any

from podwire.apiserver.admission import Operation
from podwire.apiserver.engine import Engine
from podwire.apiserver.request.call import Call, boolean_option
from podwire.kinds.stored import Object

_CONNECTIONS: Mapping[tuple[str, str], str] = {
    ("pods", "attach"): "PodAttachOptions",
    ("pods", "exec"): "PodExecOptions",
    ("pods", "portforward"): "PodPortForwardOptions",
    ("pods", "proxy"): "PodProxyOptions",
    ("nodes", "proxy"): "NodeProxyOptions",
    ("services", "proxy"): "ServiceProxyOptions",
}
_SWITCHES = ("stdin", "stdout", "stderr", "tty")


async def created(engine: Engine, call: Call, body: Object, name: str, part: str, *, dry_run: bool) -> None:
    """To policies a Binding, an Eviction or a TokenRequest is what is created, below the object that it is for."""
    obj = {**body, "metadata": {**body["metadata"], "name": name, "namespace": call.namespace}}
    await _run_policies(engine, call, "CREATE", obj, part, dry_run=dry_run)


async def connected(engine: Engine, call: Call) -> None:
    """What a client wants of a pod, a node or a service. Reading a log is no connection."""
    part, _, below = call.target.subresource.partition("/")
    kind = _CONNECTIONS.get((call.resource.name, part))
    if kind is not None:
        await _run_policies(
            engine, call, "CONNECT", {"kind": kind, "apiVersion": "v1", **_options(call, part, below)}, part
        )


def _options(call: Call, part: str, below: str) -> Object:
    request = call.request
    if part == "proxy":
        return {"path": below} if below else {}
    found: dict[str, Any] = {name: True for name in _SWITCHES if boolean_option(request, name)}
    if container := request.option("container"):
        found["container"] = container
    if command := request.query.get("command"):
        found["command"] = list(command)
    if ports := [each for each in request.query.get("ports", []) if each.isascii() and each.isdigit()]:
        found["ports"] = list(map(int, ports))
    return found


async def _run_policies(
    engine: Engine, call: Call, verb: str, obj: Object, part: str, *, dry_run: bool = False
) -> None:
    resource = call.resource if call.resource.name != "bindings" else engine.registry.builtin("", "pods")
    operation = Operation(
        verb=verb,
        resource=resource,
        namespace=call.namespace,
        obj=obj,
        old=None,
        user=call.user,
        subresource=part,
        url_name=call.name,
        dry_run=dry_run,
    )
    await engine.admission.validate(operation)
