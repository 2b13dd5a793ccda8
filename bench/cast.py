#!/usr/bin/env python3
"""How long one file takes to reach 1, 4 and 16 hosts by stdchk-cast, over a sender's link of a given rate.

Hosts are network namespaces on one switch, with an MTU of 9000. tc's token bucket shapes the sender's link. Receivers drop
datagrams at random to stand for a network that loses some. Prints a line for each case: the seconds from the first
datagram until the last host has every byte, and their ratio to one host's; the bytes on the sender's link, in images; the
processors that all programs used; and the least time of unicast to each host. For root only.
"""

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = pathlib.Path(os.environ.get("STDCHK_BIN", ROOT / "build" / "bin"))


class Host:
    """A network namespace."""

    def __init__(self):
        own = os.readlink("/proc/self/ns/net")
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        while os.readlink(self.path) == own:
            time.sleep(0.01)
        self.run("ip", "link", "set", "lo", "up")

    @property
    def path(self):
        return f"/proc/{self.holder.pid}/ns/net"

    def command(self, *words):
        return ["nsenter", f"--net={self.path}", *map(str, words)]

    def run(self, *words):
        return subprocess.run(self.command(*words), check=True, capture_output=True, text=True).stdout

    def end(self):
        self.holder.kill()
        self.holder.wait()


class Network:
    """A switch and hosts on it. The first host's link has the rate."""

    def __init__(self, hosts, rate):
        self.switch, self.hosts = Host(), []
        self.switch.run("ip", "link", "add", "switch", "mtu", "9000", "type", "bridge", "mcast_snooping", "0")
        self.switch.run("ip", "link", "set", "switch", "up")
        for number in range(hosts):
            host = Host()
            self.hosts.append(host)
            self.switch.run("ip", "link", "add", f"port{number}", "mtu", "9000", "type", "veth", "peer", "name", "eth0",
                            "mtu", "9000", "netns", host.holder.pid)
            self.switch.run("ip", "link", "set", f"port{number}", "master", "switch", "up")
            host.run("ip", "address", "add", f"10.9.{number // 250}.{number % 250 + 1}/16", "dev", "eth0")
            host.run("ip", "link", "set", "eth0", "up")
        self.hosts[0].run("tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "256kb", "latency", "60ms")

    def sent_bytes(self):
        (link,) = json.loads(self.switch.run("ip", "-json", "-statistics", "link", "show", "port0"))
        return link["stats64"]["rx"]["bytes"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for each in (*self.hosts, self.switch):
            each.end()


def measure(receivers, rate_mbit, size_mib, lose):
    """Seconds, images on the link, and processors used."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, Network(receivers + 1, f"{rate_mbit}mbit") as network:
        folder = pathlib.Path(folder)
        (folder / "image").write_bytes(os.urandom(size_mib << 20))
        key = folder / "secret"
        key.touch(0o600)
        key.write_text(os.urandom(16).hex() + "\n")
        sender = subprocess.Popen(
            network.hosts[0].command(BIN / "stdchk-cast", "send", "--secret-file", key, "--own", "10.9.0.1", "--rate",
                                     f"{max(1, rate_mbit // 16)}M", "--expect", receivers, "--ready-file", folder / "ready",
                                     folder / "image"),
            stdout=subprocess.PIPE, text=True)
        while not (folder / "ready").exists():
            time.sleep(0.01)
        address, root = (folder / "ready").read_text().split()
        before, used, start = network.sent_bytes(), resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        running = [subprocess.Popen(
            network.hosts[number].command(BIN / "stdchk-cast", "receive", "--secret-file", key, "--own",
                                          f"10.9.{number // 250}.{number % 250 + 1}", "--sender", address, "--root", root,
                                          "--lose", lose, folder / f"copy{number}"), stdout=subprocess.PIPE, text=True)
            for number in range(1, receivers + 1)]
        for each in running:
            each.communicate()
        if any(each.returncode != 0 for each in running):
            sys.exit("a receiver failed")
        passed = time.monotonic() - start
        images = (network.sent_bytes() - before) / (size_mib << 20)
        # The sender's time from its first datagram to the last receiver's report of completion.
        seconds = float(sender.communicate()[0].split()[3])
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processors = (after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime) / passed
        wrong = [number for number in range(1, receivers + 1)
                 if (folder / f"copy{number}").read_bytes() != (folder / "image").read_bytes()]
        if wrong:
            sys.exit(f"wrong copies: {wrong}")
        return seconds, images, processors


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=100, help="of the sender's link, Mbit/s")
    parser.add_argument("--size", type=int, default=32, help="of the image, MiB")
    parser.add_argument("--hosts", type=int, nargs="*", default=[1, 4, 16])
    parser.add_argument("--lose", type=int, nargs="*", default=[0, 10, 50], help="of 1000 datagrams, at each receiver")
    parser.add_argument("--most", type=float, help="the run fails when N hosts without loss take longer than one by this factor")
    options = parser.parse_args()
    missed = False
    for lose in options.lose:
        alone = None
        for hosts in options.hosts:
            seconds, images, processors = measure(hosts, options.rate, options.size, lose)
            alone = alone or seconds
            unicast = hosts * (options.size << 20) * 8 / options.rate / 1e6
            print(f"{options.rate} Mbit/s, {options.size} MiB, {lose / 10:g} % lost, {hosts} hosts: {seconds:.2f} s, "
                  f"{seconds / alone:.2f} of one, {images:.2f} images on the link, {processors:.2f} processors; "
                  f"unicast at least {unicast:.1f} s", flush=True)
            missed = missed or bool(options.most and lose == 0 and seconds / alone > options.most)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
