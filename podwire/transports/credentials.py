"""Client credentials from files: kubeconfigs, keys and tokens, which others rotate while we run."""

import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from podwire.protocols.k8sapi import kubeconfig
from podwire.protocols.k8sapi.kubeconfig import SERVICE_ACCOUNT, Access, BadKubeconfig, Pem
from podwire.transports.tls import client_context

MAX_FILE = 4 << 20
"""Bytes of a kubeconfig, a certificate, a key or a token."""


def load(path: str | os.PathLike[str], *, context: str = "") -> Access:
    """Returns the access that a kubeconfig file describes. Raises BadKubeconfig, which names the file and the field."""
    return load_merged([str(path)], context=context)


def load_merged(paths: Sequence[str], *, context: str = "") -> Access:
    """Returns the access that several kubeconfigs describe together. Raises BadKubeconfig."""
    return kubeconfig.merge([(path, _read(path, path, "")) for path in paths], context=context)


def usual_files(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Returns the kubeconfigs that kubectl would use: those of KUBECONFIG or the one in the home directory, as far as
    they exist."""
    named = environ.get("KUBECONFIG", "")
    paths = named.split(os.pathsep) if named else [os.path.expanduser("~/.kube/config")]  # noqa: PTH111 - stays a text
    return [path for path in dict.fromkeys(paths) if path and Path(path).exists()]


def in_cluster(environ: Mapping[str, str] = os.environ, folder: str = SERVICE_ACCOUNT) -> Access:
    """Returns the access that a pod has by its service account."""
    namespace = Path(folder, "namespace")
    text = _read(namespace, str(namespace), "") if namespace.exists() else ""
    return kubeconfig.in_cluster(environ, text, folder=folder)


def is_in_cluster(environ: Mapping[str, str] = os.environ, folder: str = SERVICE_ACCOUNT) -> bool:
    """Whether this process runs in a pod with a service account."""
    return bool(environ.get("KUBERNETES_SERVICE_HOST")) and Path(folder, "token").exists()


def of(path: str | os.PathLike[str] | None, *, context: str = "") -> Access:
    """Returns the access of a kubeconfig or, without one, of the pod that this process runs in. Raises
    BadKubeconfig."""
    return in_cluster() if path is None else load(path, context=context)


def ssl_context(access: Access) -> ssl.SSLContext | None:
    """Returns None for a plain HTTP server. Raises BadKubeconfig for unusable files."""
    if not access.server.startswith("https:"):
        return None
    try:
        context = client_context(ca=access.ca.file or None, ca_data=access.ca.text or None, verify=access.verify)
    except (OSError, ssl.SSLError) as error:
        raise BadKubeconfig(access.ca.file or "kubeconfig", "certificate-authority", str(error)) from error
    if access.certificate:
        _present(context, access.certificate, access.key)
    return context


def _present(context: ssl.SSLContext, certificate: Pem, key: Pem) -> None:
    """Presents this client certificate. OpenSSL reads keys from files only: PEM text goes through a memfd."""
    text = pem_text(certificate, "client-certificate") + "\n" + pem_text(key, "client-key")
    memory = os.memfd_create("podwire-key", os.MFD_CLOEXEC)
    try:
        with open(memory, "wb", closefd=False) as written:
            written.write(text.encode())
        context.load_cert_chain(f"/proc/self/fd/{memory}")
    except ssl.SSLError as error:
        file = key.file or certificate.file or "kubeconfig"
        raise BadKubeconfig(file, "client-key", f"certificate and key do not work: {error}") from error
    finally:
        os.close(memory)


def token_source(access: Access) -> Callable[[], str]:
    """Returns a function that gives the token to send now; '' for none."""
    if access.token_file:
        return TokenFile(access.token_file)
    return lambda: access.token


class TokenFile:
    """A token file that is rotated by others: read again when the file has changed."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._version: tuple[int, int, int] | None = None
        self._token = ""

    def __call__(self) -> str:
        version = _version(self._path)
        if version is None:
            return self._token  # being rotated; the previous token stays valid for a while
        if version != self._version:
            self._token, self._version = _read(self._path, self._path, "token").strip(), version
        return self._token


class CredentialFiles:
    """The files that an access is from: a kubeconfig and the certificates that it names. Others rotate them."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._versions = self._look()

    def changed(self) -> Access | None:
        """Returns the new access once after each change. Raises BadKubeconfig, and again until the files are usable."""
        versions = self._look()
        if versions == self._versions or None in versions.values():  # missing: being rotated
            return None
        access = self._access
        if access.files:
            access = load_merged(access.files, context=access.context)
        ssl_context(access)
        self._access = access
        self._versions = versions if self._paths() == versions.keys() else self._look()
        return access

    def _look(self) -> dict[str, tuple[int, int, int] | None]:
        return {path: _version(path) for path in self._paths()}

    def _paths(self) -> set[str]:
        access = self._access
        return {path for path in (*access.files, access.certificate.file, access.key.file, access.ca.file) if path}


def _version(path: str) -> tuple[int, int, int] | None:
    """Returns a value that changes with the content of a file; None while it is missing."""
    try:
        status = Path(path).stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def pem_text(pem: Pem, field: str) -> str:
    """Returns certificates or a key as text; '' without one. Raises BadKubeconfig."""
    return pem.text or (_read(pem.file, pem.file, field) if pem.file else "")


def _read(path: str | os.PathLike[str], file: str, field: str) -> str:
    try:
        return read_bounded(path).decode()
    except UnicodeDecodeError as error:
        raise BadKubeconfig(file, field, "is not UTF-8") from error
    except (OSError, ValueError) as error:
        raise BadKubeconfig(file, field, getattr(error, "strerror", None) or str(error)) from error


def read_bounded(path: str | os.PathLike[str]) -> bytes:
    """Raises OSError, and ValueError for a file that is too large."""
    with Path(path).open("rb") as file:
        data = file.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise ValueError(f"has more than {MAX_FILE} bytes")
    return data
