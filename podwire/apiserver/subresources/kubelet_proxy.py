"""log, exec, attach, portforward and proxy: forwarded to a node's kubelet.

The kubelet authorizes the API server, not the user, so everything that the user needs is checked here: a command is run
with `create`, whichever method a connection begins with, and through a node's proxy it needs the same permission on the
pod as without.
"""

from http import HTTPStatus
from urllib.parse import quote

from podwire.apiserver.admission import subresource_policies
from podwire.apiserver.engine import Engine
from podwire.apiserver.identity.authorization import Attributes
from podwire.apiserver.ports import Kubelet, Query
from podwire.apiserver.request.call import Call
from podwire.apiserver.subresources import kubelet_paths
from podwire.kinds.stored import Object
from podwire.protocols.k8sapi.server_side import Answer, Response
from podwire.protocols.k8sapi.status import ApiError, Reason, bad_request, named, not_found

PORT = 10250
"""The default port of kubelets."""
ADDRESSES = ("InternalIP", "Hostname", "ExternalIP")
"""Address types in order of preference."""


_ACTING = ("exec", "attach", "portforward")
"""Subresources of pods that need `create`."""
_POD_PATHS = {
    "exec": ("create", "exec"),
    "run": ("create", "exec"),
    "attach": ("create", "attach"),
    "portForward": ("create", "portforward"),
    "containerLogs": ("get", "log"),
}
"""Paths of kubelets that are about one pod: the verb and subresource of pods that they need."""


async def connect(engine: Engine, call: Call) -> Answer:
    """Forwards a request to the kubelet of its node; explains when there is none, or no connection to it."""
    what, _, below = call.target.subresource.partition("/")
    if call.resource.name == "pods" and what in _ACTING:
        _require(engine, call, "create", what, call.namespace, call.name)
    if call.resource.name == "nodes":
        # Authorizes a path below a node's proxy that is about one pod, as the pod's own subresource.
        first, *names = below.split("/")
        if (needed := _POD_PATHS.get(first)) is not None:
            namespace, name = [*names, "", ""][:2]
            _require(engine, call, *needed, namespace, name)
        node, path, query = await _node(engine, call), f"/{quote(below)}", kubelet_paths.passed_on(call.request)
    elif call.resource.name == "pods" and what != "proxy":
        pod = await _found(engine, call)
        node, (path, query) = await _host(engine, call, pod), kubelet_paths.for_pod(what, pod, call.request)
    else:
        await _found(engine, call)
        through = f"{call.resource.name}/{call.name}"
        raise ApiError(
            Reason.SERVICE_UNAVAILABLE, f"{what} is answered by {through}, which this API server cannot reach"
        )
    await subresource_policies.connected(engine, call)
    return await _asked(engine, call, node, path, query)


def _require(engine: Engine, call: Call, verb: str, part: str, namespace: str, name: str) -> None:
    attributes = Attributes(verb=verb, version="v1", resource="pods", subresource=part, namespace=namespace, name=name)
    engine.identity.authorizer.require(call.user, attributes)


async def _found(engine: Engine, call: Call) -> Object:
    obj = await engine.find(call.resource, call.namespace, call.name)
    if obj is None:
        raise not_found(call.resource.name, call.name, group=call.resource.group)
    return obj


async def _host(engine: Engine, call: Call, pod: Object) -> Object:
    name = pod.get("spec", {}).get("nodeName", "")
    if not name:
        raise bad_request(f"pod {call.name} does not have a host assigned")
    node = await engine.find(engine.registry.builtin("", "nodes"), "", name)
    if node is None:
        raise not_found("nodes", name)
    return node


async def _node(engine: Engine, call: Call) -> Object:
    """Returns the node of a proxy URL, which may name the kubelet's port: NAME, NAME:PORT, https:NAME:PORT."""
    scheme, name, port = _named_port(call.name)
    node = await engine.find(call.resource, "", name)
    if node is None:
        raise not_found("nodes", name)
    if scheme not in ("", "https") or port not in ("", str(_port(node))):
        raise bad_request(f"{call.name}: of a node only the kubelet's port {_port(node)} is reached, over https")
    return node


def _named_port(text: str) -> tuple[str, str, str]:
    match text.split(":"):
        case [name]:
            return "", name, ""
        case [name, port]:
            return "", name, port
        case [scheme, name, port]:
            return scheme, name, port
    raise bad_request(f'invalid node request "{text}"')


async def _asked(engine: Engine, call: Call, node: Object, path: str, query: Query) -> Answer:
    name = node["metadata"]["name"]
    if engine.kubelets is None:
        what = call.target.subresource.partition("/")[0]
        raise ApiError(
            Reason.SERVICE_UNAVAILABLE,
            f'{what} is answered by the kubelet of node "{name}", and this API server has no connection to kubelets',
        )
    kubelet = Kubelet(node=name, address=_address(node), port=_port(node))
    answer = await engine.kubelets.connect(kubelet, path, query, call.request)
    if isinstance(answer, Response) and answer.status >= HTTPStatus.BAD_REQUEST and call.resource.name == "pods":
        raise _refused(call, answer)
    return answer


def _refused(call: Call, answer: Response) -> ApiError:
    """Returns a kubelet's error as a Status; its refusal of the API server is not the user's fault."""
    text = answer.body.decode("utf-8", "replace").strip()
    if answer.status == HTTPStatus.BAD_REQUEST:
        return bad_request(text)
    if answer.status == HTTPStatus.NOT_FOUND:
        return ApiError(Reason.NOT_FOUND, text, details=named("pods", call.name, ""))
    if answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return ApiError(Reason.INTERNAL_ERROR, f"the kubelet does not let this API server in: {text}")
    return ApiError(Reason.INTERNAL_ERROR, text, code=answer.status)


def _address(node: Object) -> str:
    """Returns the first address of the preferred type: a node may have one of each family."""
    addresses = node.get("status", {}).get("addresses", [])
    for kind in ADDRESSES:
        for address in addresses:
            if address.get("type") == kind and address.get("address"):
                return str(address["address"])
    name, known = node["metadata"]["name"], [address.get("type") for address in addresses]
    raise ApiError(Reason.INTERNAL_ERROR, f"no preferred addresses found for node {name}; known addresses: {known}")


def _port(node: Object) -> int:
    endpoint = node.get("status", {}).get("daemonEndpoints", {}).get("kubeletEndpoint", {})
    return int(endpoint.get("Port") or PORT)
