"""Runs policies on requests that are not stored as they are: bindings, evictions, token requests and connections."""

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


async def created(engine: Engine, call: Call, body: Object, name: str, part: str, *, dry_run: bool) -> Object:
    """Runs policies on the creation of a Binding, Eviction or TokenRequest below its object; returns it as admitted."""
    obj = {**body, "metadata": {**body["metadata"], "name": name, "namespace": call.namespace}}
    return await _run_policies(engine, call, "CREATE", obj, part, dry_run=dry_run)


async def connected(engine: Engine, call: Call) -> None:
    """Runs policies on a connection to a pod, node or service. Reading a log is not a connection."""
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
    if ports := [port for port in request.query.get("ports", []) if port.isascii() and port.isdigit()]:
        found["ports"] = list(map(int, ports))
    return found


async def _run_policies(
    engine: Engine, call: Call, verb: str, obj: Object, part: str, *, dry_run: bool = False
) -> Object:
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
    await engine.admission.admit_part(operation)
    await engine.admission.validate(operation)
    return operation.obj
