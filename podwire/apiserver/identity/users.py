"""Who asks: a name and what goes with it. The words are upstream's, so that they mean the same in every review."""

from collections.abc import Mapping
from dataclasses import dataclass, field

ANONYMOUS = "system:anonymous"
ACCOUNT_PREFIX = "system:serviceaccount:"

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ACCOUNTS = "system:serviceaccounts"


@dataclass(frozen=True, slots=True)
class User:
    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def account(self) -> tuple[str, str] | None:
        """Namespace and name of the service account that this user is, if it is one."""
        if not self.name.startswith(ACCOUNT_PREFIX):
            return None
        namespace, _, name = self.name.removeprefix(ACCOUNT_PREFIX).partition(":")
        return (namespace, name) if namespace and name and ":" not in name else None


ANONYMOUS_USER = User(ANONYMOUS, groups=(UNAUTHENTICATED,))


def account_groups(namespace: str) -> tuple[str, ...]:
    """The groups that every service account of a namespace is in."""
    return (ACCOUNTS, f"{ACCOUNTS}:{namespace}")
