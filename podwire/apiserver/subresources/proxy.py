"""proxy of pods, services and nodes: forwards requests to a pod, an endpoint of a service, or a port of a node.

The name may have a scheme and a port: NAME, NAME:PORT, SCHEME:NAME:PORT. Only addresses that pods and nodes have are
reached, and of these no loopback, link-local or multicast ones, nor the API server itself (`cluster/backend_proxy.py`).
"""

from urllib.parse import quote

from podwire.apiserver.admission import subresource_policies
from podwire.apiserver.engine import Engine
from podwire.apiserver.ports import Backend
from podwire.apiserver.request.call import Call
from podwire.apiserver.service_endpoints import ServiceEndpoints, is_global_unicast
from podwire.apiserver.subresources import kubelet_proxy
from podwire.kinds.stored import Object
from podwire.protocols.k8sapi.server_side import Answer, Response
from podwire.protocols.k8sapi.status import ApiError, Reason, bad_request, not_found

_DEFAULT_PORTS = {"": 80, "http": 80, "https": 443}
_UNESCAPED = "$&+,/:;=@~"
"""Characters that Go leaves as they are in a path."""
_LAST_PORT = 65535


async def connect(engine: Engine, call: Call) -> Answer:
    """Forwards a request to what its URL names. Raises ApiError."""
    kind = call.resource.kind.kind.lower()
    scheme, name, port = _split(kind, call.name)
    if call.resource.name == "nodes":
        node = await engine.find(call.resource, "", name)
        if node is None:
            raise not_found("nodes", name)
        if port in ("", str(kubelet_proxy.kubelet_port(node))):
            return _redirect(call) or await kubelet_proxy.connect_node(engine, call, node, _path(call), _prefix(call))
        backend = Backend(scheme=scheme or "http", address=kubelet_proxy.kubelet_address(node), port=_number(port))
    elif call.resource.name == "pods":
        pod = await engine.find(call.resource, call.namespace, name)
        if pod is None:
            raise not_found("pods", name)
        backend = _of_pod(pod, scheme, port)
    else:
        endpoint = await ServiceEndpoints(engine.store).find_pod(call.namespace, name, port)
        backend = Backend(scheme=scheme or "http", address=endpoint.address, port=endpoint.port)
    await subresource_policies.connected(engine, call)
    if not is_global_unicast(backend.address):
        raise bad_request("address not allowed")
    if (redirect := _redirect(call)) is not None:
        return redirect
    if engine.backends is None:
        message = f"proxy is answered by {call.resource.name}/{name}, and this API server has no connection to pods"
        raise ApiError(Reason.SERVICE_UNAVAILABLE, message)
    return await engine.backends.forward(
        backend, _path(call) + kubelet_proxy.query_of(call.request), _prefix(call), call.request
    )


def _split(kind: str, text: str) -> tuple[str, str, str]:
    """Returns scheme, name and port; scheme and port may be empty."""
    scheme, name, port = "", text, ""
    match text.split(":"):
        case [name, port]:
            pass
        case [scheme, name, port]:
            pass
        case [_]:
            pass
        case _:
            name = ""
    if not name or scheme not in _DEFAULT_PORTS:
        raise bad_request(f'invalid {kind} request "{text}"')
    return scheme, name, port


def _of_pod(pod: Object, scheme: str, port: str) -> Backend:
    """Returns the pod's first address, at the port of the request, or at the first port of its containers."""
    ports = [port for container in pod["spec"]["containers"] for port in container.get("ports") or ()]
    if not port:
        number = ports[0]["containerPort"] if ports else _DEFAULT_PORTS[scheme]
    else:
        names = {declared["name"]: declared["containerPort"] for declared in ports if declared.get("name")}
        number = names[port] if port in names else _number(port)
    ips = pod.get("status", {}).get("podIPs") or [{"ip": ""}]
    return Backend(scheme=scheme or "http", address=ips[0].get("ip", ""), port=number)


def _number(port: str) -> int:
    if port.isascii() and port.isdigit() and len(port) <= len(str(_LAST_PORT)) and 0 < int(port) <= _LAST_PORT:
        return int(port)
    reason = f"dial tcp: lookup tcp/{port}: unknown port"
    raise ApiError(Reason.SERVICE_UNAVAILABLE, f"error trying to reach service: {reason}")


def _below(call: Call) -> str:
    """Returns the path below the proxy, decoded; with a slash at its end if the client sent one."""
    segments = [segment for segment in call.target.subresource.split("/")[1:] if segment]
    path = "".join(f"/{segment}" for segment in segments)
    return f"{path}/" if call.request.path.endswith("/") else path


def _path(call: Call) -> str:
    return quote(_below(call), safe=_UNESCAPED)


def _prefix(call: Call) -> str:
    """Returns the path of the proxy itself."""
    namespace = f"namespaces/{call.namespace}/" if call.namespace else ""
    return f"/api/{call.target.version}/{namespace}{call.resource.name}/{call.name}/proxy"


def _redirect(call: Call) -> Response | None:
    """Returns a redirect to the root of the backend, which ends in a slash so that relative links work."""
    asked = "upgrade" in call.request.headers
    if asked or _below(call) or call.request.method not in ("GET", "HEAD"):
        return None
    location = f"{call.request.path}/{kubelet_proxy.query_of(call.request)}"
    return Response(status=301, headers=(("Location", location),), content_type="text/plain")
