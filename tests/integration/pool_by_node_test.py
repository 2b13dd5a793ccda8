"""Tests placement=node in a real pool of four hosts, which are namespaces: where images lie, and what is survived."""

import json
import os
import signal

import pytest
from networks import Switch
from processes import is_running, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may make networks")
MIB = 1 << 20
HOSTS = 4
HEAD = "10.9.255.1"


class Nodes:
    """Four hosts, each with a benefactor and a mount. The manager is on a fifth host, the head."""

    def __init__(self, pool, policy):
        self.pool = pool
        self.switch = Switch(HOSTS, mounts=True)
        self.head = self.switch.bridge
        self.head.run("ip", "address", "add", f"{HEAD}/16", "dev", "switch")
        hosts, shell = pool.folder / "hosts", pool.folder / "shell"
        hosts.write_text("".join(f"h{i} address={Switch.address(i)} benefactors=1\n" for i in range(HOSTS)))
        cases = "\n".join(f'h{i}) exec {" ".join(host.prefix)} "$@";;' for i, host in enumerate(self.switch.hosts))
        shell.write_text(f"#!/bin/sh\nhost=$1\nshift\ncase $host in\n{cases}\nesac\n")
        shell.chmod(0o755)
        # Each host mounts the pool on its own directory, because a mount locks that directory.
        nodes = pool.folder / "nodes"
        pool.mount = nodes / "mount"
        pool.mount.mkdir(parents=True)
        for i, host in enumerate(self.switch.hosts):
            own = pool.folder / f"of-h{i}"
            (own / "mount").mkdir(parents=True)
            host.run("mount", "--bind", own, nodes)
        self.ask("up", "--mount", pool.mount, "--hosts", hosts, "--rsh", shell, "--mount-on-hosts", "--listen", HEAD,
                 "--memory", "256M", "--copies", "2", "--policy", policy)

    def ask(self, *words, check=True):
        return self.pool.stdchk(*words, check=check, prefix=self.head.prefix)

    def write(self, number, name, data):
        """Writes a file through the mount of that host."""
        source = self.pool.folder / "source"
        source.write_bytes(data)
        self.switch.hosts[number].run("cp", source, self.pool.mount / name)

    def read(self, number, name):
        copied = self.pool.folder / "copied"
        self.switch.hosts[number].run("cp", self.pool.mount / name, copied)
        return copied.read_bytes()

    def status(self):
        return json.loads(self.ask("status", "--json", self.pool.mount).stdout)["pool"]

    def pids(self):
        """The pid of each host's benefactor, by host."""
        return {host: each["pid"] for each in self.status()["benefactors"] for host in range(HOSTS)
                if any(f"{Switch.address(host)}:" in address for address in each["addresses"])}

    def places(self, name):
        """Returns the bytes of the image by the host that holds them. All copies count."""
        by_pid = {pid: host for host, pid in self.pids().items()}
        shown = json.loads(self.ask("stat", "--json", self.pool.mount / name).stdout)
        return {by_pid[place["pid"]]: place["bytes"] for place in shown["benefactors"]}

    def redundant(self):
        return self.status()["debt_chunks"] == 0

    def end(self):
        pids = [member["pid"] for member in self.pool.record["members"]]
        self.ask("down", self.pool.mount, check=False)
        for pid in filter(is_running, pids):
            os.kill(pid, signal.SIGKILL)
        self.switch.end()


@pytest.fixture
def nodes(pool):
    made = Nodes(pool, "placement=node")
    yield made
    made.end()


def test_images_lie_whole_on_their_nodes_and_outlive_a_lost_one(nodes):
    images = {}
    for number in range(HOSTS):
        name, data = f"app.N{number}.T1", os.urandom(16 * MIB)
        nodes.write(number, name, data)
        images[number] = (name, data)
    wait_until(nodes.redundant, "the second copies")
    peers = {}
    for number, (name, data) in images.items():
        places = nodes.places(name)
        assert places.pop(number) == len(data), "the first copy is whole on the writer's node"
        assert list(places.values()) == [len(data)], "the second copy is whole on one node"
        (peers[number],) = places
    # The next image of a node shares chunks, and has the same peer.
    name, data = images[1]
    nodes.write(1, "app.N1.T2", data[:8 * MIB] + os.urandom(8 * MIB))
    wait_until(nodes.redundant, "the second copies")
    assert set(nodes.places("app.N1.T2")) == {1, peers[1]}
    # Without that node, its images are whole on the peer, and get another copy.
    os.kill(nodes.pids()[2], signal.SIGKILL)
    wait_until(lambda: [one["state"] for one in nodes.status()["benefactors"]].count("gone") == 1, "the loss", 40)
    wait_until(nodes.redundant, "new second copies", 40)
    for number, (name, data) in images.items():
        assert nodes.read(0, name) == data
        assert list(nodes.places(name).values()) == [len(data)] * 2
    assert nodes.status()["lost_chunks"] == 0


def test_parity_is_refused_and_equal_content_is_stored_on_each_node(nodes):
    mount = nodes.pool.mount
    done = nodes.ask("policy", "set", mount, "copies=ec(2,1)", check=False)
    assert done.returncode != 0 and "placement=node does not go with copies=ec(2,1)" in done.stderr
    shown = json.loads(nodes.ask("policy", "get", "--json", mount).stdout)
    assert shown["placement"] == {"value": "node", "from": "inherited"}, shown
    nodes.ask("policy", "set", mount, "copies=1")
    data = os.urandom(8 * MIB)
    for number in (1, 2):
        nodes.write(number, f"same{number}.N0.T1", data)
        assert nodes.places(f"same{number}.N0.T1") == {number: len(data)}
