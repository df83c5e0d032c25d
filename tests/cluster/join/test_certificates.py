"""Certificates of nodes: renewed in time, at different moments, and for the present addresses."""

import asyncio
import contextlib
import os
import time
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from podwire.cluster.join import certificates
from podwire.cluster.join.certificates import Issued, Renewed, keep_renewed, kubelet, renewal_time, serving
from podwire.protocols.k8sapi.client_side import Unreachable


def certificate(subject, seconds, begin=None, issuer="ca"):
    key = ec.generate_private_key(ec.SECP256R1())
    now = begin or datetime.now(UTC)
    request = x509.load_pem_x509_csr(certificates.signing_request(subject)[0])
    builder = x509.CertificateBuilder().subject_name(request.subject)
    builder = builder.issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
    builder = builder.public_key(key.public_key()).serial_number(1)
    builder = builder.not_valid_before(now).not_valid_after(now + timedelta(seconds=seconds))
    for extension in request.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    return builder.sign(key, hashes.SHA256())


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "pair.pem"
    file.touch()
    return file


def renewed(path, subject, present, write=lambda _issued: None):
    return Renewed(subject=lambda: subject, path=path, read=lambda _path: present(), write=write)


def test_a_certificate_is_renewed_in_the_last_part_of_its_lifetime(path):
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    os.utime(path, (begin.timestamp(), begin.timestamp()))
    present = certificate(kubelet("n"), 1000, begin)
    assert renewal_time(present, 0.7, begin.timestamp()) == begin.timestamp() + 700
    moments = {renewed(path, kubelet("n"), lambda: present).due(begin.timestamp()) for _ in range(50)}
    assert all(700 <= moment <= 900 for moment in moments)
    assert len(moments) > 25
    assert renewed(path, kubelet("n"), lambda: None).due(0.0) == 0.0


def test_a_backdated_certificate_is_not_renewed_at_once():
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    present = certificate(kubelet("n"), 300 + 40, begin)
    written = begin.timestamp() + 300
    assert renewal_time(present, 0.7, written) == written + 28
    assert renewal_time(present, 0.7, written + 10_000) == written + 40  # a clock that was wrong then


@pytest.mark.parametrize(("hosts", "due"), [(["192.0.2.1"], False), (["192.0.2.2"], True), ([], True)])
def test_a_serving_certificate_with_other_addresses_is_renewed_at_once(path, hosts, due):
    present = certificate(serving("n", ["192.0.2.1"]), 1000)
    assert (renewed(path, serving("n", hosts), lambda: present).due(time.time()) == 0.0) is due


async def test_a_failed_renewal_is_retried_and_the_present_certificate_stays(monkeypatch, path):
    written, pauses, failures = [], [], [Unreachable("away"), Unreachable("away")]
    fresh = certificate(kubelet("n"), 1000)

    async def request(_api, subject):
        if failures:
            raise failures.pop()
        return Issued("PEM", f"key of {subject.user}")

    @contextlib.asynccontextmanager
    async def connect():
        yield None

    async def sleep(seconds):
        pauses.append(seconds)
        if written:
            raise asyncio.CancelledError

    monkeypatch.setattr(certificates, "request_certificate", request)
    row = renewed(path, kubelet("n"), lambda: fresh if written else None, written.append)
    with pytest.raises(asyncio.CancelledError):
        await keep_renewed(row, connect, sleep)
    assert written == [Issued("PEM", "key of system:node:n")]
    assert pauses[:2] == [1.0, 2.0]
    assert pauses[2] == certificates.LOOK_SECONDS
