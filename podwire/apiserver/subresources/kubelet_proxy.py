"""log, exec, attach, portforward, and the proxy of a node at the port of its kubelet: forwarded to a node's kubelet.

The kubelet authorizes the API server, not the user, so everything that the user needs is checked here: a command is run
with `create`, whichever method a connection begins with, and through a node's proxy it needs the same permission on the
pod as without.
"""

from http import HTTPStatus
from urllib.parse import unquote, urlencode

from podwire.apiserver.admission import subresource_policies
from podwire.apiserver.engine import Engine
from podwire.apiserver.identity.authorization import Attributes
from podwire.apiserver.ports import Kubelet, Kubelets
from podwire.apiserver.request.call import Call
from podwire.apiserver.subresources import kubelet_paths
from podwire.kinds.stored import Object
from podwire.protocols.k8sapi.server_side import Answer, Request, Response
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
    """Forwards a request about a pod to the kubelet of its node; explains when there is none."""
    what = call.target.subresource
    if what in _ACTING:
        _require(engine, call, "create", what, call.namespace, call.name)
    pod = await engine.find(call.resource, call.namespace, call.name)
    if pod is None:
        raise not_found(call.resource.name, call.name, group=call.resource.group)
    if what == "log":  # its options are checked before the pod's node, as upstream does
        kubelet_paths.for_pod(what, pod, call.request)
    node, (path, query) = await _host(engine, call, pod), kubelet_paths.for_pod(what, pod, call.request)
    await subresource_policies.connected(engine, call)
    kubelets, kubelet = _kubelet(engine, call, node)
    answer = await kubelets.connect(kubelet, path, query, call.request)
    if isinstance(answer, Response) and answer.status >= HTTPStatus.BAD_REQUEST:
        raise _refused(call, answer)
    return answer


async def connect_node(engine: Engine, call: Call, node: Object, path: str, prefix: str) -> Answer:
    """Forwards a request through a node's proxy to its kubelet; `path` is the kubelet's, encoded."""
    first, *names = unquote(path).strip("/").split("/")
    if (needed := _POD_PATHS.get(first)) is not None:  # about one pod: authorized as the pod's own subresource
        namespace, name = [*names, "", ""][:2]
        _require(engine, call, *needed, namespace, name)
    await subresource_policies.connected(engine, call)
    kubelets, kubelet = _kubelet(engine, call, node)
    if "upgrade" in call.request.headers:
        return await kubelets.connect(kubelet, path or "/", kubelet_paths.passed_on(call.request), call.request)
    return await kubelets.forward(kubelet, (path or "/") + query_of(call.request), prefix, call.request)


def _require(engine: Engine, call: Call, verb: str, part: str, namespace: str, name: str) -> None:
    attributes = Attributes(verb=verb, version="v1", resource="pods", subresource=part, namespace=namespace, name=name)
    engine.identity.authorizer.require(call.user, attributes)


async def _host(engine: Engine, call: Call, pod: Object) -> Object:
    name = pod.get("spec", {}).get("nodeName", "")
    if not name:
        raise bad_request(f"pod {call.name} does not have a host assigned")
    node = await engine.find(engine.registry.builtin("", "nodes"), "", name)
    if node is None:
        raise not_found("nodes", name)
    return node


def _kubelet(engine: Engine, call: Call, node: Object) -> tuple[Kubelets, Kubelet]:
    name = node["metadata"]["name"]
    if engine.kubelets is None:
        what = call.target.subresource.partition("/")[0]
        raise ApiError(
            Reason.SERVICE_UNAVAILABLE,
            f'{what} is answered by the kubelet of node "{name}", and this API server has no connection to kubelets',
        )
    return engine.kubelets, Kubelet(node=name, address=kubelet_address(node), port=kubelet_port(node))


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


def kubelet_address(node: Object) -> str:
    """Returns the first address of the preferred type: a node may have one of each family."""
    addresses = node.get("status", {}).get("addresses", [])
    for kind in ADDRESSES:
        for address in addresses:
            if address.get("type") == kind and address.get("address"):
                return str(address["address"])
    name, known = node["metadata"]["name"], [address.get("type") for address in addresses]
    raise ApiError(Reason.INTERNAL_ERROR, f"no preferred addresses found for node {name}; known addresses: {known}")


def kubelet_port(node: Object) -> int:
    endpoint = node.get("status", {}).get("daemonEndpoints", {}).get("kubeletEndpoint", {})
    return int(endpoint.get("Port") or PORT)


def query_of(request: Request) -> str:
    """Returns the query as the client sent it, with its question mark."""
    query = request.raw_query or urlencode(request.query, doseq=True)
    return f"?{query}" if query else ""
