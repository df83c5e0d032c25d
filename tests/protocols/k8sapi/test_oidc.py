"""OIDC: ID tokens and how they are renewed."""

import base64
import json
from urllib.parse import parse_qs

import pytest

from podwire.protocols.k8sapi import oidc
from podwire.protocols.k8sapi.exec_credential import BadCredential
from podwire.protocols.k8sapi.oidc import OidcProvider

PROVIDER = OidcProvider(issuer="https://i/", client_id="c:d", client_secret="s", refresh_token="hush")


def jwt(**claims) -> str:
    return f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.x"


@pytest.mark.parametrize("expires", [1000, 1000.5])
def test_an_id_token_is_used_until_shortly_before_it_expires(expires):
    found = oidc.credential(OidcProvider(issuer="i", client_id="c", id_token=jwt(exp=expires)))
    assert found is not None
    assert found.expires == expires - oidc.EARLY_SECONDS
    assert oidc.credential(PROVIDER) is None


@pytest.mark.parametrize("token", ["hush", "a.b", "a.hush.c", jwt(), jwt(exp="hush"), jwt(exp=None)])
def test_a_token_without_an_end_is_rejected_without_repeating_it(token):
    with pytest.raises(BadCredential) as caught:
        oidc.expiry(token)
    assert "hush" not in str(caught.value)


def test_the_endpoint_is_discovered():
    assert PROVIDER.metadata_url == "https://i/.well-known/openid-configuration"
    assert oidc.token_endpoint(b'{"token_endpoint": "https://i/token"}') == "https://i/token"


@pytest.mark.parametrize("document", [b"", b"[]", b"{}", b'{"token_endpoint": 5}', b'{"token_endpoint": "file:///x"}'])
def test_a_document_without_an_endpoint_is_rejected(document):
    with pytest.raises(BadCredential, match="discovery document"):
        oidc.token_endpoint(document)


def test_a_client_identifies_itself_in_a_header_or_in_the_form():
    headers, form = oidc.refresh_request(PROVIDER, in_header=True)
    assert base64.b64decode(headers["Authorization"].removeprefix("Basic ")) == b"c%3Ad:s"
    assert parse_qs(form.decode()) == {"grant_type": ["refresh_token"], "refresh_token": ["hush"]}
    headers, form = oidc.refresh_request(PROVIDER, in_header=False)
    assert "Authorization" not in headers
    assert parse_qs(form.decode())["client_secret"] == ["s"]


def test_a_refresh_token_is_kept_unless_there_is_a_new_one():
    assert oidc.renewed(PROVIDER, b'{"id_token": "n"}').refresh_token == "hush"
    assert oidc.renewed(PROVIDER, b'{"id_token": "n", "refresh_token": "r"}').refresh_token == "r"


@pytest.mark.parametrize("answer", [b"hush", b"{}", b'{"id_token": ""}'])
def test_an_answer_without_an_id_token_is_rejected(answer):
    with pytest.raises(BadCredential) as caught:
        oidc.renewed(PROVIDER, answer)
    assert "hush" not in str(caught.value)
