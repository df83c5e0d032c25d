"""Kubeconfig files and what a pod finds in its own: how to reach an API server, and who to be there. Pure.

What a kubeconfig may ask for and this client does not do is refused by name, never left out silently.
"""

import base64
import binascii
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from podwire.protocols.k8sapi.codec import BadBody
from podwire.protocols.k8sapi.yamls import load_all

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where a pod finds its token, its namespace and the cluster's CA."""


class BadKubeconfig(ValueError):
    """Names the file, the field and what is wrong with it."""

    def __init__(self, file: str, where: str, why: str) -> None:
        super().__init__(f"{file}: {where}: {why}" if where else f"{file}: {why}")


@dataclass(frozen=True, slots=True)
class Pem:
    """Certificates or a key: the text itself, or the file to read it from. Neither: none."""

    text: str = field(default="", repr=False)
    file: str = ""

    def __bool__(self) -> bool:
        return bool(self.text or self.file)


NO_PEM = Pem()


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """An API server and an identity."""

    server: str
    namespace: str = "default"
    ca: Pem = NO_PEM
    """Empty: the system's CAs."""
    certificate: Pem = NO_PEM
    key: Pem = NO_PEM
    token: str = field(default="", repr=False)
    token_file: str = ""
    """Read anew whenever it changes; wins over `token`."""
    verify: bool = True
    server_name: str = ""
    """The name that the server's certificate must have, when it is not the host of `server`."""
    file: str = field(default="", compare=False)
    """The kubeconfig; read anew whenever it changes. Empty: there is none."""
    context: str = field(default="", compare=False)
    """The context of the kubeconfig; empty: its current one."""


_REFUSED_USER = {
    "exec": "credential plugins are",
    "auth-provider": "authentication providers are",
    "username": "basic authentication is",
    "password": "basic authentication is",
    "as": "impersonation is",
    "as-uid": "impersonation is",
    "as-groups": "impersonation is",
    "as-user-extra": "impersonation is",
}
_REFUSED_CLUSTER = {"proxy-url": "proxies are"}


def parse(text: str, *, file: str, context: str = "") -> Access:
    """The access that a context of a kubeconfig describes, by default its current one. Raises BadKubeconfig."""
    try:
        documents = load_all(text)
    except BadBody as error:
        raise BadKubeconfig(file, "", str(error)) from error
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise BadKubeconfig(file, "", "expected one kubeconfig")
    config = _Config(file, documents[0])
    name = context or config.text(config.root, "current-context", "")
    if not name:
        raise BadKubeconfig(file, "current-context", "is not set")
    chosen = config.entry("contexts", "context", name)
    where = f"contexts[{name}].context"
    cluster_name = config.text(chosen, "cluster", where, required=True)
    cluster = config.entry("clusters", "cluster", cluster_name)
    user_name = config.text(chosen, "user", where)
    user = config.entry("users", "user", user_name) if user_name else {}
    config.refuse(cluster, _REFUSED_CLUSTER, f"clusters[{cluster_name}].cluster")
    config.refuse(user, _REFUSED_USER, f"users[{user_name}].user")
    access = _access(config, chosen, cluster, user, names=(name, cluster_name, user_name))
    return replace(access, file=file, context=context)


def _access(
    config: "_Config",
    context: Mapping[str, Any],
    cluster: Mapping[str, Any],
    user: Mapping[str, Any],
    *,
    names: tuple[str, str, str],
) -> Access:
    in_context, in_cluster_, in_user = (
        f"{kind}s[{name}].{kind}" for kind, name in zip(("context", "cluster", "user"), names, strict=True)
    )
    server = config.text(cluster, "server", in_cluster_, required=True)
    if not server.startswith(("http://", "https://")):
        raise BadKubeconfig(config.file, f"{in_cluster_}.server", f"{server!r} is not an http or https URL")
    return Access(
        server=server.rstrip("/"),
        namespace=config.text(context, "namespace", in_context) or "default",
        ca=config.pem(cluster, "certificate-authority", in_cluster_),
        certificate=config.pem(user, "client-certificate", in_user),
        key=config.pem(user, "client-key", in_user),
        token=config.text(user, "token", in_user),
        token_file=config.path(config.text(user, "tokenFile", in_user)),
        verify=not cluster.get("insecure-skip-tls-verify", False),
        server_name=config.text(cluster, "tls-server-name", in_cluster_),
    )


class _Config:
    """A kubeconfig that says where it is wrong."""

    def __init__(self, file: str, root: Mapping[str, Any]) -> None:
        self.file = file
        self.root = root

    def text(self, table: Mapping[str, Any], name: str, where: str, *, required: bool = False) -> str:
        value = table.get(name) or ""
        at = f"{where}.{name}" if where else name
        if not isinstance(value, str):
            raise BadKubeconfig(self.file, at, f"expected a string, got {type(value).__name__}")
        if required and not value:
            raise BadKubeconfig(self.file, at, "is missing")
        return value

    def entry(self, group: str, kind: str, name: str) -> Mapping[str, Any]:
        entries = self.root.get(group) or []
        if not isinstance(entries, list):
            raise BadKubeconfig(self.file, group, "expected a list")
        for entry in entries:
            if isinstance(entry, dict) and entry.get("name") == name:
                found = entry.get(kind) or {}
                if not isinstance(found, dict):
                    raise BadKubeconfig(self.file, f"{group}[{name}].{kind}", "expected an object")
                return found
        raise BadKubeconfig(self.file, group, f"{kind} {name!r} not found")

    def pem(self, table: Mapping[str, Any], name: str, where: str) -> Pem:
        """`NAME-data` holds the text in base64 and wins over `NAME`, a file."""
        data = self.text(table, f"{name}-data", where)
        if not data:
            return Pem(file=self.path(self.text(table, name, where)))
        try:
            return Pem(text=base64.b64decode(data, validate=True).decode("ascii"))
        except (binascii.Error, UnicodeDecodeError) as error:
            raise BadKubeconfig(self.file, f"{where}.{name}-data", "is not base64-encoded PEM") from error

    def path(self, path: str) -> str:
        """Relative to the kubeconfig's own folder."""
        return posixpath.join(posixpath.dirname(self.file), path) if path else ""

    def refuse(self, table: Mapping[str, Any], refused: Mapping[str, str], where: str) -> None:
        for name, what in refused.items():
            if table.get(name):
                raise BadKubeconfig(self.file, f"{where}.{name}", f"{what} not supported by podwire")


def in_cluster(environ: Mapping[str, str], namespace: str, *, folder: str = SERVICE_ACCOUNT) -> Access:
    """Returns the access of a pod by its environment and mounted service account; `namespace` is the content of that
    file."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        missing = "KUBERNETES_SERVICE_PORT" if host else "KUBERNETES_SERVICE_HOST"
        raise BadKubeconfig("environment", missing, "is not set: not running in a pod, so pass a kubeconfig")
    shown = f"[{host}]" if ":" in host else host
    return Access(
        server=f"https://{shown}:{port}",
        namespace=namespace.strip() or "default",
        ca=Pem(file=f"{folder}/ca.crt"),
        token_file=f"{folder}/token",
    )


def write_kubeconfig(access: Access, *, name: str = "podwire", user: str = "admin") -> str:
    """A kubeconfig with one context that describes this access; JSON, which is YAML too."""
    cluster = {
        "server": access.server,
        **_given("certificate-authority", access.ca),
        **({} if access.verify else {"insecure-skip-tls-verify": True}),
        **({"tls-server-name": access.server_name} if access.server_name else {}),
    }
    identity = {
        **_given("client-certificate", access.certificate),
        **_given("client-key", access.key),
        **({"token": access.token} if access.token else {}),
        **({"tokenFile": access.token_file} if access.token_file else {}),
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": user, "user": identity}],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": user, "namespace": access.namespace}},
        ],
        "current-context": name,
        "preferences": {},
    }
    return msgspec.json.format(msgspec.json.encode(config), indent=2).decode() + "\n"


def _given(name: str, pem: Pem) -> dict[str, str]:
    if pem.text:
        return {f"{name}-data": base64.b64encode(pem.text.encode()).decode()}
    return {name: pem.file} if pem.file else {}
