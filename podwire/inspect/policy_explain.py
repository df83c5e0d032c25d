"""Explains a connection: reads policies, pods, namespaces and nodes from an API server into the policy model."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from podwire.nriplugins.network.kinds import ADMIN_KINDS, DNS_SLICES, NAMESPACES, NODES, PODS, POLICIES, SLICES
from podwire.nriplugins.network.policy import Explained, Model, explain
from podwire.nriplugins.network.policy.admin_policies import admin_policy_of
from podwire.nriplugins.network.policy.explain import end
from podwire.nriplugins.network.policy.policies import policy_of
from podwire.nriplugins.network.policy.values import dns_server_of, node_addresses_of, pod_of
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.client_side.http import Http
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object, metadata
from podwire.transports import credentials, http_client

USER_AGENT = "podwire-policy"
UNENFORCED = "no controller acts on networkpolicies"
"""The beginning of our API server's warning in a cluster without a policy plugin."""


class Explanation(NamedTuple):
    """The verdict of the policies, and whether anything enforces it."""

    verdict: Explained
    enforced: bool

    def __str__(self) -> str:
        if self.enforced:
            return str(self.verdict)
        note = "note: nothing enforces NetworkPolicies in this cluster, every connection passes; "
        return f"{self.verdict}\n{note}`podwire up --network-policy on` or `podwire nri-network` does"


async def explained(
    kubeconfigs: Sequence[str], source: str, destination: str, port: int, protocol: str, *, context: str = ""
) -> Explanation:
    """Raises BadKubeconfig, ApiError, ClientError, Unknown (of explain), Broken (of policies)."""
    access = credentials.load_merged(kubeconfigs, context=context)
    async with http_client.connect(access, user_agent=USER_AGENT) as http:
        model = await read_model(Client(http))
        enforced = await _is_enforced(http)
    return Explanation(explain(model, end(model, source), end(model, destination), port, protocol), enforced)


async def _is_enforced(http: Http) -> bool:
    """Asks the API server, with a dry run, whether it would warn about a policy. One that never warns counts as yes."""
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "podwire-policy-explain"},
        "spec": {"podSelector": {"matchLabels": {"podwire.dev/none": ""}}},
    }
    reply = await http.request(
        "POST",
        "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies",
        query=[("dryRun", "All")],
        headers={"Content-Type": "application/json"},
        body=json.dumps(policy).encode(),
    )
    return UNENFORCED not in reply.headers.get("warning", "")


async def read_model(client: Client) -> Model:
    """Returns everything that decides about connections."""
    model = Model()
    for node in (await client.list(NODES)).items:
        model.put_node(_name(node), node_addresses_of(node), metadata(node).get("labels") or {})
    for namespace in (await client.list(NAMESPACES)).items:
        model.put_namespace(_name(namespace), metadata(namespace).get("labels") or {})
    for pod in (await client.list(PODS)).items:
        model.put_pod(pod_of(pod))
    for slice_ in (await client.list(SLICES, DNS_SLICES)).items:
        model.put_pod(dns_server_of(slice_))
    for policy in (await client.list(POLICIES)).items:
        model.put_policy(policy_of(policy))
    for kind in ADMIN_KINDS:
        for policy in await _custom(client, kind):
            model.put_admin_policy(admin_policy_of({**policy, "kind": kind.kind}))
    return model


async def _custom(client: Client, kind: Kind) -> Sequence[Object]:
    """Returns no objects where the cluster lacks the definition of their kind."""
    try:
        return (await client.list(kind)).items
    except ApiError as error:
        if error.code != 404:
            raise
        return ()


def _name(object_: Object) -> str:
    return str(metadata(object_).get("name", ""))
