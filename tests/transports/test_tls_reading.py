"""A server that sends much over TLS and closes at once, to a client that reads slowly: nothing may be lost.

Go's servers do that, a stock kubelet for one: data, close frame, close_notify and FIN follow each other.
"""

import asyncio
import base64
import contextlib
import hashlib
import socket
import ssl
import threading

import pytest

from podwire.protocols.k8sapi.server_side import Stream
from podwire.transports import http_upgrade_client
from podwire.transports.certificates import self_signed
from podwire.transports.http_relay import relays
from podwire.transports.http_websocket_client import dial

MESSAGE, COUNT = 4096, 400
"""More than the buffers that a reader has, less than the ones of two sockets."""
FRAME = b"\x82\x7e" + MESSAGE.to_bytes(2) + b"\1" * MESSAGE
CLOSE = b"\x88\x02\x03\xe8"
WEBSOCKET = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n"
)
SPDY = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: SPDY/3.1\r\nConnection: Upgrade\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"


@pytest.fixture
def hasty(tmp_path):
    """`hasty(data)` is the URL of a server that answers one request with these bytes, and closes the connection."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(self_signed(tmp_path / "server.pem", "server", ["127.0.0.1"]))
    with contextlib.ExitStack() as ends:

        def start(data):
            listener = ends.enter_context(socket.create_server(("127.0.0.1", 0)))

            def serve():
                connection, _ = listener.accept()
                with context.wrap_socket(connection, server_side=True) as secure:
                    head = secure.recv(65536)
                    secure.sendall(data(head))
                    secure.setblocking(False)
                    with contextlib.suppress(ssl.SSLWantReadError):
                        secure.unwrap()  # sends close_notify, and does not wait for the peer's

            thread = threading.Thread(target=serve)
            thread.start()
            ends.callback(thread.join)
            return f"https://127.0.0.1:{listener.getsockname()[1]}/"

        yield start


def trusting():
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def accepted(head):
    """The answer to this handshake, all messages, and the close frame."""
    key = next(line.split(b": ")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key"))
    accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    return WEBSOCKET % accept + FRAME * COUNT + CLOSE


async def test_messages_of_a_websocket_that_closed_meanwhile_arrive(hasty):
    async with relays(trusting) as relay, asyncio.timeout(60):
        far = await dial(relay._session, hasty(accepted), (), trusting(), seconds=20)
        await asyncio.sleep(0.2)  # by now the server has closed
        sizes = []
        while (message := await far.receive()) is not None:
            sizes.append(len(message))
            await asyncio.sleep(0.0001)
    assert (sum(sizes), far.ended_well) == (COUNT * MESSAGE, True)


async def test_bytes_of_a_tunnel_that_closed_meanwhile_arrive(hasty):
    async with asyncio.timeout(60):
        url = hasty(lambda _head: SPDY + b"x" * COUNT * MESSAGE)
        far = await http_upgrade_client.dial(url, (), seconds=20, context=trusting())
        await asyncio.sleep(0.2)
        size = 0
        while data := await far.read(MESSAGE):
            size += len(data)
            await asyncio.sleep(0.0001)
        await far.close()
    assert size == COUNT * MESSAGE


async def test_an_answer_whose_connection_closed_meanwhile_arrives(hasty):
    async with relays(trusting) as relay, asyncio.timeout(60):
        answer = await relay.answer("GET", hasty(lambda _head: ANSWER + b"x" * COUNT * MESSAGE))
        assert isinstance(answer, Stream)
        await asyncio.sleep(0.2)
        size = 0
        async for chunk in answer.chunks:
            size += len(chunk)
            await asyncio.sleep(0.0001)
    assert size == COUNT * MESSAGE
