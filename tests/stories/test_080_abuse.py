"""A real server on a real socket, and clients that mean harm or know no better: it answers or hangs up, and goes on."""

import asyncio
import base64
import contextlib
import gzip
import http.client
import json
import os
import socket
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from podwire.apiserver.identity.pki import Pki
from tests.eventually import eventually

MAPS = "/api/v1/namespaces/default/configmaps"
MEBIBYTE = 1024 * 1024
HEAD_SECONDS = 10.0
"""After which the server cuts who has not finished a request's head."""


@pytest.fixture(scope="module")
def abused(server, tmp_path_factory):
    """One of its own for all of these, logging everything; at the end it must stop in order, whatever hangs on it."""
    own = type(server)(tmp_path_factory.mktemp("abused") / "server", "--log-level", "debug")
    own.start()
    yield own
    code = own.stop()
    own.close()
    assert code == 0


class Wire:
    """One TLS connection, and the bytes on it."""

    def __init__(self, server: Any) -> None:
        address = urlsplit(server.url)
        plain = socket.create_connection((address.hostname, address.port), timeout=15)
        self.socket = server.tls.wrap_socket(plain, server_hostname=address.hostname)

    def send(self, *parts: bytes) -> None:
        with contextlib.suppress(OSError):  # the server may have hung up already, which is fine
            for part in parts:
                self.socket.sendall(part)

    def answers(self) -> list[tuple[int, bytes]]:
        """Every answer until the server hangs up."""
        data = self.rest()
        found = []
        while data:
            head, _, rest = data.partition(b"\r\n\r\n")
            lines = head.split(b"\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines[1:])}
            size = int(headers.get(b"content-length", len(rest)))
            found.append((int(lines[0].split()[1]), rest[:size]))
            data = rest[size:]
        return found

    def rest(self) -> bytes:
        data = b""
        with contextlib.suppress(OSError):
            while part := self.socket.recv(65536):
                data += part
        return data

    def close(self) -> None:
        self.socket.close()


@pytest.fixture
def wire(abused) -> Iterator[Wire]:
    opened = Wire(abused)
    yield opened
    opened.close()


def head(*lines: bytes, method: bytes = b"POST", path: bytes = MAPS.encode()) -> bytes:
    return b"\r\n".join([method + b" " + path + b" HTTP/1.1", b"Host: x", *lines, b"", b""])


MAP = b'{"metadata":{"name":"smuggled"}}'
SMUGGLED = head(b"Content-Type: application/json", b"Content-Length: %d" % len(MAP)) + MAP
CHUNKED = b"Transfer-Encoding: chunked"
AMBIGUOUS = [
    pytest.param(head(b"Content-Length: 5", CHUNKED) + b"0\r\n\r\n" + SMUGGLED, id="a length and chunks"),
    pytest.param(head(CHUNKED, b"Content-Length: 5") + b"0\r\n\r\n" + SMUGGLED, id="chunks and a length"),
    pytest.param(head(b"Content-Length: 0", b"Content-Length: 200") + SMUGGLED, id="two lengths"),
    pytest.param(head(b"Content-Length: 0, 200") + SMUGGLED, id="two lengths in one"),
    pytest.param(head(b"Content-Length: +0") + SMUGGLED, id="a length with a sign"),
    pytest.param(head(b"Content-Length: 0x0") + SMUGGLED, id="a length in hex"),
    pytest.param(head(b"Content-Length: -1") + SMUGGLED, id="a negative length"),
    pytest.param(head(b"Content-Length: " + b"9" * 100) + SMUGGLED, id="a length beyond all"),
    pytest.param(head(b"Content-Length : 0") + SMUGGLED, id="a blank before the colon"),
    pytest.param(head(b"Transfer-Encoding: xchunked") + SMUGGLED, id="no such encoding"),
    pytest.param(head(b"Transfer-Encoding: gzip, chunked") + SMUGGLED, id="two encodings"),
    pytest.param(head(b"Transfer-Encoding:\x0bchunked") + SMUGGLED, id="a tab that is none"),
    pytest.param(head(CHUNKED) + b"g\r\n\r\n" + SMUGGLED, id="a chunk without a size"),
    pytest.param(head(CHUNKED) + b"-1\r\n\r\n" + SMUGGLED, id="a negative chunk"),
    pytest.param(head(CHUNKED) + b"fffffffffffffffffff\r\n" + SMUGGLED, id="a chunk beyond all"),
    pytest.param(head(CHUNKED) + b"2\r\n{}XX0\r\n\r\n" + SMUGGLED, id="a chunk without an end"),
    pytest.param(head(b"X: a\r\n b") + SMUGGLED, id="a folded header"),
    pytest.param(head(b"X\x00: a") + SMUGGLED, id="NUL in a header"),
    pytest.param(head(b"no colon") + SMUGGLED, id="a header without a colon"),
    pytest.param(head(b": a") + SMUGGLED, id="a header without a name"),
    pytest.param(
        b"POST " + MAPS.encode() + b" HTTP/1.1\nHost: x\nContent-Length: 0\n\n" + SMUGGLED, id="bare line feeds"
    ),
    pytest.param(head(path=b"/api/v1/pods\x00"), id="NUL in the path"),
    pytest.param(head(path=b"/api v1"), id="a blank in the path"),
    pytest.param(head(path=b"http://x" + MAPS.encode()), id="a whole URL"),
    pytest.param(head(path=b"*"), id="a star for a path"),
    pytest.param(b"GET /healthz\r\n\r\n" + SMUGGLED, id="HTTP 0.9"),
    pytest.param(b"GET /healthz HTTP/9.9\r\nHost: x\r\n\r\n" + SMUGGLED, id="HTTP 9.9"),
    pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00" * 100, id="HTTP 2"),
    pytest.param(b"\x16\x03\x01\x02\x00\x01\x00" + b"\x00" * 100, id="TLS in TLS"),
    pytest.param(b"\r\n" * 50_000, id="line feeds only"),
    pytest.param(b"\x00" * 100_000, id="zeros"),
    pytest.param(head(b"X: " + b"x" * 100 * 1024) + SMUGGLED, id="a header of 100 KiB"),
    pytest.param(head(*(b"X%d: y" % number for number in range(20_000))) + SMUGGLED, id="twenty thousand headers"),
    pytest.param(head(path=b"/" + b"x" * 100 * 1024) + SMUGGLED, id="a path of 100 KiB"),
    pytest.param(head(b"Authorization: Bearer " + b"x" * MEBIBYTE) + SMUGGLED, id="a token of a mebibyte"),
    pytest.param(head(b"Expect: a miracle") + SMUGGLED, id="an expectation"),
    pytest.param(head(b"Impersonate-User: \xff") + SMUGGLED, id="a user who is not text"),
    pytest.param(head(b"Content-Encoding: \xff", b"Content-Length: 0") + SMUGGLED, id="an encoding that is not text"),
    pytest.param(b"X" * 5000 + b" / HTTP/1.1\r\nHost: x\r\n\r\n", id="a method of 5000"),
]


def test_a_second_pipelined_request_is_served(abused, wire):
    """So that the tests below can fail: two requests in one breath are two requests."""
    wire.socket.settimeout(1.0)
    wire.send(head(method=b"GET", path=b"/version") + SMUGGLED)
    assert [code for code, _ in wire.answers()] == [200, 201]
    assert abused.ask("DELETE", f"{MAPS}/smuggled")[0] == 200


@pytest.mark.parametrize("sent", AMBIGUOUS)
def test_ambiguous_framing_is_refused_and_nothing_after_it_is_executed(abused, wire, sent):
    wire.socket.settimeout(1.0)  # the server may still wait for the rest of what began so strangely
    wire.send(sent)
    found = wire.answers()
    assert len(found) <= 1 or {code for code, _ in found} <= {400, 415}, found
    for code, body in found:
        assert 400 <= code < 500, (code, body[:200])
        assert b"Traceback" not in body
    assert abused.ask("GET", f"{MAPS}/smuggled")[0] == 404


@pytest.mark.parametrize(
    ("path", "codes"),
    [
        (b"//api/v1/secrets", (404,)),
        (b"/api/v1/namespaces/%2e%2e/secrets", (400,)),
        (b"/api/v1/namespaces/default%2fsecrets", (400,)),
        (b"/api/v1/namespaces/default/pods/%00", (400,)),
        (b"/api/v1/namespaces/default/pods/%ff", (400,)),
        (b"/api/v1/namespaces/default/pods/%zz", (400, 404)),
        (b"/api/v1/namespaces/default/pods/\xc3\xa9", (400, 404)),
        (b"/api/v1/namespaces/default/pods/\xff\xfe", (400, 404)),
        (b"/api/v1/pods;x=y", (404,)),
        (b"/api/v1/pods?" + b"&".join(b"a%d=b" % number for number in range(2000)), (400,)),
        (b"/api/v1/pods?labelSelector=%ff%fe", (400,)),
        (b"/api/v1/pods?limit=1#fragment", (200, 400)),
        (b"/healthz/../api/v1/secrets", (404,)),
    ],
)
def test_a_path_is_never_normalized_to_another_resource(wire, path, codes):
    wire.send(head(b"Connection: close", method=b"GET", path=path))
    [(code, _)] = wire.answers()
    assert code in codes


def test_a_failed_upgrade_ends_the_connection(abused, wire):
    wire.send(head(b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 13", method=b"GET",
                   path=b"/api/v1/namespaces/default/pods/absent/exec?command=sh") + SMUGGLED)  # fmt: skip
    found = wire.answers()
    assert [code for code, _ in found][:1] in ([400], [403], [404])
    assert abused.ask("GET", f"{MAPS}/smuggled")[0] == 404


@pytest.mark.parametrize("chunked", [False, True], ids=["with its length", "in chunks"])
def test_a_body_of_three_mebibytes_and_one_is_refused_before_it_is_taken(wire, chunked):
    size = 3 * MEBIBYTE + 1
    lines = [b"Content-Type: application/json", CHUNKED if chunked else b"Content-Length: %d" % size]
    wire.send(head(*lines))
    if chunked:
        wire.send(*[b"10000\r\n" + b"x" * 65536 + b"\r\n"] * (size // 65536 + 1), b"0\r\n\r\n")
    [(code, body)] = wire.answers()
    assert (code, json.loads(body)["reason"]) == (413, "RequestEntityTooLarge")


def test_a_packed_body_is_refused_on_the_wire(wire):
    bomb = gzip.compress(b" " * 50 * MEBIBYTE)
    wire.send(head(b"Content-Type: application/json", b"Content-Encoding: gzip", b"Connection: close",
                   b"Content-Length: %d" % len(bomb)) + bomb)  # fmt: skip
    [(code, body)] = wire.answers()
    assert (code, json.loads(body)["reason"]) == (415, "UnsupportedMediaType")


def test_a_certificate_of_another_authority_opens_nothing(abused, tmp_path):
    stranger = Pki.open(tmp_path / "pki", names=["x"], ips=["127.0.0.1"])
    certificate, key = stranger.issue_client("kubernetes-admin", ["system:masters"])
    (tmp_path / "both.pem").write_bytes(certificate + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(tmp_path / "both.pem")
    address = urlsplit(abused.url)
    with socket.create_connection((address.hostname, address.port), timeout=10) as plain:
        try:
            with context.wrap_socket(plain) as opened:
                opened.sendall(head(b"Connection: close", method=b"GET", path=b"/api/v1/secrets"))
                assert not opened.recv(100).startswith(b"HTTP/1.1 200")
        except OSError:
            pass  # refused in the handshake, as it should be


def files(server: Any) -> int:
    return len(list(Path(f"/proc/{server._child.pid}/fd").iterdir()))


def memory(server: Any) -> int:
    pages = Path(f"/proc/{server._child.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE") // MEBIBYTE


def disconnect_during_lists(server: Any) -> int:
    """Thirty clients reset their connection during a LIST, and twenty close it during a watch; the memory meanwhile."""
    for _ in range(30):
        hasty = Wire(server)
        hasty.send(head(method=b"GET"))
        hasty.socket.recv(100)
        hasty.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        hasty.close()
    watchers = [Wire(server) for _ in range(20)]
    for watcher in watchers:
        watcher.send(head(method=b"GET", path=MAPS.encode() + b"?watch=1"))
        watcher.socket.recv(100)
    size = memory(server)
    for watcher in watchers:
        watcher.close()
    return size


def test_a_client_that_disconnects_during_a_list_leaks_nothing(abused):
    for number in range(15):
        abused.rest("POST", MAPS, {"metadata": {"name": f"large-{number}"}, "data": {"k": "x" * 400_000}})
    before, idle = files(abused), memory(abused)
    for _ in range(4):  # each of the fifty answers of a round has 6 MB
        assert disconnect_during_lists(abused) < idle + 100, "what a watcher has not read yet is not prepared for it"
    eventually(
        lambda: files(abused) <= before + 5 and memory(abused) < idle + 40,
        explain=lambda: f"{files(abused)} files, {before} before; {memory(abused)} MiB, {idle} MiB before",
    )
    assert abused.ask("GET", "/readyz") == (200, "ok")
    abused.rest("DELETE", MAPS)


async def burst(address: tuple[str, int], number: int) -> int:
    """So many connections at once that say nothing; how many were made."""
    made = await asyncio.gather(*(asyncio.open_connection(*address) for _ in range(number)), return_exceptions=True)
    open_ones = [item for item in made if not isinstance(item, BaseException)]
    await asyncio.sleep(0.2)
    for _, writer in open_ones:
        writer.transport.abort()
    return len(open_ones)


def test_two_thousand_connections_at_once_do_not_keep_others_out(abused):
    address = urlsplit(abused.url)
    before = files(abused)
    with ThreadPoolExecutor(1) as thread:
        storm = thread.submit(asyncio.run, burst((str(address.hostname), int(address.port or 0)), 2000))
        slowest = max(timed(abused) for _ in range(5))
        assert storm.result() == 2000
    assert slowest < 10
    assert timed(abused) < 2
    eventually(lambda: files(abused) <= before + 5)


def timed(server: Any) -> float:
    began = time.monotonic()
    assert server.ask("GET", "/readyz") == (200, "ok")
    return time.monotonic() - began


def test_slow_clients_are_disconnected_without_harm_to_others(abused):
    """Handshakes that never end, heads and bodies that drip: others are answered at once meanwhile."""
    address = urlsplit(abused.url)
    began = time.monotonic()
    silent = [socket.create_connection((address.hostname, address.port)) for _ in range(200)]
    heads = [Wire(abused) for _ in range(40)]
    bodies = [Wire(abused) for _ in range(10)]
    for client in heads:
        client.send(b"GET /api/v1/pods HTTP/1.1\r\nHost:")
    for body in bodies:
        body.send(head(b"Content-Type: application/json", b"Content-Length: 1000"), b'{"metadata":')
    for _ in range(20):
        for client in heads:
            client.send(b" ")
        assert timed(abused) < 2
    eventually(lambda: all(hung_up(client.socket) for client in heads) and all(map(hung_up, silent)), HEAD_SECONDS * 2)
    assert time.monotonic() - began < HEAD_SECONDS * 2
    for item in (*heads, *bodies):
        item.close()
    for item in silent:
        item.close()


def hung_up(connection: socket.socket) -> bool:
    connection.settimeout(0.01)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_no_secret_and_no_token_is_in_the_log_of_a_real_server(abused):
    canary = "c4n4ry-s3cr3t"
    hidden = base64.b64encode(canary.encode()).decode()
    token = abused.rest("POST", "/api/v1/namespaces/default/serviceaccounts/default/token", {})["status"]["token"]
    secrets = "/api/v1/namespaces/default/secrets"
    abused.rest("POST", secrets, {"metadata": {"name": "s"}, "stringData": {"k": canary}})
    abused.ask("POST", secrets, {"metadata": {"name": "S"}, "stringData": {"k": canary}})
    address = urlsplit(abused.url)
    for offered in (f"Bearer {canary}", f"Bearer {token}x", f"Basic {hidden}", f"Bearer {token}"):
        connection = http.client.HTTPSConnection(str(address.hostname), address.port, context=trusting(), timeout=10)
        connection.request("GET", f"{secrets}/s", headers={"Authorization": offered})
        assert connection.getresponse().status in (401, 403)
        connection.close()
    abused.rest("DELETE", f"{secrets}/s")
    log = abused.log.read_text()
    assert "podwire" in log or "apiserver" in log
    for secret in (canary, hidden, *token.split(".")[1:]):
        assert secret not in log


def trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
