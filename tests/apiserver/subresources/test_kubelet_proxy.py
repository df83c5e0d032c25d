"""log, exec, attach, portforward and proxy: what a kubelet would have to answer is said clearly."""

import pytest

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"


@pytest.mark.parametrize("what", ["log", "exec", "attach", "portforward", "proxy"])
async def test_a_pod_that_is_not_there_is_not_found(api, what):
    reply = await api.get(f"{PODS}/web/{what}")

    assert (reply.status, reply.message) == (404, 'pods "web" not found')


@pytest.mark.parametrize("what", ["log", "exec"])
async def test_a_pod_without_a_node_has_no_kubelet_to_ask(api, pod, what):
    await api.made(PODS, pod())

    reply = await api.get(f"{PODS}/web/{what}")

    assert (reply.status, reply.message) == (400, "pod web does not have a host assigned")


async def test_a_node_that_is_not_there_is_named(api, pod):
    await api.made(PODS, pod(node="n1"))

    reply = await api.get(f"{PODS}/web/log")

    assert (reply.status, reply.message) == (404, 'nodes "n1" not found')


async def test_without_a_kubelet_client_it_is_unavailable(api, pod):
    await api.made(NODES, {"metadata": {"name": "n1"}})
    await api.made(PODS, pod(node="n1"))

    reply = await api.get(f"{PODS}/web/log")

    assert (reply.status, reply.body["reason"]) == (503, "ServiceUnavailable")
    assert 'kubelet of node "n1"' in reply.message


async def test_a_nodes_proxy_has_a_path(api):
    await api.made(NODES, {"metadata": {"name": "n1"}})

    assert (await api.get(f"{NODES}/n1/proxy/metrics/cadvisor")).status == 503
