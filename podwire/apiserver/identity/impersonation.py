"""Impersonation: `kubectl --as jane --as-group devs`, for users that may impersonate each name, group, uid and extra
value."""

from collections.abc import Iterator, Mapping
from urllib.parse import unquote

from podwire.apiserver.identity.authorization import Attributes, Authorizer
from podwire.apiserver.identity.users import ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User, account_groups
from podwire.protocols.k8sapi.status import bad_request

_PREFIX = "impersonate-"
_EXTRA = "impersonate-extra-"
_GROUP = "authentication.k8s.io"


def impersonated(user: User, headers: Mapping[str, str], authorizer: Authorizer) -> User:
    """Returns the user to act as: the authenticated one unless impersonation headers say otherwise. Raises ApiError
    (400, 403).

    A repeated header arrives once, its values joined by commas (RFC 9110, 5.3).
    """
    for header in headers:
        if header.startswith(_PREFIX):
            break
    else:  # as of almost every request
        return user
    asked = {name: value for name, value in headers.items() if name.startswith(_PREFIX)}
    name = asked.get("impersonate-user", "")
    if not name:
        raise bad_request("impersonating groups, a uid or extra fields needs a user: Impersonate-User is missing")
    groups = _values(asked.get("impersonate-group", ""))
    wanted = User(name, asked.get("impersonate-uid", ""), groups, _extra(asked))
    for attributes in _act_as(wanted):
        authorizer.require(user, attributes)
    return User(name, wanted.uid, _groups(wanted), wanted.extra)


def _groups(wanted: User) -> tuple[str, ...]:
    """Returns the requested groups and those that the server adds itself."""
    if wanted.name == ANONYMOUS:
        added: tuple[str, ...] = (UNAUTHENTICATED,)
    elif UNAUTHENTICATED in wanted.groups:
        added = ()
    else:
        added = (AUTHENTICATED,)
    account = wanted.account
    groups = account_groups(account[0]) if account and not wanted.groups else wanted.groups
    return tuple(dict.fromkeys((*groups, *added)))


def _extra(asked: Mapping[str, str]) -> Mapping[str, tuple[str, ...]]:
    return {
        unquote(name.removeprefix(_EXTRA)).lower(): _values(value)
        for name, value in asked.items()
        if name.startswith(_EXTRA)
    }


def _values(joined: str) -> tuple[str, ...]:
    return tuple(filter(None, (part.strip() for part in joined.split(","))))


def _act_as(wanted: User) -> Iterator[Attributes]:
    """Yields everything that somebody must be allowed to impersonate in order to act as a user."""
    if (account := wanted.account) is not None:
        yield Attributes(verb="impersonate", resource="serviceaccounts", namespace=account[0], name=account[1])
    else:
        yield Attributes(verb="impersonate", resource="users", name=wanted.name)
    for group in wanted.groups:
        yield Attributes(verb="impersonate", resource="groups", name=group)
    for key, values in wanted.extra.items():
        for value in values:
            yield Attributes(verb="impersonate", group=_GROUP, resource="userextras", subresource=key, name=value)
    if wanted.uid:
        yield Attributes(verb="impersonate", group=_GROUP, resource="uids", name=wanted.uid)
