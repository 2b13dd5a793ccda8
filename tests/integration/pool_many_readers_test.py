"""Tests hosts that read one image at the same time, in a real pool of four namespaces. The image leaves the host that
stores it about once. No reader is harmed when the host of another reader loses its benefactor."""

import os
import signal
import subprocess
import sys
import time

import pytest
from pool_by_node_test import Nodes
from processes import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may make networks")
MIB = 1 << 20
SIZE = 48 * MIB
READERS = (1, 2, 3)

# Opens the image, waits for a line, and copies the image.
READER = """
import sys
with open(sys.argv[1], "rb", buffering=0) as image, open(sys.argv[2], "wb") as copied:
    print("open", flush=True)
    sys.stdin.readline()
    while block := image.read(1 << 20):
        copied.write(block)
"""


class Readers:
    """An image that host 0 stores, behind a link of 200 Mbit/s, and readers on the other hosts that have it open."""

    def __init__(self, nodes):
        self.nodes = nodes
        self.data = os.urandom(SIZE)
        nodes.switch.hosts[0].run("tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "200mbit", "burst", "256kb",
                                  "latency", "50ms")
        nodes.write(0, "weights.N0.T1", self.data)
        assert nodes.places("weights.N0.T1") == {0: SIZE}
        self.readers = {number: self.start(number) for number in READERS}
        for reader in self.readers.values():
            assert reader.stdout.readline() == "open\n"
        time.sleep(0.5)  # the first readers hear of the others
        self.sent_before = nodes.switch.sent_bytes(0)

    def copied(self, number):
        return self.nodes.pool.folder / f"copied{number}"

    def start(self, number):
        return subprocess.Popen(
            [*self.nodes.switch.hosts[number].prefix, sys.executable, "-c", READER, self.nodes.pool.mount / "weights.N0.T1",
             self.copied(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def go(self):
        for reader in self.readers.values():
            print(file=reader.stdin, flush=True)

    def images_sent(self):
        return (self.nodes.switch.sent_bytes(0) - self.sent_before) / SIZE

    def check(self, seconds):
        for number, reader in self.readers.items():
            reader.communicate(timeout=seconds)
            assert reader.returncode == 0
            assert self.copied(number).read_bytes() == self.data


@pytest.fixture
def nodes(pool):
    made = Nodes(pool, "placement=node")
    made.ask("policy", "set", pool.mount, "copies=1")
    yield made
    made.end()


def test_an_image_that_three_hosts_read_leaves_the_host_that_stores_it_about_once(nodes):
    readers = Readers(nodes)
    readers.go()
    readers.check(60)
    assert readers.images_sent() < 1.5
    # Near copies do not count: the image still has one copy.
    assert nodes.places("weights.N0.T1") == {0: SIZE}
    assert nodes.status()["debt_chunks"] == 0


def test_readers_are_not_harmed_when_a_host_that_passes_chunks_on_loses_its_benefactor(nodes):
    victim = nodes.pids()[2]
    readers = Readers(nodes)
    readers.go()
    wait_until(lambda: readers.images_sent() > 0.3, "the first third of the image", 30)
    os.kill(victim, signal.SIGKILL)
    readers.check(60)
