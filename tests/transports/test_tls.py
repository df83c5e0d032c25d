"""TLS with real certificates: who gets in, and as whom."""

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from podwire.protocols.k8sapi.kubeconfig import Access, Pem
from podwire.protocols.k8sapi.server_side import Certificate, Request, Response
from podwire.transports.http_client import connect
from podwire.transports.http_connection import HttpLimits
from podwire.transports.http_server import serve
from podwire.transports.tls import client_context, preloaded, server_context


class Authority:
    """A CA that issues certificates into a directory."""

    def __init__(self, folder, name: str) -> None:
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._build(self.name, self.key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.ca = folder / f"{name}.crt"
        self.ca.write_bytes(certificate.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def _build(self, subject, key):
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
        )

    def issue(self, name: str, *groups: str) -> dict[str, object]:
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*names, x509.NameAttribute(NameOID.COMMON_NAME, name)])
        address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
        certificate = self._build(subject, key).add_extension(address, critical=False)
        files = {"certificate": self.folder / f"{name}.crt", "key": self.folder / f"{name}.key"}
        pem = certificate.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        files["certificate"].write_bytes(pem)
        files["key"].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return files


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path, "ca")


@pytest.fixture
async def server(authority):
    async def whoami(request: Request) -> Response:
        return Response(status=200, body=repr(request.certificate).encode())

    context = server_context(**authority.issue("server"), client_ca=authority.ca)
    server = await serve(whoami, ssl_context=context, limits=HttpLimits(head_seconds=0.3))
    yield server
    await server.close(0.2)


def fingerprint(files: dict[str, object]) -> str:
    """As `openssl x509 -fingerprint -sha256` has it, without the colons."""
    certificate = x509.load_pem_x509_certificate(files["certificate"].read_bytes())
    return certificate.fingerprint(hashes.SHA256()).hex()


async def get(server, context: ssl.SSLContext) -> bytes:
    async with aiohttp.ClientSession() as session, session.get(f"https://127.0.0.1:{server.port}/", ssl=context) as got:
        return await got.read()


async def test_a_client_certificate_names_the_user_and_the_groups(server, authority):
    files = authority.issue("alice", "system:masters", "devs")
    context = client_context(ca=authority.ca, **files)
    expected = Certificate("alice", ("system:masters", "devs"), fingerprint(files))
    assert await get(server, context) == repr(expected).encode()


async def test_an_access_with_keys_inline_is_known_by_its_certificate(server, authority):
    files = authority.issue("bob", "devs")
    access = Access(
        server=f"https://127.0.0.1:{server.port}",
        ca=Pem(authority.ca.read_text()),
        certificate=Pem(files["certificate"].read_text()),
        key=Pem(files["key"].read_text()),
    )
    async with connect(access) as http:
        assert (await http.request("GET", "/")).body == repr(Certificate("bob", ("devs",), fingerprint(files))).encode()


async def test_a_client_without_a_certificate_is_anonymous(server, authority):
    assert await get(server, client_context(ca_data=authority.ca.read_text())) == b"None"


async def test_a_certificate_of_another_authority_is_refused(server, authority, tmp_path):
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other", "stranger").issue("alice", "system:masters")
    with pytest.raises((aiohttp.ClientError, ConnectionError)):
        await get(server, client_context(ca=authority.ca, **stranger))


async def test_a_client_trusts_only_the_authority_it_was_given(server, authority, tmp_path):
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other", "other")
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await get(server, client_context(ca=other.ca))
    assert await get(server, client_context(verify=False)) == b"None"


async def test_old_tls_is_refused(server, authority):
    context = client_context(ca=authority.ca)
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="deprecated"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(aiohttp.ClientError):
        await get(server, context)


async def test_only_http_1_1_is_negotiated(server, authority):
    context = client_context(ca=authority.ca)
    context.set_alpn_protocols(["h2", "http/1.1"])
    _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
    assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
    writer.close()


async def test_a_handshake_that_never_ends_is_cut_and_others_are_served_meanwhile(server, authority):
    stuck = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(20)]
    async with asyncio.timeout(20):
        assert await get(server, client_context(ca=authority.ca)) == b"None"
        for reader, writer in stuck:
            assert await reader.read() == b""
            writer.close()


def test_preloading_is_a_whole_handshake():
    with preloaded() as (client, server):
        assert client.session_stats()["connect_good"] == 1
        assert server.session_stats()["accept_good"] == 1
