"""A test of a controller, with an API server of its own: any client will do, here it is the official one."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import kubernetes
import pytest
import yaml

HERE = Path(__file__).parent


@pytest.fixture
def api(tmp_path: Path) -> Iterator[kubernetes.client.ApiClient]:
    """A server in memory, at a free port; gone with the test."""
    command = ["podwire", "apiserver", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0", "--store", "memory://"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert any("serving" in line for line in server.stderr or ())  # and the kubeconfig is written
        yield kubernetes.config.new_client_from_config(str(tmp_path / "kubeconfig"))
        server.terminate()


def test_a_ferry_goes_with_its_owner(api: kubernetes.client.ApiClient) -> None:
    kubernetes.utils.create_from_yaml(api, str(HERE / "ferries.yaml"))
    core, custom = kubernetes.client.CoreV1Api(api), kubernetes.client.CustomObjectsApi(api)
    ferries = ("harbour.example.com", "v1", "default", "ferries")
    owner = core.create_namespaced_config_map("default", {"metadata": {"name": "line"}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "line", "uid": owner.metadata.uid}
    ferry = yaml.safe_load((HERE / "ferry.yaml").read_text(encoding="utf-8"))
    ferry["metadata"]["ownerReferences"] = [reference]
    custom.create_namespaced_custom_object(*ferries, ferry)
    seen = custom.list_namespaced_custom_object(*ferries)["metadata"]["resourceVersion"]
    core.delete_namespaced_config_map("line", "default")
    events = kubernetes.watch.Watch().stream(
        custom.list_namespaced_custom_object, *ferries, resource_version=seen, timeout_seconds=60
    )
    assert any(each["type"] == "DELETED" for each in events)
