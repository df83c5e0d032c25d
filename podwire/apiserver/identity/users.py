"""Users: name, uid, groups and extra, in upstream's words."""

from collections.abc import Mapping
from dataclasses import dataclass, field

ANONYMOUS = "system:anonymous"
ACCOUNT_PREFIX = "system:serviceaccount:"

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ACCOUNTS = "system:serviceaccounts"
KUBELET_CLIENT = "kube-apiserver-kubelet-client"
"""The API server as a client of kubelets; it is never a client of itself."""
NODES = "system:nodes"
NODE_PREFIX = "system:node:"
COMPONENT_PREFIX = "system:podwire:"


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


SYSTEM = User("system:apiserver", groups=(MASTERS, AUTHENTICATED))
"""The user of the server's own writes."""
ANONYMOUS_USER = User(ANONYMOUS, groups=(UNAUTHENTICATED,))


def account_groups(namespace: str) -> tuple[str, ...]:
    """Returns the groups of every service account in a namespace."""
    return (ACCOUNTS, f"{ACCOUNTS}:{namespace}")


def node_name(user: User) -> str | None:
    """Returns the node of a kubelet: a user with the name and the group of one. None for everybody else."""
    if NODES not in user.groups or not user.name.startswith(NODE_PREFIX):
        return None
    return user.name.removeprefix(NODE_PREFIX)


def component_node(user: User) -> str | None:
    """Returns the node of a driver or plugin that `podwire up` runs there: the user GROUP:NODE of such a group."""
    for group in user.groups:
        if group.startswith(COMPONENT_PREFIX) and user.name.startswith(f"{group}:"):
            return user.name.removeprefix(f"{group}:")
    return None
