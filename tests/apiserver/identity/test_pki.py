import asyncio
import itertools
import os
import ssl
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from podwire.apiserver.identity.pki import Pki, PkiError

NOW = datetime.now(UTC)


def opened(directory: Path, *, names=(), ips=(), now=None) -> Pki:
    return Pki.open(directory, names=list(names), ips=list(ips), now=now)


def serving(pki: Pki) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pki.serving_certificate.read_bytes())


def alternatives(pki: Pki) -> set[str]:
    carried = serving(pki).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(item.value) for item in carried}


@pytest.fixture
def home(tmp_path):
    return tmp_path / "deep" / "pki"


def test_the_serving_certificate_carries_every_name_the_server_is_called_by(home):
    pki = opened(home, names=["api.example.com"], ips=["192.0.2.7", "2001:db8::7"])
    assert alternatives(pki) == {
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "localhost",
        "127.0.0.1",
        "::1",
        "10.96.0.1",
        os.uname().nodename.lower(),
        "api.example.com",
        "192.0.2.7",
        "2001:db8::7",
    }


def test_everything_is_private_to_its_owner_and_no_draft_is_left(home):
    opened(home)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in home.iterdir()}
    assert modes == dict.fromkeys(["format", "ca.key", "ca.crt", "apiserver.key", "apiserver.crt", "sa.key"], 0o600)


def test_an_open_directory_and_a_readable_key_are_closed_again(home):
    opened(home)
    home.chmod(0o755)
    (home / "sa.key").chmod(0o644)
    opened(home)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "sa.key").stat().st_mode) == 0o600


def test_a_restart_changes_nothing(home):
    opened(home, names=["a.example.com"])
    before = {path.name: path.read_bytes() for path in home.iterdir()}
    opened(home, names=["a.example.com"])
    assert {path.name: path.read_bytes() for path in home.iterdir()} == before


@pytest.mark.parametrize(
    ("later", "names"),
    [
        pytest.param(timedelta(days=336), (), id="it ends within 30 days"),
        pytest.param(timedelta(days=-1), (), id="it has not begun, the clock was wrong"),
        pytest.param(timedelta(0), ("new.example.com",), id="a name is new"),
    ],
)
def test_the_serving_certificate_is_reissued_when(home, later, names):
    first = opened(home, now=NOW)
    before = serving(first)
    after = serving(opened(home, names=names, now=NOW + later))
    assert after.serial_number != before.serial_number
    assert after.public_key() == before.public_key()
    after.verify_directly_issued_by(first.authority)


def test_the_serving_certificate_stays_while_it_lasts_longer_than_30_days(home):
    before = serving(opened(home, now=NOW))
    assert serving(opened(home, now=NOW + timedelta(days=334))) == before


def test_a_serving_certificate_of_another_authority_is_replaced(home, tmp_path):
    pki = opened(home)
    other = opened(tmp_path / "other")
    pki.serving_certificate.write_bytes(other.serving_certificate.read_bytes())
    serving(opened(home)).verify_directly_issued_by(pki.authority)


def test_no_certificate_outlives_its_authority(home):
    pki = opened(home, now=NOW)
    end = pki.authority.not_valid_after_utc
    late = NOW + timedelta(days=3600)
    assert serving(opened(home, now=late)).not_valid_after_utc == end
    certificate, _ = pki.issue_client("late", [], now=late)
    assert x509.load_pem_x509_certificate(certificate).not_valid_after_utc == end


@pytest.mark.parametrize("missing", ["ca.crt", "apiserver.crt", "sa.key", "apiserver.key"])
def test_a_creation_that_was_cut_short_is_completed(home, missing):
    key = opened(home).authority.public_key()
    (home / missing).unlink()
    pki = opened(home)
    assert pki.authority.public_key() == key
    serving(pki).verify_directly_issued_by(pki.authority)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        pytest.param("ca.key", b"", "does not hold a usable private key", id="an empty key"),
        pytest.param(
            "sa.key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n", "does not hold a usable private key", id="half a key"
        ),
        pytest.param("ca.crt", b"\x00\xff", "does not hold a usable certificate", id="a certificate of noise"),
        pytest.param("apiserver.crt", b"", "does not hold a usable certificate", id="an empty certificate"),
        pytest.param("format", b"2\n", "this version reads format 1 only", id="a newer format"),
    ],
)
def test_a_broken_file_is_named_and_never_replaced(home, name, content, reason):
    opened(home)
    (home / name).write_bytes(content)
    with pytest.raises(PkiError, match=f"{home / name}: .*{reason}"):
        opened(home)
    assert (home / name).read_bytes() == content


def test_a_key_of_another_kind_is_refused(home):
    opened(home)
    other = ec.generate_private_key(ec.SECP384R1())
    (home / "sa.key").write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(PkiError, match="must hold a P-256 key"):
        opened(home)


def test_an_authority_without_its_key_is_refused(home):
    opened(home)
    (home / "ca.key").unlink()
    with pytest.raises(PkiError, match=r"ca\.key: is missing"):
        opened(home)


def test_an_authority_with_a_foreign_key_is_refused(home):
    opened(home)
    (home / "ca.key").write_bytes((home / "sa.key").read_bytes())
    with pytest.raises(PkiError, match=r"ca\.crt: does not belong to ca\.key"):
        opened(home)


def test_an_authority_that_has_ended_is_refused(home):
    opened(home, now=NOW)
    with pytest.raises(PkiError, match=r"ca\.crt: expired on"):
        opened(home, now=NOW + timedelta(days=3651))


def test_an_unrecognized_directory_is_left_alone(home):
    home.mkdir(parents=True)
    (home / "ca.key").write_bytes(b"theirs")
    with pytest.raises(PkiError, match=r"format: is missing, so ca\.key cannot be recognized as ours"):
        opened(home)
    assert [path.name for path in home.iterdir()] == ["ca.key"]


def test_a_path_that_is_not_a_directory_is_named(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(PkiError, match=f"{tmp_path / 'file'}: File exists"):
        opened(tmp_path / "file")
    with pytest.raises(PkiError, match="Not a directory"):
        opened(tmp_path / "file" / "pki")


def test_many_starts_at_once_agree(home):
    with ThreadPoolExecutor(8) as pool:
        keys = {
            pki.authority_pem + str(pki.account_key.private_numbers().private_value).encode()
            for pki in pool.map(lambda _each: opened(home), range(8))
        }
    assert len(keys) == 1


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        pytest.param("", [], id="nobody"),
        pytest.param("x" * 65, [], id="a name too long"),
        pytest.param("x", ["g" * 65], id="a group too long"),
    ],
)
def test_a_name_that_a_certificate_cannot_carry_is_refused(home, name, groups):
    with pytest.raises(ValueError, match="cannot be used in a certificate"):
        opened(home).issue_client(name, groups)


def test_a_client_certificate_has_the_user_and_the_groups(home):
    certificate, _ = opened(home).issue_client("system:node:a", ["system:nodes", "ops"])
    subject = x509.load_pem_x509_certificate(certificate).subject
    assert [(item.rfc4514_attribute_name, item.value) for item in subject] == [
        ("O", "system:nodes"),
        ("O", "ops"),
        ("CN", "system:node:a"),
    ]


def openssl(*arguments: str | Path) -> str:
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_openssl_accepts_the_chain_strictly_and_each_certificate_for_its_purpose_only(home, tmp_path):
    pki = opened(home)
    certificate, _ = pki.issue_client("kubernetes-admin", ["system:masters"])
    client = tmp_path / "client.crt"
    client.write_bytes(certificate)
    for path, purpose in itertools.product((client, pki.serving_certificate), ("sslclient", "sslserver")):
        said = openssl("verify", "-x509_strict", "-purpose", purpose, "-CAfile", pki.authority_path, path)
        fits = (path == client) == (purpose == "sslclient")
        assert (f"{path}: OK" in said) == fits, said


@pytest.mark.parametrize("with_certificate", [True, False])
async def test_a_tls_handshake_in_which_the_client_may_but_need_not_show_a_certificate(
    home, tmp_path, with_certificate
):
    pki = opened(home)
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(pki.authority_path))
    server_side.load_cert_chain(pki.serving_certificate, pki.serving_key)
    server_side.verify_mode = ssl.CERT_OPTIONAL
    client_side = ssl.create_default_context(cadata=pki.authority_pem.decode())
    client_side.verify_flags |= ssl.VERIFY_X509_STRICT
    if with_certificate:
        pair = tmp_path / "admin.pem"
        pair.write_bytes(b"".join(pki.issue_client("kubernetes-admin", ["system:masters"])))
        client_side.load_cert_chain(pair)
    seen = asyncio.get_running_loop().create_future()

    async def serve(reader, writer):
        await reader.read()
        seen.set_result(writer.get_extra_info("peercert"))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server_side) as server:
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=client_side, server_hostname="kubernetes.default.svc"
        )
        writer.close()
        subject = (await seen or {}).get("subject", ())
    expected = ((("organizationName", "system:masters"),), (("commonName", "kubernetes-admin"),))
    assert subject == (expected if with_certificate else ())
