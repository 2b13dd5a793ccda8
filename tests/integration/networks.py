"""Network namespaces that stand for hosts. Only root may make them."""

import json
import os
import subprocess

from processes import run, wait_until


class Namespace:
    """A network namespace that ends with its object. `mounts` makes it a mount namespace, too."""

    def __init__(self, mounts=False):
        own_mounts = ["--mount", "--propagation", "private"] if mounts else []
        self.mounts = mounts
        self.holder = subprocess.Popen(["unshare", "--net", *own_mounts, "sleep", "infinity"])
        own = os.readlink("/proc/self/ns/net")
        wait_until(lambda: os.readlink(f"{self.path}") != own, "the namespace")
        self.run("ip", "link", "set", "lo", "up")

    @property
    def path(self):
        return f"/proc/{self.holder.pid}/ns/net"

    @property
    def prefix(self):
        mounts = [f"--mount=/proc/{self.holder.pid}/ns/mnt"] if self.mounts else []
        return ("nsenter", f"--net={self.path}", *mounts)

    def run(self, *command, **options):
        return run(*self.prefix, *command, **options)

    def end(self):
        self.holder.kill()
        self.holder.wait(10)


class Switch:
    """A namespace with a bridge, and `count` hosts on it, perhaps with mounts of their own. Packets may have 9000
    bytes."""

    def __init__(self, count, mounts=False):
        self.bridge, self.hosts = Namespace(), []
        self.bridge.run("ip", "link", "add", "switch", "mtu", "9000", "type", "bridge", "mcast_snooping", "0")
        self.bridge.run("ip", "link", "set", "switch", "up")
        for number in range(count):
            host = Namespace(mounts)
            self.hosts.append(host)
            self.bridge.run("ip", "link", "add", f"port{number}", "mtu", "9000", "type", "veth", "peer", "name", "eth0",
                            "mtu", "9000", "netns", host.holder.pid)
            self.bridge.run("ip", "link", "set", f"port{number}", "master", "switch", "up")
            host.run("ip", "address", "add", f"{self.address(number)}/16", "dev", "eth0")
            host.run("ip", "link", "set", "eth0", "up")

    @staticmethod
    def address(number):
        """Returns the address of a host: 10.9.0.1, 10.9.0.2 ..."""
        return f"10.9.{number // 250}.{number % 250 + 1}"

    def sent_bytes(self, number):
        """Returns the number of bytes that the host has sent."""
        (link,) = json.loads(self.bridge.run("ip", "-json", "-statistics", "link", "show", f"port{number}").stdout)
        return link["stats64"]["rx"]["bytes"]

    def end(self):
        for each in (*self.hosts, self.bridge):
            each.end()


class Neighbour(Namespace):
    """A host with one link to this host. Several may exist at once, in other tests, with other addresses."""

    def __init__(self):
        super().__init__()
        for number in range(256):
            self.link = f"stdchk-test{number}"
            made = run("ip", "link", "add", "name", self.link, "type", "veth", "peer", "name", self.link,
                       "netns", self.holder.pid, check=False)
            if made.returncode == 0:
                break
        assert made.returncode == 0, made.stderr
        self.near, self.far = f"10.79.{number}.1", f"10.79.{number}.2"
        for prefix, address in (((), self.near), (self.prefix, self.far)):
            run(*prefix, "ip", "address", "add", f"{address}/24", "dev", self.link)
            run(*prefix, "ip", "link", "set", self.link, "up")

    def set_link(self, state):
        self.run("ip", "link", "set", self.link, state)

    def end(self):
        # Sockets with unsent bytes keep the namespace alive for minutes, and the namespace keeps the link.
        run("ip", "link", "delete", self.link)
        super().end()
