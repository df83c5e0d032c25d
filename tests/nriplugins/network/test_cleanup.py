"""Everything taken away, from the node and from pods, and nothing else."""

import uuid

from podwire.linux.net.network import KernelNetwork
from podwire.linux.nft.tables import KernelTables
from podwire.linux.proc.namespaces import KernelNamespaces
from podwire.nriplugins.network import mesh, routes
from podwire.nriplugins.network.cleanup import remove_all
from podwire.nriplugins.network.policy import Kernel
from podwire.nriplugins.network.resources import Pod

META = {"name": "a", "namespace": "default"}
MESH = {"podSelector": {}, "proxy": {"uid": 1337}, "outbound": {"port": 15001}}
ROUTE = {"podSelector": {}, "interface": "lo", "routes": [{"destinations": ["10.20.0.0/16"]}]}


def test_cleanup_removes_ours_and_keeps_the_rest(tmp_path):
    namespaces = KernelNamespaces(tmp_path)
    node, pod, untouched = (namespaces.create(f"{name}-{uuid.uuid4().hex[:6]}") for name in ("node", "pod", "bare"))
    try:
        for path, inside in ((node.path, False), (pod.path, True)):
            Kernel(path, inside=inside).close()
        planned = Pod("default", "web")
        with KernelNetwork(pod.path) as network, KernelTables(pod.path) as tables:
            network.links.change("lo", up=True)
            own = routes.read({"kind": "PodRoute", "metadata": META, "spec": ROUTE})
            assert routes.apply(network, routes.plan(planned, [own])).changed == 1
            assert mesh.apply(
                tables, mesh.plan(planned, [mesh.read({"kind": "PodMesh", "metadata": META, "spec": MESH})])
            ).changed
            before = len(network.routes.list(4, None))
            assert remove_all([pod.path, untouched.path, str(tmp_path / "gone")], node.path) == 2
            assert len(network.routes.list(4, None)) == before - 1
            assert tables.get("podwire-mesh") is None
            assert tables.get("podwire-policy") is None
        assert remove_all([pod.path, untouched.path], node.path) == 0
    finally:
        for item in (node, pod, untouched):
            namespaces.remove(item.name)
