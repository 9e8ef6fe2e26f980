"""A bucket's network, before a fast server on loopback: latency, a rate a connection, and faults.

    python benchmarks/cold_proxy.py PORT LOG [--rate MB/s] [--delay S] [--fail P] [--cut P]
        [--stall P] [--seed N]

Prints the port that it listens on. Bodies go from socket to socket within the kernel (splice), so
that it takes little of the CPU that it shares with what is measured. Linux only.
"""

import argparse
import asyncio
import os
import random
import re
import socket
import sys
from dataclasses import dataclass, field

PIECE = 1 << 18
"""Bytes that go on at a time."""
HEAD_LIMIT = 1 << 16
SLOW_DOWN = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n'
    b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
)


@dataclass
class Network:
    """What happens to requests."""

    port: int
    """Of the server."""
    log: str
    """File that gets a line for each answer, as nginx writes it."""
    rate: float | None
    """Bytes a second of each connection."""
    delay: float
    """Seconds to the first byte."""
    fail: float
    """Share of requests that are answered with 503."""
    cut: float
    """Share of connections that are cut in the middle of an answer."""
    stall: float
    """Share of answers that stand still in the middle, until the client goes."""
    rng: random.Random = field(default_factory=random.Random)

    def note(self, request: bytes, status: int, size: int) -> None:
        method, path = request.split(b" ")[:2]
        with open(self.log, "a") as file:
            file.write(f"{method.decode()} {path.decode()} {status} {size}\n")


async def serve(network: Network) -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    listener.setblocking(False)
    print(listener.getsockname()[1], flush=True)
    loop = asyncio.get_running_loop()
    ended = loop.run_in_executor(None, sys.stdin.read)  # with whoever started it
    accepting = asyncio.ensure_future(_accept(listener, network))
    await asyncio.wait({accepting, ended}, return_when=asyncio.FIRST_COMPLETED)
    os._exit(0)


async def _accept(listener: socket.socket, network: Network) -> None:
    loop = asyncio.get_running_loop()
    talks = set()
    while True:
        client, _ = await loop.sock_accept(listener)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        talk = loop.create_task(_talk(client, network))
        talks.add(talk)
        talk.add_done_callback(talks.discard)


async def _talk(client: socket.socket, network: Network) -> None:
    """One client's connection, with one of its own to the server."""
    loop = asyncio.get_running_loop()
    server = socket.socket()
    server.setblocking(False)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    source, sink = os.pipe()
    try:
        await loop.sock_connect(server, ("127.0.0.1", network.port))
        with client, server:
            while await _answer(client, server, (source, sink), network):
                pass
    except OSError:
        pass
    finally:
        os.close(source)
        os.close(sink)


async def _answer(
    client: socket.socket, server: socket.socket, pipe: tuple[int, int], network: Network
) -> bool:
    """Pass one request and its answer on; False if the connection ends with it."""
    loop = asyncio.get_running_loop()
    request, rest = await _head(client)
    if not request:
        return False
    chance = network.rng.random()
    due = loop.time() + network.delay
    if chance < network.fail:
        await asyncio.sleep(network.delay)
        head = (
            b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n\r\n"
        )
        body = b"" if request.startswith(b"HEAD") else SLOW_DOWN
        await loop.sock_sendall(client, head % len(SLOW_DOWN) + body)
        network.note(request, 503, 0)
        return True
    await loop.sock_sendall(server, request + rest)
    head, begun = await _head(server)
    if not head:
        return False
    status = int(head.split(b" ", 2)[1])
    length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
    size = 0 if request.startswith(b"HEAD") or length is None else int(length[1])
    await asyncio.sleep(max(0.0, due - loop.time()))
    # An answer is cut or stands still at a random place; one without a body is let through.
    chance -= network.fail
    stop = size if chance >= network.cut + network.stall else network.rng.randrange(size or 1)
    sent = 0
    try:
        await loop.sock_sendall(client, head + begun[:stop])
        sent = min(len(begun), stop)
        sent = await _pass_on(server, client, pipe, sent, stop, network.rate)
        if stop < size and chance >= network.cut:
            await _wait(client, loop.add_reader, loop.remove_reader)  # until it hangs up
    finally:
        network.note(request, status, sent)
    return stop == size


async def _head(peer: socket.socket) -> tuple[bytes, bytes]:
    """A request's or answer's head, and what has come after it; empty at the end."""
    loop = asyncio.get_running_loop()
    data = b""
    while b"\r\n\r\n" not in data:
        more = await loop.sock_recv(peer, HEAD_LIMIT)
        if not more:
            return b"", b""
        data += more
    head, _, rest = data.partition(b"\r\n\r\n")
    return head + b"\r\n\r\n", rest


async def _pass_on(
    server: socket.socket,
    client: socket.socket,
    pipe: tuple[int, int],
    sent: int,
    stop: int,
    rate: float | None,
) -> int:
    """Pass bytes on until so many are sent, no faster than the rate; gives how many were."""
    loop = asyncio.get_running_loop()
    began, already = loop.time(), sent
    piece = PIECE if rate is None else min(PIECE, max(4096, int(rate / 100)))
    while sent < stop:
        try:
            held = os.splice(
                server.fileno(), pipe[1], min(piece, stop - sent), flags=os.SPLICE_F_NONBLOCK
            )
        except BlockingIOError:
            await _wait(server, loop.add_reader, loop.remove_reader)
            continue
        if not held:
            raise ConnectionError("the server has ended in the middle of an answer")
        while held:
            try:
                gone = os.splice(pipe[0], client.fileno(), held, flags=os.SPLICE_F_NONBLOCK)
            except BlockingIOError:
                await _wait(client, loop.add_writer, loop.remove_writer)
                continue
            held -= gone
            sent += gone
        if rate is not None:
            ahead = began + (sent - already) / rate - loop.time()
            if ahead > 0:
                await asyncio.sleep(ahead)
    return sent


async def _wait(peer: socket.socket, add: object, remove: object) -> None:
    ready = asyncio.get_running_loop().create_future()
    fd = peer.fileno()
    add(fd, lambda: ready.done() or ready.set_result(None))  # type: ignore[operator]
    try:
        await ready
    finally:
        remove(fd)  # type: ignore[operator]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("log")
    parser.add_argument("--rate", type=float, help="MB/s of a connection")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds to the first byte")
    parser.add_argument("--fail", type=float, default=0.0)
    parser.add_argument("--cut", type=float, default=0.0)
    parser.add_argument("--stall", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rate = None if args.rate is None else args.rate * 1e6
    network = Network(
        args.port,
        args.log,
        rate,
        args.delay,
        args.fail,
        args.cut,
        args.stall,
        random.Random(args.seed),
    )
    asyncio.run(serve(network))


if __name__ == "__main__":
    main()
