"""An API server as the command runs it."""

import contextlib

import pytest

from podwire.cluster.apiserver import Identity, Options, running
from podwire.cluster.apiserver_controllers import IDENTITY
from podwire.cluster.loopback import LoopbackHttp
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.status import ApiError
from podwire.transports import credentials, http_client


async def test_a_server_on_all_addresses_comes_up_and_is_reached_at_the_loopback(tmp_path):
    options = Options(data_dir=tmp_path, host="0.0.0.0", port=0, store_url="memory://", controllers=frozenset())
    async with running(options) as server:
        assert server.url.startswith("https://127.0.0.1:")
        assert server.kubeconfig.exists()


RBAC = "rbac.authorization.k8s.io"
BINDING = {
    "apiVersion": f"{RBAC}/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "mine"},
    "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": "system:authenticated"}],
}
SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}}
COMPONENTS = {
    "system:node:node-1": ("system:nodes",),
    "system:kube-scheduler": (),
    "system:podwire:network-driver:node-1": ("system:podwire:network-driver",),
    "system:podwire:nri-network:node-1": ("system:podwire:nri-network",),
    "system:podwire:gpu-driver:node-1": ("system:podwire:gpu-driver",),
}


@pytest.fixture
async def clients(tmp_path):
    """Clients with the kubeconfigs of the components, over TLS, and one of the administrator."""
    identities = tuple(
        Identity(user=user, groups=groups, kubeconfig=tmp_path / f"{number}.kubeconfig")
        for number, (user, groups) in enumerate(COMPONENTS.items())
    )
    options = Options(
        data_dir=tmp_path / "api", port=0, store_url="memory://", controllers=frozenset(), identities=identities
    )
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(running(options))
        found = {"admin": server.kubeconfig, **{identity.user: identity.kubeconfig for identity in identities}}
        connected = {
            user: Client(await stack.enter_async_context(http_client.connect(credentials.load(path))))
            for user, path in found.items()
        }
        controllers = LoopbackHttp(server.assembled.server.handle, IDENTITY)
        yield {**connected, "controllers": Client(controllers)}


@pytest.mark.parametrize("user", [*COMPONENTS, "controllers"])
async def test_no_component_can_make_itself_administrator(clients, user):
    with pytest.raises(ApiError) as refused:
        await clients[user].create(BINDING)
    assert refused.value.code == 403


@pytest.mark.parametrize("user", COMPONENTS)
async def test_no_component_on_a_node_reads_secrets(clients, user):
    await clients["admin"].create(SECRET)
    kind = clients["admin"].kind_of(SECRET)
    for read in (clients[user].get(kind, "s", "default"), clients[user].list(kind)):
        with pytest.raises(ApiError) as refused:
            await read
        assert refused.value.code == 403
