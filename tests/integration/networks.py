"""Network namespaces that stand for hosts. Only root may make them."""

import os
import subprocess

from processes import run, wait_until


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
