"""Authenticates machines that join by a bootstrap token: `system:bootstrap:ID`, in the groups that its Secret names."""

import hmac
from dataclasses import dataclass

import msgspec

from podwire.apiserver.identity.tokens import BadToken
from podwire.apiserver.identity.users import AUTHENTICATED, User
from podwire.apiserver.ports import Store
from podwire.interfaces import Clock
from podwire.kinds.resource import PREFIX
from podwire.protocols.k8sapi import bootstrap_tokens
from podwire.protocols.k8sapi.bootstrap_tokens import GROUP, NAMESPACE, USER_PREFIX, Token


@dataclass(frozen=True, slots=True)
class BootstrapTokens:
    """Looks up tokens in their Secrets, so that a deletion holds at once."""

    store: Store
    clock: Clock

    async def user_of(self, text: str) -> User | None:
        """Returns None if a text does not have the form of such a token. Raises identity.tokens.BadToken."""
        try:
            token = Token.parse(text)
        except bootstrap_tokens.BadToken:
            return None
        item = await self.store.get(f"{PREFIX}secrets/{NAMESPACE}/{token.secret_name}")
        secret = msgspec.json.decode(item.value) if item is not None else None
        if secret is None or secret["metadata"].get("deletionTimestamp"):
            raise BadToken(f"bootstrap token {token.id} does not exist")
        try:
            record = bootstrap_tokens.read_secret(secret)
        except bootstrap_tokens.BadToken as error:
            raise BadToken(str(error)) from error
        if not hmac.compare_digest(record.token.secret, token.secret):
            raise BadToken(f"bootstrap token {token.id} has another secret")
        if record.is_expired(self.clock.wall()):
            raise BadToken(f"bootstrap token {token.id} has expired")
        if "authentication" not in record.usages:
            raise BadToken(f"bootstrap token {token.id} is not for authentication")
        return User(f"{USER_PREFIX}{token.id}", groups=(GROUP, *record.groups, AUTHENTICATED))
