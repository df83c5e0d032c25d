"""An admission webhook that allows everything, and times itself."""

import base64
import contextlib
import json
import socketserver
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from podwire.transports.certificates import self_signed

LOOPBACK = "127.0.0.1"
LENGTH = b"content-length:"


@dataclass(slots=True)
class Webhook:
    """A running webhook."""

    url: str
    authority: str
    """Its certificate, for `caBundle`."""
    times: list[float] = field(default_factory=list)
    """Seconds from the first line of a request until its answer is ready, one for each request."""


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    webhook: Webhook


class _Connection(socketserver.StreamRequestHandler):
    """Reads requests without a library: it must not be what is measured."""

    server: _Server

    def handle(self) -> None:
        while self.rfile.readline():
            begin = time.perf_counter()
            length = 0
            while (line := self.rfile.readline()).strip():
                if line.lower().startswith(LENGTH):
                    length = int(line.partition(b":")[2])
            uid = json.loads(self.rfile.read(length))["request"]["uid"]
            review = {
                "apiVersion": "admission.k8s.io/v1",
                "kind": "AdmissionReview",
                "response": {"uid": uid, "allowed": True},
            }
            body = json.dumps(review).encode()
            head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            # Before it is sent, so that a caller who has the answer finds the time.
            self.server.webhook.times.append(time.perf_counter() - begin)
            self.request.sendall(head.encode() + body)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Webhook]:
    """Its thread works only while the caller waits for the API server."""
    certificate = self_signed(folder / "webhook.pem", "webhook", [LOOPBACK])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    [public] = [block for block in _blocks(certificate.read_text(encoding="ascii")) if "CERTIFICATE" in block]
    with _Server((LOOPBACK, 0), _Connection) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        port = server.socket.getsockname()[1]
        server.webhook = Webhook(f"https://{LOOPBACK}:{port}/", base64.b64encode(public.encode()).decode())
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.webhook
        finally:
            server.shutdown()
            thread.join()


def _blocks(text: str) -> list[str]:
    """Returns the blocks of a PEM file."""
    mark = "-----BEGIN "
    return [mark + block for block in text.split(mark)[1:]]
