"""Three etcd members and three API servers: any of them may die under load, and nothing is lost or done twice."""

import http.client
import json
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.eventually import eventually
from tests.store.conftest import EtcdMember, free_ports
from tests.stories.support import PODWIRE, ApiServer, Process

NAMESPACE = "/api/v1/namespaces/default"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
FAILURES = (OSError, http.client.HTTPException, ValueError)


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[EtcdMember]]:
    folder, ports = tmp_path_factory.mktemp("members"), free_ports(6)
    names = [f"etcd{number}" for number in range(3)]
    peers = ",".join(f"{name}=http://127.0.0.1:{port}" for name, port in zip(names, ports[3:], strict=True))
    members = [
        EtcdMember(folder / name, "--initial-cluster", peers, client=ports[number], peer=ports[number + 3])
        for number, name in enumerate(names)
    ]
    for member in members:
        member.start()
    for member in members:
        member.wait()
    yield members
    for member in members:
        member.kill()


@pytest.fixture(scope="module")
def servers(members: list[EtcdMember], tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ApiServer]]:
    """They share the keys of the cluster, as on machines to which its directory `pki` was copied."""
    store = f"etcd://{','.join(member.address for member in members)}"
    folder = tmp_path_factory.mktemp("servers")
    servers = [ApiServer(folder / f"server{number}", store=store) for number in range(3)]
    servers[0].start()
    for server in servers[1:]:
        for keys in ("pki", "front-proxy"):
            shutil.copytree(servers[0].data_dir / keys, server.data_dir / keys)
        server.data_dir.chmod(0o700)
        server.start()
    yield servers
    for server in servers:
        server.kill()


def config_map(name: str, namespace: str = "default") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}}


class Watcher(threading.Thread):
    """Watches ConfigMaps at one server, and resumes at the next one when it ends."""

    def __init__(self, servers: list[ApiServer]) -> None:
        super().__init__(daemon=True)
        self._servers, self._ended = servers, threading.Event()
        self._version = str(servers[0].rest("GET", f"{NAMESPACE}/configmaps")["metadata"]["resourceVersion"])
        self._streams = [(urlsplit(server.url), server.tls) for server in servers]
        self.added: list[str] = []
        self.resumed = 0
        self.failure = ""

    def run(self) -> None:
        number = 0
        while not self._ended.is_set() and not self.failure:
            address, context = self._streams[number % len(self._streams)]
            connection = http.client.HTTPSConnection(str(address.hostname), address.port, context=context, timeout=2)
            try:
                query = f"watch=true&allowWatchBookmarks=true&resourceVersion={self._version}"
                connection.request("GET", f"{NAMESPACE}/configmaps?{query}")
                for line in connection.getresponse():
                    self._on_event(json.loads(line))
                    if self._ended.is_set():
                        return
            except FAILURES:
                pass
            finally:
                connection.close()
            number += 1
            self.resumed += 1
            time.sleep(0.05)

    def _on_event(self, event: dict[str, Any]) -> None:
        if event["type"] == "ERROR":
            self.failure = json.dumps(event)
            return
        self._version = event["object"]["metadata"]["resourceVersion"]
        if event["type"] == "ADDED":
            self.added.append(event["object"]["metadata"]["name"])

    def end(self) -> None:
        self._ended.set()
        self.join(10)


def test_servers_and_members_may_die_under_load(servers, members):
    acknowledged: list[str] = []
    refused: Counter[int] = Counter()
    over = threading.Event()
    watcher = Watcher(servers)
    watcher.start()

    def write(number: int) -> None:
        for count in range(100_000):
            if over.is_set():
                return
            server, name = servers[(number + count) % 3], f"w{number}-{count}"
            try:
                status, _ = server.ask("POST", f"{NAMESPACE}/configmaps", config_map(name))
            except FAILURES:
                continue
            if status == 201:
                acknowledged.append(name)
            else:
                refused[status] += 1

    def more_writes() -> None:
        before = len(acknowledged)
        eventually(lambda: len(acknowledged) >= before + 20)

    with ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(write, number) for number in range(3)]
        more_writes()
        servers[0].kill()  # the watcher is there, and the controllers lead there
        more_writes()
        servers[0].start()
        members[0].kill()
        more_writes()
        members[0].start()
        members[0].wait()
        servers[1].stop()
        members[1].signal(signal.SIGSTOP)
        more_writes()
        members[1].signal(signal.SIGCONT)
        servers[1].start()
        more_writes()
        over.set()
        for writer in writers:
            writer.result()

    for server in servers:
        present = {row["metadata"]["name"] for row in server.rest("GET", f"{NAMESPACE}/configmaps")["items"]}
        assert set(acknowledged) <= present
    eventually(lambda: set(acknowledged) <= set(watcher.added))
    watcher.end()
    assert watcher.failure == ""
    assert watcher.resumed >= 1
    assert [name for name, times in Counter(watcher.added).items() if times > 1] == []
    assert set(refused) <= {500, 503, 504, 429}, refused


def test_addresses_and_quotas_are_right_across_servers(servers):
    servers[0].rest("POST", "/api/v1/namespaces", {"metadata": {"name": "small"}})
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": "10"}}}
    servers[0].rest("POST", "/api/v1/namespaces/small/resourcequotas", quota)

    def used() -> str:
        status = servers[0].rest("GET", "/api/v1/namespaces/small/resourcequotas/q").get("status") or {}
        return str((status.get("used") or {}).get("count/configmaps", ""))

    eventually(lambda: used() == "1")  # that of the root certificate

    def ask(number: int) -> tuple[int, int, Any]:
        server = servers[number % 3]
        service = {"metadata": {"name": f"s{number}"}, "spec": {"ports": [{"port": 80}]}}
        created, _ = server.ask("POST", "/api/v1/namespaces/small/configmaps", config_map(f"c{number}", "small"))
        status, answer = server.ask("POST", f"{NAMESPACE}/services", service)
        return created, status, answer

    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(ask, range(30)))
    assert Counter(created for created, _, _ in results) == {201: 9, 403: 21}
    assert {status for _, status, _ in results} == {201}
    addresses = [answer["spec"]["clusterIP"] for _, _, answer in results]
    assert len(set(addresses)) == 30


def holder(server: ApiServer, name: str) -> str:
    status, lease = server.ask("GET", f"{LEASES}/{name}")
    return str(lease["spec"].get("holderIdentity") or "") if status == 200 else ""


def deployment(name: str) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": 3, "selector": {"matchLabels": labels}, "template": template},
    }


def test_controllers_of_another_server_go_on_and_do_nothing_twice(servers):
    eventually(lambda: holder(servers[0], "kube-controller-manager"))
    by_server = {}
    for number in range(3):  # kill one after the other until the leader has gone
        before = holder(servers[(number + 1) % 3], "kube-controller-manager")
        servers[number].kill()
        alive = servers[(number + 1) % 3]
        name = f"after{number}"
        alive.rest("POST", "/apis/apps/v1/namespaces/default/deployments", deployment(name))

        def pods(name: str = name, alive: ApiServer = alive) -> list[str]:
            found = alive.rest("GET", f"{NAMESPACE}/pods?labelSelector=app%3D{name}")["items"]
            return [row["metadata"]["name"] for row in found]

        eventually(lambda pods=pods: len(pods()) >= 3)
        by_server[number] = before != holder(alive, "kube-controller-manager")
        servers[number].start()
        assert len(pods()) == 3
    assert any(by_server.values())


def test_another_scheduler_goes_on_and_binds_nothing_twice(servers, tmp_path):
    node = {
        "metadata": {"name": "n1"},
        "spec": {},
        "status": {
            "allocatable": {"cpu": "100", "memory": "100Gi", "pods": "500"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    servers[0].rest("POST", "/api/v1/nodes", node)
    lease = {"metadata": {"name": "n1"}, "spec": {"holderIdentity": "n1", "leaseDurationSeconds": 40}}
    servers[0].rest("POST", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", lease)
    schedulers = [Process(f"scheduler{number}", tmp_path / f"scheduler{number}.log") for number in range(2)]
    try:
        for scheduler, server in zip(schedulers, servers, strict=False):
            scheduler.run(PODWIRE, "scheduler", "--kubeconfig", server.kubeconfig)
        first = eventually(lambda: holder(servers[2], "kube-scheduler"))
        leading = eventually(lambda: [row for row in schedulers if "process lead" in row.log.read_text()])
        assert len(leading) == 1

        def bound() -> bool:
            pods = servers[2].rest("GET", f"{NAMESPACE}/pods")["items"]
            return bool(pods) and all(pod["spec"].get("nodeName") == "n1" for pod in pods)

        servers[2].rest("POST", "/apis/apps/v1/namespaces/default/deployments", deployment("one"))
        eventually(bound)
        leading[0].kill()
        servers[2].rest("POST", "/apis/apps/v1/namespaces/default/deployments", deployment("two"))
        eventually(lambda: holder(servers[2], "kube-scheduler") not in ("", first))
        eventually(bound)
        # Those of the second scheduler; the first may have died before it sent its own.
        eventually(lambda: len(scheduled_events(servers[2])) >= 3)
        assert max(scheduled_events(servers[2]).values()) == 1
    finally:
        for scheduler in schedulers:
            scheduler.kill()


def scheduled_events(server: ApiServer) -> Counter[str]:
    """Returns how often each pod was scheduled."""
    events = server.rest("GET", "/apis/events.k8s.io/v1/namespaces/default/events")["items"]
    counts: Counter[str] = Counter()
    for row in events:
        if row["reason"] == "Scheduled":
            counts[row["regarding"]["uid"]] += (row.get("series") or {}).get("count", 1)
    return counts
