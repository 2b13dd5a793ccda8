"""Network namespaces, as hosts for tests. Only root may make them."""

import os
import subprocess

from conftest import run, wait_until


class Namespace:
    """A network namespace that ends with its object."""

    def __init__(self):
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        own = os.readlink("/proc/self/ns/net")
        wait_until(lambda: os.readlink(f"{self.path}") != own, "the namespace")
        self.run("ip", "link", "set", "lo", "up")

    @property
    def path(self):
        return f"/proc/{self.holder.pid}/ns/net"

    @property
    def prefix(self):
        return ("nsenter", f"--net={self.path}")

    def run(self, *command, **options):
        return run(*self.prefix, *command, **options)

    def end(self):
        self.holder.kill()
        self.holder.wait(10)


class Neighbour(Namespace):
    """A host with one link to this one."""

    NEAR, FAR = "10.79.0.1", "10.79.0.2"
    LINK = "stdchk-test"

    def __init__(self):
        super().__init__()
        run("ip", "link", "add", "name", self.LINK, "type", "veth", "peer", "name", self.LINK,
            "netns", self.holder.pid)
        for prefix, address in (((), self.NEAR), (self.prefix, self.FAR)):
            run(*prefix, "ip", "address", "add", f"{address}/24", "dev", self.LINK)
            run(*prefix, "ip", "link", "set", self.LINK, "up")

    def set_link(self, state):
        self.run("ip", "link", "set", self.LINK, state)
