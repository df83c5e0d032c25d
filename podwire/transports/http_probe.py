"""Asks a server over plain HTTP whether it is healthy."""

import asyncio


async def is_healthy(port: int, host: str, *, path: str = "/healthz", seconds: float = 1.0) -> bool:
    """Returns whether GET is answered with 200 in time."""
    shown = f"[{host}]" if ":" in host else host
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(f"GET {path} HTTP/1.1\r\nHost: {shown}\r\nConnection: close\r\n\r\n".encode())
                return b" 200 " in await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False
