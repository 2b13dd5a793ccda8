"""Load handling: a server clones itself while its load is high, and ends clones when it is low.

Figure 1 (c) of the SnowFlock paper. Usage: load.py REQUESTS. Each request sleeps for 50 ms. Clones fetch
requests from the parent, which measures its load by the number of requests that wait.
"""

import contextlib
import os
import pathlib
import socket
import sys
import time

from stdchk import fork

HIGH, LOW, WORKERS_MAX = 4, 1, 4


def serve(port, home):
    """Runs in a clone: asks the parent's port for requests, and answers each, until the parent has no more."""
    while True:
        with socket.create_connection((home, port), 5) as parent:
            request = parent.recv(16)
            if not request:
                return
            time.sleep(0.05)
            parent.sendall(request)


def main():
    waiting = list(range(int(sys.argv[1])))
    answered, tickets, most = 0, [], 0
    server = socket.create_server(("", 0))
    port = server.getsockname()[1]
    server.settimeout(0.05)
    while waiting or answered < int(sys.argv[1]):
        if len(waiting) > HIGH and len(tickets) < WORKERS_MAX:
            ticket = fork.request_ticket(1)
            if fork.clone(ticket) > 0:
                serve(port, parent_address())
                fork.exit()
            tickets.append(ticket)
            most = max(most, len(tickets))
        elif len(waiting) <= LOW and len(tickets) > 1:
            fork.kill(tickets[-1])
            fork.join(tickets.pop(), missing_ok=True)
        answered += hand_out(server, waiting)
    for ticket in tickets:
        fork.kill(ticket)
        fork.join(ticket, missing_ok=True)
    print(f"{answered} requests answered, at most {most} clones at a time")


def hand_out(server, waiting):
    """Gives a request to each clone that asks for one. Returns how many were answered. A request whose clone was killed
    waits again."""
    answered, busy = 0, []
    while waiting:
        try:
            busy.append((server.accept()[0], waiting.pop()))
        except TimeoutError:
            break
        with contextlib.suppress(ConnectionError):
            busy[-1][0].sendall(str(busy[-1][1]).encode())
        if len(busy) == WORKERS_MAX:
            break
    for clone, request in busy:
        with clone:
            if has_answered(clone):
                answered += 1
            else:
                waiting.append(request)
    return answered


def has_answered(clone):
    """Waits for the clone's answer. The connection of a killed clone ends, or is reset."""
    clone.settimeout(5)
    try:
        return bool(clone.recv(16))
    except ConnectionError:
        return False


def parent_address():
    """Returns the parent's address, the first of the clones' subnet. hosts(5) has no name for it."""
    for line in pathlib.Path("/proc/net/fib_trie").read_text().splitlines():
        if "|-- 10." in line or "+-- 10." in line:
            address = line.split()[1].split("/")[0].split(".")
            if address[3] == "0":
                return ".".join([*address[:3], "1"])
    raise SystemExit(f"clone {os.getpid()} has no network")


main()
