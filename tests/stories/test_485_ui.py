"""The live page of a real cluster: its link, the node as a map, and the way of packets compared with real packets."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually
from tests.stories.test_440_nodes import Cluster
from tests.web.chromium import PROGRAM, browser

IMAGE = "podwire.local/busybox:latest"
DOCS = Path(__file__).parents[2] / "docs"
CLOSED = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "closed"},
    "spec": {
        "podSelector": {"matchLabels": {"name": "two"}},
        "ingress": [{"from": [{"podSelector": {"matchLabels": {"name": "one"}}}]}],
    },
}
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "shop"},
    "spec": {"selector": {"name": "two"}, "ports": [{"port": 80, "targetPort": 8080}]},
}
EMPTY = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "empty"},
    "spec": {"selector": {"name": "nobody"}, "ports": [{"port": 80}]},
}


def web(name: str, node: str) -> dict[str, Any]:
    container = {"name": "main", "image": IMAGE, "command": ["httpd", "-f", "-p", "8080"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"name": name}},
        "spec": {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 0},
    }


class Site:
    def __init__(self, cluster: Cluster, printed: str) -> None:
        self.cluster = cluster
        [self.link] = [line.split()[1] for line in printed.splitlines() if line.startswith("page ")]
        self.origin, _, self.token = self.link.partition("/?token=")

    def get(self, path: str) -> Any:
        return json.loads(
            self.cluster.output("curl", "-sS", "-H", f"Authorization: Bearer {self.token}", self.origin + path)
        )


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    cluster = Cluster()
    try:
        printed = cluster.podwire("up --detach --nodes 2 --ui")
        cluster.run_pods(web("one", "node-1"), web("two", "node-2"), web("three", "node-1"))
        items = [CLOSED, SERVICE, EMPTY]
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        yield Site(cluster, printed)
    finally:
        cluster.close()


def connects(site: Site, pod: str, address: str, port: int) -> bool:
    """Whether a real packet passes: the server answers, that it has no such file."""
    done = site.cluster.run(
        "kubectl", "--kubeconfig", site.cluster.prefix / "var/lib/podwire/kubeconfig", "exec", pod, "--",
        "timeout", "3", "wget", "-qO-", f"http://{address}:{port}/nothing",
    )  # fmt: skip
    return "404" in done.stderr


def address_of(site: Site, kind: str, name: str) -> str:
    field = ".status.podIP" if kind == "pod" else ".spec.clusterIP"
    return site.cluster.kubectl("get", kind, name, "-o", f"jsonpath={{{field}}}")


@pytest.mark.parametrize(
    ("source", "to", "port", "passes"),
    [
        pytest.param("one", "pod two", 8080, True, id="allowed by a rule, on another node"),
        pytest.param("three", "pod two", 8080, False, id="denied by the policy"),
        pytest.param("two", "pod one", 8080, True, id="no policy selects it"),
        pytest.param("one", "pod three", 8080, True, id="on the same node"),
        pytest.param("one", "service shop", 80, True, id="a service with an allowed endpoint"),
        pytest.param("three", "service shop", 80, False, id="a service whose endpoint is denied"),
        pytest.param("one", "service empty", 80, False, id="a service without endpoints"),
    ],
)
def test_the_way_of_a_packet_is_what_a_real_packet_does(site, source, to, port, passes):
    kind, _, name = to.partition(" ")
    eventually(lambda: connects(site, source, address_of(site, kind, name), port) is passes)
    target = f"default/{name}" if kind == "pod" else f"service:default/{name}"
    path = site.get(f"/api/path?from=default/{source}&to={target}&port={port}")
    assert path["reachable"] is passes, path
    hops = [*path["hops"], *(hop for branch in path.get("endpoints", ()) for hop in branch["hops"])]
    if to == "pod two":
        assert any("default/closed" in hop["rule"] for hop in hops)
        assert hops[-1]["passes"] is passes
    if not passes:
        assert [hop["passes"] for hop in hops].count(False) == 1, "one hop decides"
    if kind == "service" and name == "shop":
        assert any("dnat to" in hop["rule"] for hop in hops)


def test_the_map_of_a_node_shows_who_owns_which_wire(site):
    node = site.get("/api/nodes/node-1")
    assert {pod["pod"] for pod in node["pods"]} == {"default/one", "default/three"}
    assert len(node["wires"]) >= 2
    assert any(link["kind"] == "bridge" for link in node["namespace"]["links"])
    assert any("podwire" in rules["table"] for rules in node["rules"])
    assert "error" in site.get("/api/nodes/nothing")


def test_resources_show_the_pools_of_the_nodes(site):
    shown = site.get("/api/resources")
    assert [(node["node"], node["error"]) for node in shown["pools"]] == [("node-1", ""), ("node-2", "")]
    assert all(pool["used"] >= 1 for node in shown["pools"] for pool in node["pools"])


@pytest.mark.skipif(PROGRAM is None, reason="needs Chromium; scripts/setup installs it")
async def test_the_page_shows_map_and_path_in_a_browser(site, tmp_path):
    enter = ("nsenter", "-t", site.cluster._child.pid, "-n", "--")
    async with browser(tmp_path / "browser", *enter) as page:
        await page.size(1600, 1000)
        await page.open(f"{site.link}#/node/node-1")
        await page.until("document.querySelectorAll('svg.node-map .pod').length === 2")
        await keep(page, "node")
        await page.run("location.hash = '#/path?from=default/three&to=service:default/shop&port=80'")
        await page.until("document.querySelectorAll('li.dropped').length === 1")
        assert "closed" in await page.run("document.querySelector('li.dropped').innerText")
        await keep(page, "path")
        await page.run("location.hash = '#/resources'")
        pool = site.get("/api/resources")["pools"][0]["pools"][0]["ranges"]
        await page.until(f"document.body.innerText.includes({json.dumps(pool)})")
        assert "about 2^64" in await page.run("document.body.innerText"), "free addresses of a range of IPv6"
        await page.run("location.hash = '#/cluster'")
        await page.until("document.querySelectorAll('.virtual .pod-row.running').length === 3")
        assert page.problems == []


async def keep(page, name: str) -> None:
    picture = await page.picture()
    assert len(picture) > 10_000
    if os.environ.get("PODWIRE_DOCS"):
        (DOCS / f"ui-{name}.png").write_bytes(picture)
