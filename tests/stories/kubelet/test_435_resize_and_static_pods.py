"""On a real runtime: a container is resized while it runs, and a static pod runs and has a mirror."""

import json

import pytest


@pytest.fixture(scope="module")
def manifests(tmp_path_factory):
    return tmp_path_factory.mktemp("manifests")


@pytest.fixture(scope="module")
def node(template, running, manifests):
    with running(template, "--pod-manifest-path", manifests) as made:
        yield made


def resources(cpu, memory):
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu, "memory": memory}}


def test_a_container_is_resized_while_it_runs(node, pod, container, name):
    node.make(pod(name, containers=[container("c", "sleep 3600", resources=resources("100m", "64Mi"))]))
    node.wait(f"pod/{name}", "condition=Ready")
    patch = {"spec": {"containers": [{"name": "c", "resources": resources("200m", "96Mi")}]}}
    node(f"patch pod {name} --subresource resize --patch '{json.dumps(patch)}'")

    def reported():
        (status,) = node.get(f"pod {name}")["status"]["containerStatuses"]
        return status["resources"] == resources("200m", "96Mi") and status["restartCount"] == 0

    node.eventually(reported)


def test_a_static_pod_has_a_mirror_with_logs(node, pod, manifests):
    manifest = pod("fixed", "echo I am static; exec sleep 3600")
    (manifests / "fixed.json").write_text(json.dumps(manifest))
    (host,) = (item["metadata"]["name"] for item in node.get("nodes")["items"])
    node.eventually(lambda: f"pod/fixed-{host}" in node("get pods -o name").split())
    node.wait(f"pod/fixed-{host}", "condition=Ready")
    assert node(f"logs fixed-{host}") == "I am static\n"
    assert node.exec(f"fixed-{host}", "echo hello") == "hello\n"
    (manifests / "fixed.json").unlink()
    node(f"wait pod/fixed-{host} --for=delete --timeout=60s")
