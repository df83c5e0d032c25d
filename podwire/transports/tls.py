"""TLS contexts: the server's asks for a client certificate and lives without one; the client's trusts one CA.

Both speak TLS 1.2 or newer and HTTP/1.1 only.
"""

import contextlib
import logging
import os
import pathlib
import ssl
import tempfile
import time
from collections.abc import Iterator
from functools import partial

from podwire.transports.certificates import self_signed

log = logging.getLogger(__name__)

Path = str | os.PathLike[str]

CHECK_SECONDS = 1.0
"""How often a server looks for a new certificate."""


def server_context(
    certificate: Path, key: Path, client_ca: Path | None = None, *, client_ca_data: str | None = None
) -> ssl.SSLContext:
    """Serves `certificate`; a client certificate is optional, but one from another CA than `client_ca` is refused.

    That one is a file or PEM text.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["http/1.1"])
    if client_ca is not None or client_ca_data is not None:
        context.load_verify_locations(client_ca, cadata=client_ca_data)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


class ServingContext:
    """The context of a server whose certificate is replaced on the disk while it serves.

    A key is replaced before its certificate, in two steps: a context is made from both and taken only if they fit.
    """

    def __init__(
        self, certificate: Path, key: Path, client_ca: Path | None = None, *, client_ca_data: str | None = None
    ) -> None:
        """Raises OSError, of which ssl.SSLError is one."""
        self._make = partial(server_context, certificate, key, client_ca, client_ca_data=client_ca_data)
        self._files = (certificate, key)
        self._versions = self._look()
        self._context = self._make()
        self._checked = time.monotonic()

    def current(self) -> ssl.SSLContext:
        """Returns the context for the next connection; looks at the files at most once a second."""
        now = time.monotonic()
        if now - self._checked >= CHECK_SECONDS:
            self._checked = now
            try:
                if (versions := self._look()) != self._versions:
                    self._context, self._versions = self._make(), versions
            except OSError as error:  # being replaced
                log.warning("cannot use new serving certificate", extra={"error": str(error)})
        return self._context

    def _look(self) -> list[tuple[int, int]]:
        return [(status.st_ino, status.st_mtime_ns) for status in map(os.stat, self._files)]


def client_context(
    *,
    ca: Path | None = None,
    ca_data: str | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
    verify: bool = True,
) -> ssl.SSLContext:
    """Trusts the CA in the file or PEM text, or the system's when neither is given; without `verify`, anybody.

    Keys are read from files because OpenSSL reads no others through this module.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca is not None or ca_data is not None:
        context.load_verify_locations(ca, cadata=ca_data)
    else:
        context.load_default_certs()
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    return context


@contextlib.contextmanager
def preloaded() -> Iterator[tuple[ssl.SSLContext, ssl.SSLContext]]:
    """Makes a handshake with itself, in memory, for which OpenSSL loads its algorithms, and keeps them loaded.

    Processes that are forked meanwhile share that memory: more than 2 MB for each that uses TLS.
    """
    with tempfile.TemporaryDirectory() as folder:
        certificate = self_signed(pathlib.Path(folder) / "certificate", "localhost", ())
        contexts = client_context(ca=certificate), server_context(certificate, certificate)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = contexts[0].wrap_bio(to_client, to_server, server_hostname="localhost")
    server = contexts[1].wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client, server):
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    yield contexts
