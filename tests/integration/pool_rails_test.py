"""Tests a benefactor on two networks: both carry its bytes at their own speeds, and one suffices."""

import os
import re
import signal
import time

import pytest
from networks import Namespace
from processes import BIN, is_running
from writers import Writers, go_on

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may make networks")
MIB = 1 << 20
LINKS = (("rail0", "10.78.0", "200mbit"), ("rail1", "10.78.1", "100mbit"))


class TwoNetworks:
    """Simulates two hosts on this machine, with two shaped links between them."""

    def __init__(self, folder):
        self.here, self.there = Namespace(), Namespace()
        for name, net, rate in LINKS:
            self.here.run("ip", "link", "add", name, "type", "veth", "peer", "name", name,
                          "netns", self.there.holder.pid)
            for side, last in ((self.here, 1), (self.there, 2)):
                side.run("ip", "address", "add", f"{net}.{last}/24", "dev", name)
                side.run("ip", "link", "set", name, "up")
                side.run("tc", "qdisc", "add", "dev", name, "root", "tbf", "rate", rate,
                         "burst", "128kb", "latency", "50ms")
        self.shell = folder / "rsh"
        self.shell.write_text(f'#!/bin/sh\nshift\nexec nsenter --net={self.there.path} "$@"\n')
        self.shell.chmod(0o755)

    def sent_bytes(self, name):
        text = self.here.run("cat", f"/sys/class/net/{name}/statistics/tx_bytes", check=False).stdout
        if text:
            return int(text)
        found = re.search(r"TX:.*?\n\s*(\d+)", self.here.run("ip", "-s", "link", "show", name).stdout)
        return int(found.group(1))

    def end(self):
        self.here.end()
        self.there.end()


@pytest.fixture
def networks(pool):
    made = TwoNetworks(pool.folder)
    hosts = pool.folder / "hosts"
    hosts.write_text("there address=10.78.0.2,10.78.1.2 memory=768M benefactors=1\n")
    made.here.run(BIN / "stdchk", "up", "--mount", pool.mount, "--hosts", hosts, "--rsh", made.shell,
                  "--listen", "10.78.0.1", "--naming", "off", env=pool.environment)
    yield made
    pids = [member["pid"] for member in pool.record["members"]]
    made.here.run(BIN / "stdchk", "down", pool.mount, env=pool.environment, check=False)
    for pid in filter(is_running, pids):
        os.kill(pid, signal.SIGKILL)
    made.end()


def last_line(process, seconds):
    said, _ = process.communicate(timeout=seconds)
    return said.splitlines()[-1]


def test_two_networks_carry_the_bytes_by_what_each_can_and_one_that_fails_is_parked(pool, networks):
    writers = Writers(pool, "tcp", networks.here.prefix)
    before = [networks.sent_bytes(name) for name, _, _ in LINKS]
    rates = []
    # Other processes may hold the processors for a while; a rail that was reached once stays reachable.
    for name in ("app.N0.T1", "app.N1.T1", "app.N2.T1"):
        began = time.monotonic()
        assert writers.run("write", name, 1, 96) == ("closed", 0)
        rates.append(96 * MIB * 8 / (time.monotonic() - began))
        if rates[-1] > 220e6:
            break
    fast, slow = (networks.sent_bytes(name) - old for (name, _, _), old in zip(LINKS, before))
    assert 1.2 < fast / slow < 4, "200 and 100 Mbit/s"
    assert rates[-1] > 220e6, "more than the faster one alone"

    # A network fails during a write: its transfers end at their deadline, the rest continues.
    with writers.paused("app.N0.T2", 2, 64, 8) as writer:
        go_on(writer)
        time.sleep(0.3)
        networks.here.run("ip", "link", "set", "rail1", "down")
        assert last_line(writer, 40) == "closed"
    assert writers.run("check", "app.N0.T2", 2, 64) == ("equal", 0)

    # The network returns, and the client uses it again by itself.
    networks.here.run("ip", "link", "set", "rail1", "up")
    before = networks.sent_bytes("rail1")
    with writers.paused("app.N0.T3", 3, 96, 8) as writer:
        go_on(writer)
        assert last_line(writer, 40) == "closed"
    assert networks.sent_bytes("rail1") - before > 16 * MIB
    assert writers.run("check", "app.N0.T3", 3, 96) == ("equal", 0)
