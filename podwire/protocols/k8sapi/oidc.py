"""The auth-provider `oidc` of a kubeconfig: an ID token, renewed with a refresh token. Pure.

No error repeats a token: they are secrets.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from podwire.protocols.k8sapi.exec_credential import BadCredential, Credential

EARLY_SECONDS = 10.0
"""An ID token is renewed so long before it expires."""
MAX_ANSWER = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcProvider:
    """An issuer of ID tokens, and the tokens that a user has from it."""

    issuer: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    id_token: str = field(default="", repr=False)
    refresh_token: str = field(default="", repr=False)
    ca_text: str = field(default="", repr=False)
    ca_file: str = ""
    """Neither: the system's CAs."""
    file: str = field(default="", compare=False)
    """The kubeconfig that has the user; new tokens are written to it."""
    user: str = field(default="", compare=False)

    @property
    def metadata_url(self) -> str:
        return self.issuer.removesuffix("/") + "/.well-known/openid-configuration"


def expiry(id_token: str) -> float:
    """Returns when an ID token expires, in seconds since the epoch; it is not verified. Raises BadCredential."""
    parts = id_token.split(".")
    if len(parts) != 3:
        raise BadCredential("id-token is not a JWT")
    try:
        claims = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"])
    except (binascii.Error, msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError):
        raise BadCredential("id-token has no readable time of expiry") from None


def credential(provider: OidcProvider) -> Credential | None:
    """Returns the ID token that the user has; None without one. Raises BadCredential."""
    if not provider.id_token:
        return None
    return Credential(token=provider.id_token, expires=expiry(provider.id_token) - EARLY_SECONDS)


def token_endpoint(document: bytes) -> str:
    """Returns the token endpoint of a discovery document. Raises BadCredential."""
    endpoint = _object(document, "the discovery document").get("token_endpoint")
    if not isinstance(endpoint, str) or not endpoint.startswith(("https://", "http://")):
        raise BadCredential("the discovery document doesn't contain a token_endpoint")
    return endpoint


def refresh_request(provider: OidcProvider, *, in_header: bool) -> tuple[dict[str, str], bytes]:
    """Returns headers and form of a refresh request. The client identifies itself in a header or in the form: servers
    differ (RFC 6749, 2.3.1)."""
    form = {"grant_type": "refresh_token", "refresh_token": provider.refresh_token}
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
    if in_header:
        pair = f"{quote(provider.client_id, safe='')}:{quote(provider.client_secret, safe='')}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    else:
        form["client_id"] = provider.client_id
        form |= {"client_secret": provider.client_secret} if provider.client_secret else {}
    return headers, urlencode(form).encode()


def renewed(provider: OidcProvider, answer: bytes) -> OidcProvider:
    """Returns the provider with the tokens of an answer to a refresh request. Raises BadCredential."""
    tokens = _object(answer, "the token response")
    id_token = tokens.get("id_token")
    if not isinstance(id_token, str) or not id_token:
        raise BadCredential(
            'token response did not contain an id_token, either the scope "openid" wasn\'t requested upon login, or '
            "the provider doesn't support id_tokens as part of the refresh response"
        )
    refresh_token = tokens.get("refresh_token")
    kept = refresh_token if isinstance(refresh_token, str) and refresh_token else provider.refresh_token
    return replace(provider, id_token=id_token, refresh_token=kept)


def _object(body: bytes, about: str) -> Mapping[str, Any]:
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        document = None
    if not isinstance(document, dict):
        raise BadCredential(f"{about} is not JSON object")
    return document
