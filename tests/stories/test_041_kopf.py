"""An operator written with kopf runs on our API server, as its author would start it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.eventually import eventually

OPERATOR = """
import kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.posting.loggers = True

@kopf.on.create("ponds.kopf.podwire.dev")
@kopf.on.update("ponds.kopf.podwire.dev", field="spec.ducks")
def fill(spec, name, patch, **_):
    if spec["ducks"] > 100:
        raise kopf.PermanentError("too many ducks")
    patch.status["ducks"] = spec["ducks"]
    return {"filled": True}

@kopf.on.delete("ponds.kopf.podwire.dev")
def drain(logger, **_):
    logger.info("pond is drained")
"""

DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "ponds.kopf.podwire.dev"},
    "spec": {
        "group": "kopf.podwire.dev",
        "scope": "Namespaced",
        "names": {"plural": "ponds", "singular": "pond", "kind": "Pond"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
PONDS = "/apis/kopf.podwire.dev/v1/namespaces/default/ponds"
EVENTS = "/api/v1/namespaces/default/events"
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture
def operated(start_server, tmp_path):
    """A server with the definition, and the operator that runs on it."""
    server = start_server()
    server.rest("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION)
    eventually(lambda: server.ask("GET", PONDS)[0] == 200)
    program = tmp_path / "operator.py"
    program.write_text(OPERATOR)
    with (tmp_path / "operator.log").open("wb") as log:
        operator = subprocess.Popen(
            [Path(sys.executable).with_name("kopf"), "run", "--namespace", "default", "--standalone", program],
            env={"KUBECONFIG": str(server.kubeconfig), "PATH": "/usr/bin", "HOME": str(tmp_path)},
            stdout=log,
            stderr=log,
        )
    yield server, tmp_path / "operator.log"
    operator.terminate()
    assert operator.wait(timeout=30) in (0, -15)


def status(server, name: str) -> dict:
    return server.rest("GET", f"{PONDS}/{name}").get("status", {})


def test_an_operator_handles_creation_change_refusal_and_deletion(operated):
    server, log = operated
    pond = {"apiVersion": "kopf.podwire.dev/v1", "kind": "Pond", "metadata": {"name": "small"}, "spec": {"ducks": 3}}
    server.rest("POST", PONDS, pond)
    eventually(lambda: status(server, "small").get("ducks") == 3, explain=log.read_text)
    assert status(server, "small")["fill"] == {"filled": True}

    server.rest("PATCH", f"{PONDS}/small", {"spec": {"ducks": 5}}, **MERGE)
    eventually(lambda: status(server, "small").get("ducks") == 5)

    server.rest("PATCH", f"{PONDS}/small", {"spec": {"ducks": 101}}, **MERGE)
    eventually(lambda: any("too many ducks" in event["message"] for event in server.rest("GET", EVENTS)["items"]))

    server.rest("DELETE", f"{PONDS}/small")
    eventually(lambda: server.ask("GET", f"{PONDS}/small")[0] == 404)
    assert "pond is drained" in log.read_text()
