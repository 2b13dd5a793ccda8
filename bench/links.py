"""Hosts in network namespaces, with rate-limited links (tc-tbf(8)) like the papers' networks. Requires
root."""

import concurrent.futures
import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time

from report import Failure

NET = "10.79.0"
BLOCK = 1 << 20


def namespace():
    """A process that keeps a new network namespace alive."""
    holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
    own = os.readlink("/proc/self/ns/net")
    until = time.monotonic() + 5
    while os.readlink(f"/proc/{holder.pid}/ns/net") == own:
        if holder.poll() is not None or time.monotonic() > until:
            raise Failure("no network namespace can be made: is this root?")
        time.sleep(0.01)
    return holder


class Network:
    """A client and several hosts at a switch; each has a link with its own rate."""

    def __init__(self, folder, client_rate, host_rates):
        self.folder = folder
        self.holders = []
        try:
            self.switch = self.add_holder()
            self.within(self.switch, "ip", "link", "add", "switch", "type", "bridge")
            self.within(self.switch, "ip", "link", "set", "switch", "up")
            self.client = self.add_host(1, client_rate)
            self.hosts = [self.add_host(10 + i, rate) for i, rate in enumerate(host_rates)]
        except BaseException:
            self.end()
            raise

    def add_holder(self):
        self.holders.append(namespace())
        return self.holders[-1]

    @staticmethod
    def prefix(holder):
        return ["nsenter", f"--net=/proc/{holder.pid}/ns/net"]

    def within(self, holder, *command):
        done = subprocess.run([*self.prefix(holder), *map(str, command)], capture_output=True, text=True, timeout=20)
        if done.returncode != 0:
            raise Failure(f"{' '.join(map(str, command))}: {done.stderr}")

    def add_host(self, last, rate):
        """Limits both ends of the link: the host's end limits the sent bytes, the switch's end the bytes that it
        receives."""
        holder, port = self.add_holder(), f"port{last}"
        self.within(self.switch, "ip", "link", "add", port, "type", "veth", "peer", "name", "eth0",
                    "netns", holder.pid)
        self.within(self.switch, "ip", "link", "set", port, "master", "switch", "up")
        self.within(holder, "ip", "address", "add", f"{NET}.{last}/24", "dev", "eth0")
        self.within(holder, "ip", "link", "set", "eth0", "up")
        self.within(holder, "ip", "link", "set", "lo", "up")
        for where, name in ((self.switch, port), (holder, "eth0")):
            self.within(where, "tc", "qdisc", "add", "dev", name, "root", "tbf", "rate", rate,
                        "burst", "256kb", "latency", "20ms")
        return holder

    def add_clients(self, count, rate):
        """Adds hosts like the client. Returns the paths of the clients' network namespaces; the first is the
        original client's."""
        more = [self.add_host(2 + i, rate) for i in range(count - 1)]
        return [f"/proc/{holder.pid}/ns/net" for holder in (self.client, *more)]

    def addresses(self):
        return [f"{NET}.{10 + i}" for i in range(len(self.hosts))]

    @contextlib.contextmanager
    def cut_off(self, address):
        """Takes the link of that host down at the switch, as if its cable were pulled."""
        port = f"port{address.rpartition('.')[2]}"
        self.within(self.switch, "ip", "link", "set", port, "down")
        try:
            yield
        finally:
            self.within(self.switch, "ip", "link", "set", port, "up")

    def write_hosts(self, memory):
        """Writes the hosts file and the remote shell for `stdchk up` with one benefactor on each host."""
        hosts, shell = self.folder / "hosts", self.folder / "rsh"
        hosts.write_text("".join(f"host{i} address={address} memory={memory} benefactors=1\n"
                                 for i, address in enumerate(self.addresses())))
        cases = "".join(f"  host{i}) net=/proc/{holder.pid}/ns/net ;;\n" for i, holder in enumerate(self.hosts))
        shell.write_text(f'#!/bin/sh\ncase $1 in\n{cases}esac\nshift\nexec nsenter --net=$net "$@"\n')
        shell.chmod(0o755)
        return hosts, shell

    def stream(self, total, count=None):
        """GB/s of simultaneous plain TCP streams from the client to all hosts, or to the first `count`: the
        capacity of the links."""
        program = [sys.executable, __file__]
        servers = [subprocess.Popen([*self.prefix(holder), *program, "serve"], stdout=subprocess.PIPE, text=True)
                   for holder in self.hosts[:count]]
        try:
            for server in servers:
                server.stdout.readline()  # it listens
            done = subprocess.run([*self.prefix(self.client), *program, "send", str(total), *self.addresses()[:count]],
                                  capture_output=True, text=True, timeout=120, check=True)
            return float(done.stdout)
        finally:
            for server in servers:
                server.kill()
                server.wait()

    def sent_bytes(self, number):
        """The bytes that this host has sent over its link, headers included."""
        for line in pathlib.Path(f"/proc/{self.hosts[number].pid}/net/dev").read_text().splitlines():
            name, _, counters = line.partition(":")
            if name.strip() == "eth0":
                return int(counters.split()[8])
        raise Failure(f"host{number} has no link")

    def processes(self):
        """The pids of all processes on the hosts and the client, except those that keep the namespaces."""
        networks = {os.readlink(f"/proc/{holder.pid}/ns/net") for holder in (self.client, *self.hosts)}
        found = set()
        for path in pathlib.Path("/proc").glob("[0-9]*/ns/net"):
            with contextlib.suppress(OSError):  # it has ended
                if os.readlink(path) in networks:
                    found.add(int(path.parts[2]))
        return found - {holder.pid for holder in self.holders}

    @contextlib.contextmanager
    def mesh(self, total):
        """Opens plain TCP streams between all hosts; each host sends `total` bytes in all. Yields a function
        that sends once, and returns the moment (time.monotonic()) when all bytes have arrived."""
        addresses = self.addresses()
        programs = [subprocess.Popen([*self.prefix(holder), sys.executable, __file__, "mesh", str(total), own,
                                      *(each for each in addresses if each != own)],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                    for holder, own in zip(self.hosts, addresses)]

        def told():
            for program in programs:
                line = program.stdout.readline()
                if not line:
                    raise Failure("a TCP stream has failed")
                yield line

        def send_once():
            for program in programs:
                print(file=program.stdin, flush=True)
            return max(map(float, told()))
        try:
            list(told())  # they are connected
            yield send_once
        finally:
            for program in programs:
                program.kill()
                program.communicate()

    def end(self):
        for holder in self.holders:
            holder.kill()
            holder.wait()


@contextlib.contextmanager
def network(folder, client_rate, host_rates):
    made = Network(folder, client_rate, host_rates)
    try:
        yield made
    finally:
        made.end()


def serve():
    listener = socket.create_server(("", 7000))
    print("listens", flush=True)
    peer, _ = listener.accept()
    buffer = bytearray(BLOCK)
    while peer.recv_into(buffer):
        pass
    peer.sendall(b"!")  # all bytes have arrived


def send(total, addresses):
    peers = [socket.create_connection((address, 7000)) for address in addresses]
    block = os.urandom(BLOCK)

    def push(peer):
        for _ in range(total // len(peers) // BLOCK):
            peer.sendall(block)
        peer.shutdown(socket.SHUT_WR)
        peer.recv(1)
    threads = [threading.Thread(target=push, args=(peer,)) for peer in peers]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(total // len(peers) // BLOCK * BLOCK * len(peers) / 1e9 / (time.monotonic() - began))


def connection(address):
    until = time.monotonic() + 10
    while True:
        try:
            return socket.create_connection((address, 7001))
        except ConnectionRefusedError:  # it does not listen yet
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def mesh(total, own, others):
    """After each input line, sends bytes to all other hosts and receives as many from each."""
    listener = socket.create_server((own, 7001))
    targets = [connection(address) for address in others]
    sources = [listener.accept()[0] for _ in others]
    each, block = total // len(others), os.urandom(BLOCK)
    print("connected", flush=True)

    def push(peer):
        left = each
        while left > 0:
            left -= peer.send(memoryview(block)[:left])

    def take(peer):
        left, buffer = each, bytearray(BLOCK)
        while left > 0:
            got = peer.recv_into(buffer, min(left, BLOCK))
            if got == 0:
                raise ConnectionError("a stream has ended too early")
            left -= got
    for _ in sys.stdin:
        with concurrent.futures.ThreadPoolExecutor(2 * len(others)) as threads:
            work = [threads.submit(push, peer) for peer in targets] + [threads.submit(take, peer) for peer in sources]
        for one in work:
            one.result()
        print(time.monotonic(), flush=True)


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    if what == "serve":
        serve()
    elif what == "mesh":
        mesh(int(arguments[0]), arguments[1], arguments[2:])
    else:
        send(int(arguments[0]), arguments[1:])
