"""A small transparent proxy: tells the original destination of each connection, connects there itself, passes on.

    python proxy.py UID PORT...

Runs as that user, with no capability. What it listens on, it says in a line; then a line for each connection.
"""

import asyncio
import os
import socket
import struct
import sys

ORIGINAL_DST = 80


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def original(connection: socket.socket) -> tuple[str, int]:
    """Where a redirected connection was meant to go."""
    if "." in connection.getsockname()[0]:  # also IPv4 on a socket for both
        packed = connection.getsockopt(socket.IPPROTO_IP, ORIGINAL_DST, 16)
        return socket.inet_ntop(socket.AF_INET, packed[4:8]), struct.unpack("!H", packed[2:4])[0]
    packed = connection.getsockopt(socket.IPPROTO_IPV6, ORIGINAL_DST, 28)
    return socket.inet_ntop(socket.AF_INET6, packed[8:24]), struct.unpack("!H", packed[2:4])[0]


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    came = writer.get_extra_info("socket")
    address, port = original(came)
    say(came.getsockname()[1], address, port)
    try:
        upstream, onward = await asyncio.open_connection(address, port)
        writer.write(b"proxied ")
        writer.write(await upstream.read())
        onward.close()
    except OSError as error:
        writer.write(f"refused {error.errno}".encode())
    writer.close()


async def main(uid: int, ports: list[int]) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    servers = []
    for port in ports:
        listening = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
        servers.append(await asyncio.start_server(serve, sock=listening))
    say("listening", *ports)
    await asyncio.gather(*(server.serve_forever() for server in servers))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), [int(item) for item in sys.argv[2:]]))
