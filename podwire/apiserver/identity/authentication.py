"""Authentication: by client certificate, else by bearer token, else anonymous.

Invalid credentials are refused (401); they never become the anonymous user.
"""

import hashlib
import logging
from collections.abc import Collection, Mapping
from typing import Protocol

from podwire.apiserver.identity.tokens import BadToken, Claims, LegacyClaims, Tokens
from podwire.apiserver.identity.users import (
    ANONYMOUS_USER,
    AUTHENTICATED,
    KUBELET_CLIENT,
    User,
    account_groups,
    component_node,
)
from podwire.protocols.k8sapi.server_side import Certificate, Request
from podwire.protocols.k8sapi.status import ApiError, Reason

__all__ = ["AccountLookup", "Authenticator", "User", "unauthorized"]

_log = logging.getLogger("podwire.apiserver.identity.authentication")

_EXTRA = "authentication.kubernetes.io/"


class AccountLookup(Protocol):
    """Looks up the objects that tokens depend on. An object counts by its uid: a later one of the same name is another
    one."""

    async def exists(self, namespace: str, name: str, uid: str) -> bool:
        """Returns whether the service account exists."""
        ...

    async def bound_exists(self, kind: str, namespace: str, name: str, uid: str) -> bool:
        """Returns whether the Pod, Secret or Node (which has no namespace) exists."""
        ...

    async def secret_has_token(self, namespace: str, name: str, token: str) -> bool:
        """Returns whether a Secret exists, is not being deleted, contains this token and is not marked as invalid."""
        ...


class TokenLookup(Protocol):
    """Looks up bootstrap tokens, which machines that join have."""

    async def user_of(self, text: str) -> User | None:
        """Returns None if a text does not have the form of such a token. Raises BadToken."""
        ...


class Authenticator:
    """Authenticates requests; `static` maps tokens of the operator to their users."""

    def __init__(
        self,
        tokens: Tokens,
        accounts: AccountLookup,
        static: Mapping[str, User] | None = None,
        bootstrap: TokenLookup | None = None,
    ) -> None:
        self._tokens = tokens
        self._accounts = accounts
        self._bootstrap = bootstrap
        self._static = {_digest(token): _authenticated(user) for token, user in (static or {}).items()}

    async def authenticate(self, request: Request) -> User:
        """Returns the user of a request, before impersonation. Raises ApiError: 401."""
        if request.certificate is not None and request.certificate.common_name:
            if request.certificate.common_name == KUBELET_CLIENT:
                _log.warning("refused the API server's own certificate for kubelets", extra={"path": request.path})
                raise unauthorized()
            return _certified(request.certificate)
        offered = request.headers.get("authorization")
        if offered is None:
            return ANONYMOUS_USER
        scheme, _, token = offered.strip().partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise unauthorized()
        try:
            return await self.authenticate_token(token.strip())
        except BadToken as error:
            _log.info("bearer token was refused", extra={"error": error.reason})
            raise unauthorized() from error

    async def authenticate_token(self, token: str, audiences: Collection[str] = ()) -> User:
        """Returns the user of a bearer token; token reviews may ask for other audiences. Raises BadToken."""
        if self._static and (user := self._static.get(_digest(token))) is not None:
            return user
        if self._bootstrap is not None and (joining := await self._bootstrap.user_of(token)) is not None:
            return joining
        claims = self._tokens.verify(token, audiences)
        if isinstance(claims, LegacyClaims):
            return await self._secret_account(claims, token)
        await self._check_exists(claims)
        return _account(claims)

    async def _secret_account(self, claims: LegacyClaims, token: str) -> User:
        if not await self._accounts.secret_has_token(claims.namespace, claims.secret, token):
            raise BadToken("its Secret is gone, has another token or is marked as invalid")
        if not await self._accounts.exists(claims.namespace, claims.name, claims.uid):
            raise BadToken("its service account is gone")
        return User(claims.sub, claims.uid, (*account_groups(claims.namespace), AUTHENTICATED))

    async def _check_exists(self, claims: Claims) -> None:
        private, account = claims.private, claims.private.serviceaccount
        if not await self._accounts.exists(private.namespace, account.name, account.uid):
            raise BadToken("its service account is gone")
        if claims.bound is None:
            return
        kind, named = claims.bound
        namespace = "" if kind == "Node" else private.namespace
        if not await self._accounts.bound_exists(kind, namespace, named.name, named.uid):
            raise BadToken(f"the {kind} that it is bound to is gone")


def unauthorized() -> ApiError:
    """Returns a 401 without a reason; the log has it."""
    return ApiError(Reason.UNAUTHORIZED, "Unauthorized")


def _authenticated(user: User) -> User:
    return User(user.name, user.uid, tuple(dict.fromkeys((*user.groups, AUTHENTICATED))), user.extra)


def _certified(certificate: Certificate) -> User:
    extra: dict[str, tuple[str, ...]] = {}
    if certificate.fingerprint:
        extra[f"{_EXTRA}credential-id"] = (f"X509SHA256={certificate.fingerprint}",)
    user = User(certificate.common_name, groups=(*certificate.organizations, AUTHENTICATED), extra=extra)
    if (node := component_node(user)) is not None:
        extra[f"{_EXTRA}node-name"] = (node,)
    return user


def _account(claims: Claims) -> User:
    private = claims.private
    extra = {f"{_EXTRA}credential-id": (f"JTI={claims.jti}",)}
    for kind, named in (("node", private.node), ("pod", private.pod)):
        if named is not None:
            extra[f"{_EXTRA}{kind}-name"] = (named.name,)
            extra[f"{_EXTRA}{kind}-uid"] = (named.uid,)
    return User(
        claims.sub,
        private.serviceaccount.uid,
        (*account_groups(private.namespace), AUTHENTICATED),
        extra,
    )


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
