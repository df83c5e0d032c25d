"""Kubeconfigs: what they say, what is refused, and that ours can be read back."""

import base64

import pytest
import yaml

from podwire.protocols.k8sapi.kubeconfig import Access, BadKubeconfig, Pem, in_cluster, parse, write_kubeconfig

PEM = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
DATA = base64.b64encode(PEM.encode()).decode()


def config(*, cluster: str = "", user: str = "", context: str = "", more: str = "current-context: c") -> str:
    return f"""
apiVersion: v1
kind: Config
clusters:
- name: k
  cluster: {{server: "https://10.0.0.1:6443/", {cluster}}}
users:
- name: u
  user: {{{user}}}
contexts:
- name: c
  context: {{cluster: k, user: u, {context}}}
- name: anonymous
  context: {{cluster: k}}
{more}
"""


def read(text: str, **options) -> Access:
    return parse(text, file="/home/me/.kube/config", **options)


def test_the_current_context_selects_cluster_and_user():
    access = read(
        config(
            cluster=f"certificate-authority-data: {DATA}, tls-server-name: kubernetes",
            user="client-certificate: certs/me.crt, client-key: /keys/me.key, token: secret",
            context="namespace: dev",
        )
    )
    assert access == Access(
        server="https://10.0.0.1:6443",
        namespace="dev",
        ca=Pem(text=PEM),
        certificate=Pem(file="/home/me/.kube/certs/me.crt"),
        key=Pem(file="/keys/me.key"),
        token="secret",
        server_name="kubernetes",
    )


def test_another_context_can_be_chosen_and_needs_no_user():
    assert read(config(user="token: secret"), context="anonymous").token == ""


def test_secrets_are_not_shown():
    access = read(config(user=f"token: hush, client-key-data: {DATA}"))
    assert "hush" not in repr(access)
    assert "AAAA" not in repr(access)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param(config(more=""), "current-context: is not set", id="no current context"),
        pytest.param(config(more="current-context: x"), "contexts: context 'x' not found", id="no such context"),
        pytest.param(
            config(context="cluster: x").replace("cluster: k, user", "user"),
            "clusters: cluster ",
            id="no cluster",
        ),
        pytest.param(config(user="exec: {command: aws}"), "users[u].user.exec: credential plugins", id="exec"),
        pytest.param(config(user="auth-provider: {name: gcp}"), "users[u].user.auth-provider", id="auth provider"),
        pytest.param(config(user="username: me, password: x"), "users[u].user.username: basic", id="password"),
        pytest.param(config(user="as: admin"), "users[u].user.as: impersonation", id="impersonation"),
        pytest.param(config(cluster="proxy-url: http://p"), "clusters[k].cluster.proxy-url: proxies", id="proxy"),
        pytest.param(config(user="token: 5"), "users[u].user.token: expected a string, got int", id="wrong type"),
        pytest.param(
            config(user="client-key-data: '!!'"),
            "users[u].user.client-key-data: is not base64-encoded PEM",
            id="bad data",
        ),
        pytest.param(
            config().replace("https://10.0.0.1:6443/", "10.0.0.1"),
            "clusters[k].cluster.server: '10.0.0.1' is no",
            id="no URL",
        ),
        pytest.param("a: [", "yaml: line", id="broken YAML"),
        pytest.param("[]", "expected one kubeconfig", id="not an object"),
        pytest.param("", "expected one kubeconfig", id="empty"),
    ],
)
def test_an_error_names_file_and_field(text, told):
    with pytest.raises(BadKubeconfig) as caught:
        read(text)
    assert str(caught.value).startswith("/home/me/.kube/config: ")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    "access",
    [
        Access(server="https://127.0.0.1:6443", ca=Pem(text=PEM), certificate=Pem(text=PEM), key=Pem(text=PEM)),
        Access(server="https://h", namespace="dev", ca=Pem(file="/ca"), token="t", server_name="kubernetes"),
        Access(server="http://h:8080", verify=False, token_file="/token"),
    ],
    ids=["inline", "files", "insecure"],
)
def test_a_written_kubeconfig_parses_to_the_same(access):
    text = write_kubeconfig(access)
    assert read(text) == access
    assert yaml.safe_load(text)["kind"] == "Config"


def test_a_pod_finds_its_server_in_the_environment():
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    access = in_cluster(environ, "dev\n", folder="/sa")
    assert access == Access(
        server="https://[fd00::1]:443", namespace="dev", ca=Pem(file="/sa/ca.crt"), token_file="/sa/token"
    )


def test_outside_a_pod_the_missing_variable_is_named():
    with pytest.raises(BadKubeconfig, match="KUBERNETES_SERVICE_HOST"):
        in_cluster({}, "")
