"""Decides who may use the page: the token, and the Host and Origin that a request names. Pure.

The link has the token once. The first answer moves it into a cookie that scripts cannot read and that is not sent from
other sites, and the page removes it from the address bar. A name that resolves to the loopback (DNS rebinding) is not
one of our hosts, and a page of another origin is refused before anything is looked at.
"""

import hmac
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie

from podwire.protocols.k8sapi.server_side import Request

TOKEN = "token"  # noqa: S105 - the name of a parameter
ACTION = "x-podwire-action"
"""The header of a request that changes something: a page of another origin cannot send it without asking."""


class Refused(Exception):
    """The request is not answered; knows the status."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass(slots=True, kw_only=True)
class Gate:
    token: str
    port: int = 0
    """Known once the server listens; nobody is let in before."""

    @property
    def hosts(self) -> frozenset[str]:
        return frozenset(f"{name}:{self.port}" for name in ("127.0.0.1", "localhost", "[::1]"))

    @property
    def cookie_name(self) -> str:
        """Browsers do not separate cookies by port, so the name does."""
        return f"podwire-ui-{self.port}"

    @property
    def cookie(self) -> str:
        return f"{self.cookie_name}={self.token}; Path=/; HttpOnly; SameSite=Strict"

    def link(self) -> str:
        return f"http://127.0.0.1:{self.port}/?{TOKEN}={self.token}"

    def check(self, request: Request) -> bool:
        """Returns whether the request has the token in its link, so that the answer sets the cookie. Raises Refused."""
        headers = request.headers
        if headers.get("host", "") not in self.hosts:
            raise Refused(421, "the Host header does not name this server")
        origin = headers.get("origin")
        if origin is not None and origin.removeprefix("http://") not in self.hosts:
            raise Refused(403, "requests of other origins are not answered")
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and request.path != "/":
            raise Refused(403, "requests of other sites are not answered")
        in_link = request.path == "/" and self._matches(request.option(TOKEN))
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        if not (in_link or self._matches(bearer) or self._matches(self._cookie_of(headers.get("cookie", "")))):
            raise Refused(401, "open the link that `podwire ui` printed: it has the token of this page")
        return in_link

    def check_action(self, request: Request) -> None:
        """Raises Refused for a change that the page itself did not ask for."""
        if request.headers.get("origin", "").removeprefix("http://") not in self.hosts or ACTION not in request.headers:
            raise Refused(403, "actions are taken by the page only")

    def _cookie_of(self, header: str) -> str:
        try:
            found = SimpleCookie(header).get(self.cookie_name)
        except CookieError:
            return ""
        return found.value if found is not None else ""

    def _matches(self, given: str) -> bool:
        return bool(given) and hmac.compare_digest(given.encode(), self.token.encode())
