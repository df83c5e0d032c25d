"""Users: name, uid, groups and extra, in upstream's words."""

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
        """Namespace and name of the service account, if the user is one."""
        if not self.name.startswith(ACCOUNT_PREFIX):
            return None
        namespace, _, name = self.name.removeprefix(ACCOUNT_PREFIX).partition(":")
        return (namespace, name) if namespace and name and ":" not in name else None


ANONYMOUS_USER = User(ANONYMOUS, groups=(UNAUTHENTICATED,))


def account_groups(namespace: str) -> tuple[str, ...]:
    """Returns the groups of every service account in a namespace."""
    return (ACCOUNTS, f"{ACCOUNTS}:{namespace}")
