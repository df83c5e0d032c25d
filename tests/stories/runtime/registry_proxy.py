"""A program: a TCP proxy before a registry that cuts connections, or changes a byte, after so many bytes of answers.

    registry_proxy.py PORT TARGET cut|spoil BYTES LOG

Each connection counts its own bytes. Heads of requests are written to the log.
"""

import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path

PIECE = 1 << 14


def serve(port: int, target: int, fault: str, after: int, log: Path) -> None:
    with socket.create_server(("127.0.0.1", port)) as listener:
        while True:
            client, _ = listener.accept()
            server = socket.create_connection(("127.0.0.1", target))
            threading.Thread(target=forward, args=(client, server, log), daemon=True).start()
            threading.Thread(target=answer, args=(server, client, fault, after), daemon=True).start()


def forward(client: socket.socket, server: socket.socket, log: Path) -> None:
    with suppress(OSError):
        while data := client.recv(PIECE):
            with log.open("ab") as file:
                file.write(data)
            server.sendall(data)
        server.shutdown(socket.SHUT_WR)


def answer(server: socket.socket, client: socket.socket, fault: str, after: int) -> None:
    passed = 0
    with suppress(OSError), server, client:
        while data := server.recv(PIECE):
            at = after - passed
            if 0 <= at < len(data):
                if fault == "cut":
                    client.sendall(data[:at])
                    client.shutdown(socket.SHUT_RDWR)
                    return
                data = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
            client.sendall(data)
            passed += len(data)
        client.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), Path(sys.argv[5]))
