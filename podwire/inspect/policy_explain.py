"""Explains a connection: reads NetworkPolicies, pods, namespaces and nodes from an API server into the policy model."""

from collections.abc import Sequence
from ipaddress import ip_address

from podwire.nriplugins.network.kinds import DNS_SLICES, NAMESPACES, NODES, PODS, POLICIES, SLICES
from podwire.nriplugins.network.policy import Explained, Model, explain
from podwire.nriplugins.network.policy.explain import end
from podwire.nriplugins.network.policy.policies import policy_of
from podwire.nriplugins.network.policy.values import dns_server_of, pod_of
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.watch import Object, metadata
from podwire.transports import credentials, http_client

USER_AGENT = "podwire-policy"


async def explained(
    kubeconfigs: Sequence[str], source: str, destination: str, port: int, protocol: str, *, context: str = ""
) -> Explained:
    """Raises BadKubeconfig, ApiError, ClientError, Unknown (of explain), Broken (of policies)."""
    access = credentials.load_merged(kubeconfigs, context=context)
    async with http_client.connect(access, user_agent=USER_AGENT) as http:
        model = await read_model(Client(http))
    return explain(model, end(model, source), end(model, destination), port, protocol)


async def read_model(client: Client) -> Model:
    """Returns everything that decides about connections."""
    model = Model()
    for node in (await client.list(NODES)).items:
        all_addresses = (node.get("status") or {}).get("addresses") or ()
        addresses = [
            address["address"] for address in all_addresses if address.get("type") in ("InternalIP", "ExternalIP")
        ]
        model.put_node(_name(node), map(ip_address, addresses))
    for namespace in (await client.list(NAMESPACES)).items:
        model.put_namespace(_name(namespace), metadata(namespace).get("labels") or {})
    for pod in (await client.list(PODS)).items:
        model.put_pod(pod_of(pod))
    for slice_ in (await client.list(SLICES, DNS_SLICES)).items:
        model.put_pod(dns_server_of(slice_))
    for policy in (await client.list(POLICIES)).items:
        model.put_policy(policy_of(policy))
    return model


def _name(object_: Object) -> str:
    return str(metadata(object_).get("name", ""))
