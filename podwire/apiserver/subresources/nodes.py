"""log, exec, attach, portforward and proxy: calls that a node's kubelet answers."""

from podwire.apiserver.call import Call
from podwire.apiserver.engine import Engine
from podwire.protocols.k8sapi.server_side import Answer
from podwire.protocols.k8sapi.status import ApiError, Reason, bad_request, not_found


async def connect(engine: Engine, call: Call) -> Answer:
    """Find the node that must answer; say clearly when there is none, or no way to it."""
    what = call.target.subresource.partition("/")[0]
    obj = await engine.find(call.resource, call.namespace, call.name)
    if obj is None:
        raise not_found(call.resource.name, call.name, group=call.resource.group)
    node = call.name if call.resource.name == "nodes" else obj.get("spec", {}).get("nodeName", "")
    if call.resource.name == "pods":
        if not node:
            raise bad_request(f"pod {call.name} does not have a host assigned")
        if await engine.find(engine.registry.builtin("", "nodes"), "", node) is None:
            raise not_found("nodes", node)
    through = f'the kubelet of node "{node}"' if node else f"{call.resource.name}/{call.name}"
    raise ApiError(
        Reason.SERVICE_UNAVAILABLE,
        f"{what} is answered by {through}, and this API server has no connection to kubelets",
    )
