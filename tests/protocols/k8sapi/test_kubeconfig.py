"""Kubeconfigs: what they say, what is refused, and that ours can be read back."""

import base64

import pytest
import yaml

from podwire.protocols.k8sapi.exec_credential import ExecPlugin, InteractiveMode
from podwire.protocols.k8sapi.kubeconfig import (
    Access,
    BadKubeconfig,
    Impersonation,
    Pem,
    in_cluster,
    merge,
    parse,
    write_kubeconfig,
)
from podwire.protocols.k8sapi.oidc import OidcProvider

V1, V1BETA1 = "client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"
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


@pytest.mark.parametrize(
    "user",
    [
        f"token: hush, client-key-data: {DATA}",
        "username: me, password: hush",
        f"exec: {{command: a, apiVersion: {V1BETA1}, args: [hush], env: [{{name: A, value: hush}}]}}",
        "auth-provider: {name: oidc, config: {idp-issuer-url: i, client-id: c, client-secret: hush, id-token: hush}}",
    ],
    ids=["token", "password", "plugin", "OIDC"],
)
def test_secrets_are_not_shown(user):
    access = read(config(user=user, cluster="proxy-url: 'http://me:hush@proxy'"))
    assert "hush" not in repr(access)
    assert "AAAA" not in repr(access)


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        pytest.param(config(more=""), "current-context: is not set", id="no current context"),
        pytest.param(config(more="current-context: x"), "contexts: context 'x' not found", id="no such context"),
        pytest.param(
            config(context="cluster: x").replace("cluster: k, user", "user"),
            "clusters: cluster ",
            id="no cluster",
        ),
        pytest.param(
            config(user="auth-provider: {name: gcp}"),
            "users[u].user.auth-provider.name: no Auth Provider found for name 'gcp'",
            id="auth provider",
        ),
        pytest.param(
            config(user="auth-provider: {name: oidc}"),
            "users[u].user.auth-provider.config.idp-issuer-url: is missing",
            id="no issuer",
        ),
        pytest.param(
            config(user="username: me, token: x"), "users[u].user.username: more than one", id="token and password"
        ),
        pytest.param(config(user="as-groups: [a]"), "users[u].user.as: requesting uid, groups", id="nobody to be"),
        pytest.param(config(user="as: a, as-groups: b"), "as-groups: expected a list of strings", id="no list"),
        pytest.param(
            config(user='as: "a\\nX-Other: 1"'), "users[u].user.as: must not contain line breaks", id="two lines"
        ),
        pytest.param(
            config(cluster="proxy-url: socks5://p"),
            "clusters[k].cluster.proxy-url: SOCKS proxies are not supported by podwire",
            id="SOCKS",
        ),
        pytest.param(config(cluster="proxy-url: ftp://p"), "proxy-url: unsupported scheme 'ftp'", id="proxy scheme"),
        pytest.param(config(cluster="proxy-url: 'http://'"), "proxy-url: names no host", id="proxy host"),
        pytest.param(
            config(cluster="insecure-skip-tls-verify: perhaps"), "expected true or false, got str", id="no boolean"
        ),
        pytest.param(
            config().replace("- name: anonymous", "- name: c"), "contexts: duplicate name 'c' in list", id="twice"
        ),
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
def test_an_error_names_file_and_field(text, reported):
    with pytest.raises(BadKubeconfig) as caught:
        read(text)
    assert str(caught.value).startswith("/home/me/.kube/config: ")
    assert reported in str(caught.value)


def test_a_plugin_is_read_with_a_path_relative_to_the_kubeconfig():
    wanted = "apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command"
    text = config(
        user=f"exec: {{{wanted}: bin/login, args: [a], env: [{{name: B, value: c}}]}}",
        cluster="extensions: [{name: client.authentication.k8s.io/exec, extension: {region: x}}]",
    )
    assert read(text).plugin == ExecPlugin(
        command="/home/me/.kube/bin/login",
        api_version=V1,
        args=("a",),
        env=(("B", "c"),),
        interactive_mode=InteractiveMode.NEVER,
        cluster_config=b'{"region":"x"}',
    )
    on_the_path = read(config(user=f"exec: {{{wanted}: login}}")).plugin
    assert on_the_path is not None
    assert on_the_path.command == "login"


@pytest.mark.parametrize(
    ("plugin", "reported"),
    [
        pytest.param("command: a", "exec.apiVersion: is missing", id="no version"),
        pytest.param("command: a, apiVersion: v1", "exec.apiVersion: invalid apiVersion 'v1'", id="wrong version"),
        pytest.param(f"command: a, apiVersion: {V1}", "exec.interactiveMode: must be specified", id="no mode"),
        pytest.param(f"apiVersion: {V1BETA1}", "exec.command: is missing", id="no command"),
        pytest.param(
            f"command: a, apiVersion: {V1BETA1}, interactiveMode: Often", "invalid interactiveMode 'Often'", id="mode"
        ),
        pytest.param(f"command: a, apiVersion: {V1BETA1}, env: [{{value: x}}]", "env[0].name: is missing", id="env"),
    ],
)
def test_an_unusable_plugin_names_its_field(plugin, reported):
    with pytest.raises(BadKubeconfig) as caught:
        read(config(user=f"exec: {{{plugin}}}"))
    assert reported in str(caught.value)


@pytest.mark.parametrize("fixed", ["token: t", "tokenFile: t", "username: u", "client-certificate: c, client-key: k"])
def test_a_plugin_is_not_asked_for_what_the_kubeconfig_has(fixed):
    assert read(config(user=f"exec: {{command: a, apiVersion: {V1BETA1}}}, {fixed}")).plugin is None


def test_a_plugin_and_a_provider_exclude_each_other():
    provider = "auth-provider: {name: oidc, config: {idp-issuer-url: i, client-id: c}}"
    with pytest.raises(BadKubeconfig, match="in combination with an exec plugin"):
        read(config(user=f"exec: {{command: a, apiVersion: {V1BETA1}}}, {provider}"))


def test_impersonation_becomes_headers():
    extra = "as-user-extra: {example.com/a%: [x, z]}"
    access = read(config(user=f"as: admin, as-uid: '7', as-groups: [b, c], {extra}"))
    assert access.impersonate.headers() == [
        ("Impersonate-User", "admin"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Group", "c"),
        ("Impersonate-Extra-example.com%2Fa%25", "x"),
        ("Impersonate-Extra-example.com%2Fa%25", "z"),
    ]


def test_of_several_kubeconfigs_the_first_with_an_entry_wins():
    first = config(user="client-certificate: me.crt", more="")
    second = config(user="token: other", context="namespace: other").replace("name: anonymous", "name: extra")
    access = merge([("/one/config", first), ("/two/config", second)])
    assert (access.certificate.file, access.token, access.namespace) == ("/one/me.crt", "", "default")
    assert access.files == ("/one/config", "/two/config")
    assert merge([("/one/config", first), ("/two/config", second)], context="extra").server == "https://10.0.0.1:6443"


@pytest.mark.parametrize(
    "access",
    [
        Access(server="https://127.0.0.1:6443", ca=Pem(text=PEM), certificate=Pem(text=PEM), key=Pem(text=PEM)),
        Access(server="https://h", namespace="dev", ca=Pem(file="/ca"), token="t", server_name="kubernetes"),
        Access(server="http://h:8080", verify=False, token_file="/token"),
        Access(
            server="https://h",
            proxy="http://me:secret@proxy:3128",
            username="me",
            password="secret",
            impersonate=Impersonation(user="a", uid="1", groups=("b", "c"), extra=(("k", ("v", "w")),)),
        ),
        Access(
            server="https://h",
            plugin=ExecPlugin(
                command="aws",
                api_version=V1,
                args=("a",),
                env=(("B", "c"),),
                interactive_mode=InteractiveMode.NEVER,
                provide_cluster_info=True,
                cluster_config=b'{"region":"x"}',
                install_hint="install it",
            ),
        ),
        Access(
            server="https://h",
            oidc=OidcProvider(
                issuer="https://i", client_id="c", client_secret="s", id_token="t", refresh_token="r", ca_text=PEM
            ),
        ),
    ],
    ids=["inline", "files", "insecure", "other users", "plugin", "OIDC"],
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
