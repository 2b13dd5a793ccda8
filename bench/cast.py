#!/usr/bin/env python3
"""Measures how long a file takes to reach 1, 4 and 16 hosts by stdchk-cast, over a sender's link of a given rate.

Hosts are network namespaces on one switch, with an MTU of 9000. tc's token bucket shapes the sender's link. Receivers drop
datagrams at random, like a network with losses. Prints a line for each case, with these figures:
- the seconds from the first datagram until the last host has every byte, and their ratio to the seconds of one host;
- the bytes on the sender's link, in images;
- the processors that all programs used;
- the least time of unicast to each host.
For root only.
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
sys.path.insert(0, str(ROOT / "tests" / "integration"))

from networks import Switch  # noqa: E402  (the path comes first)

BIN = pathlib.Path(os.environ.get("STDCHK_BIN", ROOT / "build" / "bin"))


class Network(Switch):
    """A switch and hosts on it. The first host's link has the rate."""

    def __init__(self, hosts, rate):
        super().__init__(hosts)
        self.hosts[0].run("tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "256kb", "latency", "60ms")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def start_on(host, *words):
    """Starts stdchk-cast on a host."""
    return subprocess.Popen([*host.prefix, BIN / "stdchk-cast", *map(str, words)], stdout=subprocess.PIPE, text=True)


def measure(receivers, rate_mbit, size_mib, lose):
    """Returns the seconds, the bytes on the link in images, and the processors used."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, Network(receivers + 1, f"{rate_mbit}mbit") as network:
        folder = pathlib.Path(folder)
        (folder / "image").write_bytes(os.urandom(size_mib << 20))
        key = folder / "secret"
        key.touch(0o600)
        key.write_text(os.urandom(16).hex() + "\n")
        sender = start_on(network.hosts[0], "send", "--secret-file", key, "--own", network.address(0), "--rate",
                          f"{max(1, rate_mbit // 16)}M", "--expect", receivers, "--ready-file", folder / "ready",
                          folder / "image")
        while not (folder / "ready").exists():
            time.sleep(0.01)
        address, root = (folder / "ready").read_text().split()
        before, used, start = network.sent_bytes(0), resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        running = [start_on(network.hosts[number], "receive", "--secret-file", key, "--own", network.address(number),
                            "--sender", address, "--root", root, "--lose", lose, folder / f"copy{number}")
                   for number in range(1, receivers + 1)]
        for each in running:
            each.communicate()
        if any(each.returncode != 0 for each in running):
            sys.exit("a receiver failed")
        passed = time.monotonic() - start
        images = (network.sent_bytes(0) - before) / (size_mib << 20)
        # The sender's time from its first datagram to the last receiver's report of completion.
        seconds = float(sender.communicate()[0].split()[3])
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processors = (after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime) / passed
        wrong = [number for number in range(1, receivers + 1)
                 if (folder / f"copy{number}").read_bytes() != (folder / "image").read_bytes()]
        if wrong:
            sys.exit(f"wrong copies: {wrong}")
        return seconds, images, processors


def print_json(options):
    for lose in options.lose:
        for hosts in options.hosts:
            seconds, images, processors = zip(*(measure(hosts, options.rate, options.size, lose) for _ in range(options.rounds)))
            print(json.dumps({"lose": lose, "hosts": hosts, "seconds": seconds, "images": images, "processors": processors,
                              "taken": time.time()}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=100, help="rate of the sender's link, Mbit/s")
    parser.add_argument("--size", type=int, default=32, help="size of the image, MiB")
    parser.add_argument("--hosts", type=int, nargs="*", default=[1, 4, 16])
    parser.add_argument("--lose", type=int, nargs="*", default=[0, 10, 50], help="losses among 1000 datagrams, at each receiver")
    parser.add_argument("--most", type=float, help="fail if N hosts without loss take longer than one host by this factor")
    parser.add_argument("--rounds", type=int, default=1, help="with --json: measurements of each case")
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each case")
    options = parser.parse_args()
    if options.json:
        return print_json(options)
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
