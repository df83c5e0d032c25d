"""Credentials of a registry: passwords, and bearer tokens that a token server issues for them.

A registry answers 401 with `Bearer realm=…,service=…`. The client asks the realm for a token, with its password (GET)
or with its identity token (POST, OAuth 2), and repeats the request with it.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode, urlsplit

import msgspec

from podwire.protocols.distribution.challenges import Challenge

CLIENT_ID = "podwire"


class BadToken(ValueError):
    """The token server's answer or address is invalid."""


@dataclass(frozen=True, slots=True)
class Login:
    """Credentials for one registry; all empty is anonymous. Never shown."""

    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)
    registry_token: str = field(default="", repr=False)

    @property
    def basic(self) -> str:
        """The value of the header Authorization; empty without a user name."""
        if not self.username:
            return ""
        return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()


@dataclass(frozen=True, slots=True)
class Token:
    """One request for a token: a GET, or a POST with a form."""

    method: str
    url: str
    headers: Sequence[tuple[str, str]] = field(default=(), repr=False)
    body: bytes = field(default=b"", repr=False)


class _Answer(msgspec.Struct):
    token: str = ""
    access_token: str = ""


def token_request(challenge: Challenge, repository: str, login: Login) -> Token:
    """Returns the request for a token that may pull from a repository. Raises BadToken."""
    realm = challenge.parameters.get("realm", "")
    url = urlsplit(realm)
    if url.scheme not in ("http", "https") or not url.hostname or url.username or url.fragment:
        raise BadToken(f"the realm {realm[:200]!r} is not a URL of a token server")
    scope = challenge.parameters.get("scope") or f"repository:{repository}:pull"
    service = challenge.parameters.get("service", "")
    if login.identity_token:
        form = {
            "grant_type": "refresh_token",
            "service": service,
            "client_id": CLIENT_ID,
            "scope": scope,
            "refresh_token": login.identity_token,
        }
        content_type = ("Content-Type", "application/x-www-form-urlencoded")
        return Token("POST", realm, [content_type], urlencode(form).encode())
    query = urlencode([("service", service)] * bool(service) + [("scope", scope)])
    headers = [("Authorization", login.basic)] if login.basic else []
    return Token("GET", f"{realm}{'&' if url.query else '?'}{query}", headers)


def parse_token(body: bytes) -> str:
    """Returns the bearer token of an answer. Raises BadToken."""
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise BadToken("the token server's answer is not JSON with a token") from error
    token = answer.token or answer.access_token
    if not token or not token.isascii() or any(letter.isspace() for letter in token):
        raise BadToken("the token server's answer has no token")
    return token
