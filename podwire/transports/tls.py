"""TLS contexts: the server's asks for a client certificate and lives without one; the client's trusts one CA.

Both speak TLS 1.2 or newer and HTTP/1.1 only.
"""

import os
import ssl

Path = str | os.PathLike[str]


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
