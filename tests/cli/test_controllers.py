"""`podwire controllers` beside an API server that runs none."""

import asyncio
import base64

import pytest

from podwire.controllers.kinds import CONFIG_MAPS, DEFINITIONS, NAMESPACES, SECRETS, SERVICE_ACCOUNTS
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.status import ApiError
from podwire.transports.credentials import load
from podwire.transports.http_client import connect
from tests.eventually import eventually_async


@pytest.fixture
def server(daemon, tmp_path):
    """An API server without controllers; its kubeconfig."""
    server = daemon("apiserver", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0", "--no-controllers")
    server.wait_for("serving")
    return str(tmp_path / "kubeconfig")


@pytest.fixture
async def api(server):
    async with connect(load(server)) as http:
        yield Client(http)


async def become(expected: bool, look) -> None:
    """Waits until an object exists, or does not exist any more."""

    async def condition() -> bool:
        return await exists(look) is expected

    await eventually_async(condition)


async def exists(look) -> bool:
    try:
        await look()
    except ApiError as error:
        if error.code != 404:
            raise
        return False
    return True


async def test_a_definition_is_deleted_with_its_instances_where_only_a_stock_manager_runs(api):
    """It is the API server's own work in upstream: no kube-controller-manager does it."""
    schema = {"openAPIV3Schema": {"type": "object"}}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": schema}]
    names = {"kind": "Boat", "plural": "boats"}
    spec = {"group": "harbour.example.com", "scope": "Namespaced", "names": names, "versions": versions}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "boats.harbour.example.com"},
        "spec": spec,
    }
    await api.create(definition)
    boat = {"apiVersion": "harbour.example.com/v1", "kind": "Boat", "metadata": {"name": "a", "namespace": "default"}}

    await become(True, lambda: api.find("harbour.example.com/v1", "Boat"))
    await api.create(boat)
    await api.delete(DEFINITIONS, "boats.harbour.example.com")
    await become(False, lambda: api.get(DEFINITIONS, "boats.harbour.example.com"))


async def test_controllers_create_the_objects_of_a_new_namespace(server, api, daemon):
    await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    await asyncio.sleep(0.3)
    assert not await exists(lambda: api.get(SERVICE_ACCOUNTS, "default", "shop"))

    working = daemon("controllers", "--kubeconfig", server)
    working.wait_for("are running")
    await become(True, lambda: api.get(SERVICE_ACCOUNTS, "default", "shop"))
    await become(True, lambda: api.get(CONFIG_MAPS, "kube-root-ca.crt", "shop"))
    body = await api.get(CONFIG_MAPS, "kube-root-ca.crt", "shop")
    assert body["data"]["ca.crt"] == load(server).ca.text

    await api.delete(NAMESPACES, "shop")
    await become(False, lambda: api.get(NAMESPACES, "shop"))
    assert working.stop() == 0


async def test_controllers_sign_with_the_keys_that_they_are_given(server, api, daemon, tmp_path):
    metadata = {"name": "robot", "namespace": "default"}
    await api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    marked = {**metadata, "annotations": {"kubernetes.io/service-account.name": "robot"}}
    type_ = "kubernetes.io/service-account-token"
    await api.create({"apiVersion": "v1", "kind": "Secret", "type": type_, "metadata": marked})
    without = daemon("controllers", "--kubeconfig", server)
    without.wait_for("controllers=serviceaccount-token-controller")
    assert without.stop() == 0

    keys = tmp_path / "pki"
    authority = ("--cluster-signing-cert-file", f"{keys}/ca.crt", "--cluster-signing-key-file", f"{keys}/ca.key")
    working = daemon(
        "controllers", "--kubeconfig", server, *authority, "--service-account-private-key-file", f"{keys}/sa.key"
    )
    token = await eventually_async(lambda: _token(api))
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    status = (await api.create(review))["status"]
    assert status["user"]["username"] == "system:serviceaccount:default:robot"
    assert working.stop() == 0


async def _token(api):
    data = (await api.get(SECRETS, "robot", "default")).get("data") or {}
    return base64.b64decode(data.get("token") or "").decode()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--cluster-signing-cert-file", "ca.crt"), "--cluster-signing-key-file must be given together"),
        (("--service-account-private-key-file", "ca.crt"), "ca.crt: cannot parse the private key"),
        (("--service-account-private-key-file", "none"), "none"),
    ],
)
def test_keys_that_cannot_be_used_are_named(podwire, server, tmp_path, options, error):
    option, file = options
    done = podwire("controllers", "--kubeconfig", server, option, str(tmp_path / "pki" / file))
    assert done.returncode == 1
    assert error in done.stderr
    assert "Traceback" not in done.stderr


def test_a_kubeconfig_that_is_not_there_is_named(podwire, tmp_path):
    done = podwire("controllers", "--kubeconfig", str(tmp_path / "none"))
    assert (done.returncode, done.stderr) == (1, f"podwire controllers: {tmp_path}/none: No such file or directory\n")


def test_a_ca_file_that_is_not_there_is_named(podwire, server, tmp_path):
    done = podwire("controllers", "--kubeconfig", server, "--root-ca-file", str(tmp_path / "none"))
    assert done.returncode == 1
    assert str(tmp_path / "none") in done.stderr
    assert "Traceback" not in done.stderr


def test_a_context_that_the_kubeconfig_lacks_is_named(podwire, server):
    done = podwire("controllers", "--kubeconfig", server, "--context", "other")
    assert done.returncode == 1
    assert "context 'other' not found" in done.stderr


def test_the_kubeconfig_is_asked_for(podwire):
    done = podwire("controllers")
    assert done.returncode == 2
    assert "--kubeconfig" in done.stderr
