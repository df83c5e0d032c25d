"""A cluster's state is saved while it is written to, restored, and moved from SQLite to etcd and back."""

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Self

import pytest

from tests.eventually import eventually
from tests.stories.support import Etcd

PODWIRE = Path(sys.executable).with_name("podwire")
MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def own_etcd(tmp_path):
    """An etcd of its own: a restore compacts it."""
    member = Etcd(tmp_path / "etcd")
    member.start()
    yield member
    member.kill()


def podwire(*words: object) -> str:
    ended = subprocess.run([PODWIRE, *map(str, words)], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def refused(*words: object) -> str:
    ended = subprocess.run([PODWIRE, *map(str, words)], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (1, ""), ended
    assert "Traceback" not in ended.stderr
    return ended.stderr


def a_map(name: str, **data: str) -> dict:
    return {"metadata": {"name": name}, "data": data}


def maps(server) -> dict[str, str]:
    items = server.rest("GET", MAPS)["items"]
    return {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in items}


class Writer:
    """Creates ConfigMaps until it is stopped; knows which were acknowledged."""

    def __init__(self, server) -> None:
        self._server = server
        self._stop = threading.Event()
        self.acknowledged: list[str] = []
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _write(self) -> None:
        while not self._stop.is_set():
            name = f"m{len(self.acknowledged)}"
            status, _ = self._server.ask("POST", MAPS, a_map(name))
            assert status == 201
            self.acknowledged.append(name)


def test_a_backup_under_load_has_all_that_was_acknowledged_before_and_is_restored(start_server, tmp_path):
    server = start_server()
    file = tmp_path / "state.backup"
    with Writer(server) as writer:
        eventually(lambda: len(writer.acknowledged) >= 20)
        before = list(writer.acknowledged)
        saved = json.loads(podwire("backup", file, "--kubeconfig", server.kubeconfig, "-o", "json"))
    assert (file.stat().st_mode & 0o777, saved["store"]) == (0o600, "sqlite")
    newest = max(map(int, maps(server).values()))
    assert f"{saved['objects']} objects at revision {saved['revision']}" in podwire("backup", "--verify", file)
    assert "in use by another process" in refused("restore", file, "--data-dir", server.data_dir, "--replace")

    server.stop()
    assert "exists; with --replace" in refused("restore", file, "--data-dir", server.data_dir)
    assert "is kept in" in podwire("restore", file, "--data-dir", server.data_dir, "--replace")
    server.start()
    restored = maps(server)
    assert set(before) <= set(restored) <= {*writer.acknowledged, "kube-root-ca.crt"}
    assert int(restored["m0"]) <= saved["revision"]
    created = server.rest("POST", MAPS, a_map("after"))
    assert int(created["metadata"]["resourceVersion"]) > newest + 1_000_000
    status, answer = server.ask("GET", f"{MAPS}?watch=1&resourceVersion={newest}")
    assert (answer.get("object") or answer)["code"] == 410, (status, answer)


def test_a_store_moves_to_etcd_and_back_and_resource_versions_only_grow(start_server, own_etcd, tmp_path):
    server = start_server("one")
    for number in range(5):
        server.rest("POST", MAPS, a_map(f"m{number}", number=str(number)))
    uids = {item["metadata"]["uid"] for item in server.rest("GET", MAPS)["items"]}
    newest = int(server.rest("GET", MAPS)["metadata"]["resourceVersion"])
    server.stop()
    url = own_etcd.url()
    podwire("backup", tmp_path / "one.backup", "--data-dir", server.data_dir)
    podwire("restore", tmp_path / "one.backup", "--store", url, "--bump-revision", "0")

    second = start_server("two", store=url)
    created = second.rest("POST", MAPS, a_map("in-etcd"))
    assert int(created["metadata"]["resourceVersion"]) > newest
    listed = second.rest("GET", MAPS)
    assert {item["metadata"]["uid"] for item in listed["items"]} == {*uids, created["metadata"]["uid"]}
    second.rest("PUT", f"{MAPS}/m1", {**a_map("m1", number="one"), "apiVersion": "v1", "kind": "ConfigMap"})
    newest = int(second.rest("GET", MAPS)["metadata"]["resourceVersion"])
    podwire("backup", tmp_path / "two.backup", "--kubeconfig", second.kubeconfig)
    second.stop()

    podwire("restore", tmp_path / "two.backup", "--data-dir", tmp_path / "three", "--bump-revision", "0")
    third = start_server("three")
    assert third.rest("GET", f"{MAPS}/m1")["data"] == {"number": "one"}
    created = third.rest("POST", MAPS, a_map("in-sqlite"))
    assert int(created["metadata"]["resourceVersion"]) > newest


def test_only_those_may_save_a_backup_who_may_read_everything(start_server, tmp_path):
    server = start_server()
    status, answer = server.ask("GET", "/podwire/backup", **{"Impersonate-User": "somebody"})
    assert status == 403, answer


def test_a_damaged_file_restores_nothing(tmp_path):
    file = tmp_path / "state.backup"
    file.write_bytes(b"podwire backup 1\n\0\0\0")
    assert "it is cut short; nothing was restored" in refused("restore", file, "--data-dir", tmp_path / "new")
    assert not (tmp_path / "new/store/store.db").exists()
