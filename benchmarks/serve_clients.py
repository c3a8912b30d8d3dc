"""Clients of `benchmarks/serve.py`, with the standard library alone: they must not be what is slow.

Reads {"port", "token", "seconds", "bodies"} as JSON; prints "begun", and at the end what each request met.
"""

import asyncio
import json
import re
import sys
import time

Seen = list[tuple[float, float, int]]  # when it was sent, seconds, status; 0 where the connection was cut off


async def client(port: int, token: str, body: bytes, until: float, seen: Seen) -> None:
    """Requests one after the other on one connection."""
    head = f"POST /predict HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.monotonic() < until:
        began = time.monotonic()
        try:
            writer.write(request)
            top = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(re.search(rb"content-length: (\d+)", top.lower())[1]))
        except (OSError, asyncio.IncompleteReadError):
            seen.append((began, time.monotonic() - began, 0))
            return
        seen.append((began, time.monotonic() - began, int(top.split(b" ", 2)[1])))


async def main(port: int, token: str, seconds: float, bodies: list[str]) -> Seen:
    until, seen = time.monotonic() + seconds, Seen()
    await asyncio.gather(*(client(port, token, body.encode(), until, seen) for body in bodies))
    return seen


if __name__ == "__main__":
    asked = json.loads(sys.stdin.readline())
    print("begun", flush=True)
    print(json.dumps(asyncio.run(main(**asked))))
