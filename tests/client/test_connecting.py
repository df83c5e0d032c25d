"""Finding a cluster."""

import json
from dataclasses import replace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from podwire.client import Api, ApiError, BadKubeconfig, ClientError, connect
from podwire.client.connecting import find_access
from podwire.protocols.k8sapi.exec_credential import ExecPlugin, InteractiveMode
from podwire.protocols.k8sapi.kubeconfig import Access, Impersonation, write_kubeconfig
from podwire.transports import credentials, http_client


@pytest.fixture
def places(tmp_path):
    """A kubeconfig at each place; returns their paths."""
    for name in ("given", "named", "up"):
        (tmp_path / name).write_text(write_kubeconfig(Access(server=f"https://{name}")))
    (tmp_path / "account").mkdir()
    (tmp_path / "account/token").write_text("t")
    (tmp_path / "account/namespace").write_text("dev")
    return tmp_path


IN_POD = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.mark.parametrize(
    ("given", "environ", "account", "server"),
    [
        pytest.param("given", {"KUBECONFIG": "named", **IN_POD}, "account", "https://given", id="given"),
        pytest.param(None, {"KUBECONFIG": "named", **IN_POD}, "account", "https://named", id="KUBECONFIG"),
        pytest.param(None, {"KUBECONFIG": "missing", **IN_POD}, "account", "https://[fd00::1]:443", id="in a pod"),
        pytest.param(None, {"KUBECONFIG": "missing", **IN_POD}, "missing", "https://up", id="podwire up"),
        pytest.param(None, {"KUBECONFIG": "missing"}, "account", "https://up", id="outside a pod"),
    ],
)
def test_the_first_place_that_has_a_cluster_is_used(places, given, environ, account, server):
    named = {"KUBECONFIG": str(places / environ["KUBECONFIG"])}
    access = find_access(
        places / given if given else None,
        environ={**environ, **named},
        service_account=str(places / account),
        up=str(places / "up"),
    )
    assert access.server == server


def test_without_any_cluster_the_places_are_named(tmp_path):
    with pytest.raises(BadKubeconfig, match=r"/missing: does not exist, this is not a pod .*/up does not exist"):
        find_access(environ={"KUBECONFIG": f"{tmp_path}/missing"}, up=f"{tmp_path}/up")


async def test_a_plugin_is_asked_before_the_first_call(tmp_path):
    plugin = ExecPlugin(
        command="no-such-plugin",
        api_version="client.authentication.k8s.io/v1",
        interactive_mode=InteractiveMode.NEVER,
    )
    path = tmp_path / "config"
    path.write_text(write_kubeconfig(Access(server="https://127.0.0.1:1", plugin=plugin)))
    with pytest.raises(ClientError, match="no-such-plugin not found"):
        async with connect(path):
            pass


async def test_a_pod_is_known_by_its_service_account(server, tmp_path):
    async with connect(server.kubeconfig) as admin:
        await admin.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
        (tmp_path / "token").write_text(await admin.token("default"))
    (tmp_path / "namespace").write_text("default")
    (tmp_path / "ca.crt").write_text(credentials.load(server.kubeconfig).ca.text)
    host, _, port = server.url.removeprefix("https://").rpartition(":")
    access = find_access(
        environ={"KUBECONFIG": "/missing", "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port},
        service_account=str(tmp_path),
    )
    async with http_client.opened(access) as http:
        with pytest.raises(ApiError, match='User "system:serviceaccount:default:default" cannot get'):
            await Api(http, access.namespace).get("v1", "Pod", "web")


async def test_a_certificate_of_a_plugin_is_presented_to_the_server(server, tmp_path):
    admin = credentials.load(server.kubeconfig)
    given = {
        "clientCertificateData": credentials.pem_text(admin.certificate, "client-certificate"),
        "clientKeyData": credentials.pem_text(admin.key, "client-key"),
    }
    version = "client.authentication.k8s.io/v1beta1"
    answer = {"apiVersion": version, "kind": "ExecCredential", "status": given}
    (tmp_path / "answer").write_text(json.dumps(answer))
    plugin = ExecPlugin(command="cat", args=(str(tmp_path / "answer"),), api_version=version)
    path = tmp_path / "config"
    path.write_text(write_kubeconfig(Access(server=admin.server, ca=admin.ca, plugin=plugin)))
    async with connect(path) as api:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {}}
        user = (await api.create(review))["status"]["userInfo"]
    assert "system:masters" in user["groups"]
    [credential] = user["extra"]["authentication.kubernetes.io/credential-id"]
    certificate = x509.load_pem_x509_certificate(given["clientCertificateData"].encode())
    assert credential == f"X509SHA256={certificate.fingerprint(hashes.SHA256()).hex()}"


async def test_a_user_is_impersonated_by_the_server(server, tmp_path):
    admin = credentials.load(server.kubeconfig)
    act_as = Impersonation(user="jane", uid="7", groups=("a", "b"), extra=(("example.com/team", ("x", "z")),))
    path = tmp_path / "config"
    path.write_text(write_kubeconfig(replace(admin, impersonate=act_as)))
    async with connect(path) as api:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {}}
        user = (await api.create(review))["status"]["userInfo"]
    assert (user["username"], user["uid"]) == ("jane", "7")
    assert set(user["groups"]) == {"a", "b", "system:authenticated"}
    assert user["extra"] == {"example.com/team": ["x", "z"]}
