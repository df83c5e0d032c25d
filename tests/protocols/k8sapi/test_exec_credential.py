"""Credential plugins: what they are asked, and which answers are usable."""

import json

import pytest

from podwire.protocols.k8sapi.exec_credential import (
    VERSIONS,
    BadCredential,
    Credential,
    ExecPlugin,
    exec_info,
    read_credential,
)

V1 = VERSIONS[0]


def answer(version=V1, **status) -> bytes:
    return json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status}).encode()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_plugin_receives_the_cluster_if_it_asks_for_it(version):
    cluster = {"server": "https://h"}
    curious = ExecPlugin(command="a", api_version=version, provide_cluster_info=True, cluster_config=b'{"a":1}')
    assert json.loads(exec_info(curious, interactive=True, cluster=cluster)) == {
        "apiVersion": version,
        "kind": "ExecCredential",
        "spec": {"interactive": True, "cluster": {"server": "https://h", "config": {"a": 1}}},
    }
    plain = ExecPlugin(command="a", api_version=version)
    assert json.loads(exec_info(plain, interactive=False, cluster=cluster))["spec"] == {"interactive": False}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_credential_has_a_token_a_certificate_and_an_end(version):
    plugin = ExecPlugin(command="a", api_version=version)
    given = {"token": "t", "clientCertificateData": "c", "clientKeyData": "k"}
    output = answer(version, **given, expirationTimestamp="1970-01-01T01:00:00+01:00")
    assert read_credential(plugin, output) == Credential(token="t", certificate="c", key="k", expires=0.0)


@pytest.mark.parametrize(
    ("output", "reported"),
    [
        pytest.param(b"hush", "not JSON", id="no JSON"),
        pytest.param(b"\xffhush", "not", id="no text"),
        pytest.param(b'["hush"]', "not an ExecCredential", id="no object"),
        pytest.param(answer(VERSIONS[1], token="hush"), f"to use API version {V1}, plugin returned", id="version"),
        pytest.param(json.dumps({"apiVersion": V1, "kind": "ExecCredential"}).encode(), "status field", id="no status"),
        pytest.param(answer(), "didn't return a token or cert/key pair", id="nothing"),
        pytest.param(answer(clientKeyData="hush"), "only certificate or key", id="key alone"),
        pytest.param(answer(token="hush\r\nX: y"), "token with a line break", id="two lines"),
        pytest.param(answer(token="hush", expirationTimestamp="soon"), "not an ExecCredential", id="no time"),
        pytest.param(answer(token="hush", expirationTimestamp="2030-01-01T00:00:00"), "without a time zone", id="zone"),
        pytest.param(answer(token=["hush"]), "Expected `str`, got `array`", id="wrong type"),
    ],
)
def test_an_unusable_answer_is_rejected_without_repeating_it(output, reported):
    with pytest.raises(BadCredential) as caught:
        read_credential(ExecPlugin(command="a", api_version=V1), output)
    assert reported in str(caught.value)
    assert "hush" not in str(caught.value)
