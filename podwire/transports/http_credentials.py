"""The server and the identity of an HTTP client: from files that others rotate, a credential plugin, an OIDC issuer."""

import asyncio
import logging
import ssl
import time
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import urlencode

from aiohttp import encode_basic_auth
from multidict import CIMultiDict
from yarl import URL

from podwire.protocols.k8sapi.client_side import NoCredentials
from podwire.protocols.k8sapi.client_side.http import Query
from podwire.protocols.k8sapi.exec_credential import Credential
from podwire.protocols.k8sapi.kubeconfig import Access, BadKubeconfig, Pem
from podwire.protocols.k8sapi.oidc import OidcProvider
from podwire.transports import oidc_tokens
from podwire.transports.credentials import CredentialFiles, ssl_context, token_source
from podwire.transports.exec_plugin import run_plugin

log = logging.getLogger(__name__)

CHECK_SECONDS = 1.0
"""How often a client looks for new credentials; only when it sends requests."""


class HttpCredentials:
    """As the files and the plugin of an access have them now.

    A connection is used only by requests with the context with which it was made. So a new context means new
    connections, and the old ones are closed when they have been idle for a while.

    Credentials from a plugin or an issuer are kept until they expire or, of a plugin, until the server rejects them.
    However many requests wait for new ones, they are asked for once; a request that gives up does not end that.
    """

    def __init__(self, access: Access) -> None:
        """Raises BadKubeconfig."""
        self._files = CredentialFiles(access)
        self._checked = time.monotonic()
        self._issued: Credential | None = None
        self._issuing: asyncio.Task[None] | None = None
        self._oidc: OidcProvider | None = None
        self._use(access)

    def _use(self, access: Access) -> None:
        self.context: ssl.SSLContext | bool = ssl_context(access) or True
        self.server = access.server
        self.server_name = access.server_name or None
        # A password in the URL would be repeated by errors.
        proxy = URL(access.proxy) if access.proxy else None
        self.proxy = proxy.with_user(None) if proxy is not None else None
        self.proxy_headers: dict[str, str] = {}
        if proxy is not None and proxy.user:
            self.proxy_headers["Authorization"] = encode_basic_auth(proxy.user, proxy.password or "")
        self._access = access
        self._issued, self._oidc = None, access.oidc
        self._token = token_source(access)
        self._fixed = access.impersonate.headers()
        self._basic = ""
        if access.username or access.password:
            self._basic = encode_basic_auth(access.username, access.password)

    def url(self, path: str, query: Query) -> str:
        return f"{self.server}{path}?{urlencode(query)}" if query else f"{self.server}{path}"

    def headers(self, headers: Mapping[str, str] | None = None) -> CIMultiDict[str]:
        """Returns these headers of a request and those that identify the caller."""
        sent = CIMultiDict(headers or {})
        issued = self._issued
        if token := issued.token if issued is not None else self._token():
            sent["Authorization"] = f"Bearer {token}"
        elif self._basic:
            sent["Authorization"] = self._basic
        sent.extend(self._fixed)
        return sent

    async def prepare(self) -> Credential | None:
        """Looks for new credentials before a request; returns those that a plugin gave. Raises NoCredentials.

        Files are looked at once a second at most, and what they had is kept while the new ones are not usable.
        """
        self._refresh()
        access = self._access
        if access.plugin is None and self._oidc is None:
            return None
        if not _valid(self._issued):
            await self._issue()
        return self._issued if access.plugin is not None else None

    async def renew(self, rejected: Credential | None) -> bool:
        """Whether there are other credentials than the rejected ones, perhaps by now. Raises NoCredentials."""
        if rejected is None:
            return False
        if self._issued is rejected:
            await self._issue()
        return True

    async def aclose(self) -> None:
        if self._issuing is not None:
            self._issuing.cancel()
            await asyncio.wait({self._issuing})

    def _refresh(self) -> None:
        now = time.monotonic()
        if now - self._checked < CHECK_SECONDS:
            return
        self._checked = now
        try:
            if (access := self._files.changed()) is not None:
                self._use(access)
        except BadKubeconfig as error:
            log.warning("cannot use new credentials", extra={"error": str(error)})

    async def _issue(self) -> None:
        if self._issuing is None:
            self._issuing = asyncio.create_task(self._ask())
            self._issuing.add_done_callback(self._asked)
        await asyncio.shield(self._issuing)

    def _asked(self, task: "asyncio.Task[None]") -> None:
        self._issuing = None
        if not task.cancelled():
            task.exception()  # raised by those that wait, if any still do

    async def _ask(self) -> None:
        access = self._access
        try:
            if access.plugin is not None:
                issued = await run_plugin(access, access.plugin)
                if issued.certificate:
                    with_key = replace(access, certificate=Pem(issued.certificate), key=Pem(issued.key))
                    self.context = ssl_context(with_key) or True
                self._issued = issued
            elif self._oidc is not None:
                found = oidc_tokens.credential(self._oidc)
                if not _valid(found):
                    self._oidc = await oidc_tokens.renew_tokens(self._oidc)
                    found = oidc_tokens.credential(self._oidc)
                self._issued = found
        except BadKubeconfig as error:
            raise NoCredentials(str(error)) from error


def _valid(credential: Credential | None) -> bool:
    return credential is not None and (credential.expires is None or time.time() < credential.expires)
