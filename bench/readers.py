#!/usr/bin/env python3
"""Measures how long an image takes to reach 1, 4 and 16 hosts that read it at the same time, over shaped links.

Hosts are network namespaces on one switch. Both ends of each link are shaped (tc-tbf). Four hosts store the images. Every other
host has a benefactor with little memory, and a mount. For each case a new image is written on a host that stores images. The
readers open it, begin at the same moment, and read it once, in blocks of 1 MiB. Prints a line for each case, with these figures:
- the seconds until the last reader has every byte, and their ratio to the seconds of one reader;
- the bytes that left the hosts that store the image, in images;
- the share of this machine's processors that was busy.
For root only.
"""

import argparse
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "integration"))

from networks import Switch  # noqa: E402  (the path comes first)

BIN = pathlib.Path(os.environ.get("STDCHK_BIN", ROOT / "build" / "bin"))
HEAD = "10.9.255.1"
STORES = 4
MIB = 1 << 20
HOSTS = (1, 4, 16)

# Opens the image, waits for a line, reads the image, and prints its checksum.
READER = """
import sys, zlib
with open(sys.argv[1], "rb", buffering=0) as image:
    print("open", flush=True)
    sys.stdin.readline()
    found = 0
    while block := image.read(1 << 20):
        found = zlib.crc32(block, found)
    print(found, flush=True)
"""


def call(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def busy_and_all():
    """Returns the processors' busy time and all their time, in clock ticks."""
    fields = [int(field) for field in pathlib.Path("/proc/stat").read_text().split()[1:9]]
    return sum(fields) - fields[3] - fields[4], sum(fields)


class Pool:
    """A pool on hosts with shaped links: the first ones store images, the others read them."""

    def __init__(self, folder, bin_dir, readers, rate, size, *options):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.bin, self.images = folder, bin_dir, 0
        self.switch = Switch(STORES + readers, mounts=True)
        self.head = self.switch.bridge
        self.head.run("ip", "address", "add", f"{HEAD}/16", "dev", "switch")
        for number, host in enumerate(self.switch.hosts):
            for where, name in ((host, "eth0"), (self.head, f"port{number}")):
                where.run("tc", "qdisc", "add", "dev", name, "root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms")
        hosts, shell, nodes = folder / "hosts", folder / "shell", folder / "nodes"
        hosts.write_text("".join(
            f"h{i} address={Switch.address(i)} memory={self.memory_mib(i, size)}M benefactors=1\n"
            for i in range(STORES + readers)))
        cases = "\n".join(f'h{i}) exec {" ".join(host.prefix)} "$@";;' for i, host in enumerate(self.switch.hosts))
        shell.write_text(f"#!/bin/sh\nhost=$1\nshift\ncase $host in\n{cases}\nesac\n")
        shell.chmod(0o755)
        # Each host mounts the pool on its own directory, because a mount locks that directory.
        self.mount = nodes / "mount"
        self.mount.mkdir(parents=True)
        for i, host in enumerate(self.switch.hosts):
            own = folder / f"of-h{i}"
            (own / "mount").mkdir(parents=True)
            host.run("mount", "--bind", own, nodes)
        self.ask("up", "--mount", self.mount, "--state", folder / "state", "--hosts", hosts, "--rsh", shell, "--mount-on-hosts",
                 "--listen", HEAD, "--stripe-width", STORES, "--naming", "off", "--window", "16M", *options)

    @staticmethod
    def memory_mib(number, size):
        """The stores have room for all images. The readers' hosts have less free memory, so they get no stored chunks."""
        return (len(HOSTS) + 3) * size // STORES + 256 if number < STORES else max(2 * size // 3, 48)

    def ask(self, *words):
        return call(*self.head.prefix, self.bin / "stdchk", *words)

    def read_by(self, count, size):
        """Returns the seconds of `count` readers of a new image, the images that left the stores, and the busy share."""
        self.images += 1
        source, name = self.folder / "source", f"weights{self.images}"
        source.write_bytes(os.urandom(size * MIB))
        self.switch.hosts[0].run("cp", source, self.mount / name)
        crc = subprocess.run([sys.executable, "-c", READER, source], input="\n", capture_output=True, text=True,
                             check=True).stdout.split()[1]
        hosts = self.switch.hosts[STORES:STORES + count]
        readers = [subprocess.Popen([*host.prefix, sys.executable, "-c", READER, self.mount / name], text=True,
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE) for host in hosts]
        for reader in readers:
            if reader.stdout.readline() != "open\n":
                raise RuntimeError("a reader cannot open the image")
        time.sleep(0.2)  # the first readers hear of the others
        sent, (busy, total), start = self.sent(), busy_and_all(), time.monotonic()
        for reader in readers:
            print(file=reader.stdin, flush=True)
        found = [reader.stdout.readline().strip() for reader in readers]
        seconds, images = time.monotonic() - start, (self.sent() - sent) / (size * MIB)
        busy_after, total_after = busy_and_all()
        for reader in readers:
            reader.communicate()
        if found != [crc] * count:
            raise RuntimeError("a reader got wrong bytes")
        return seconds, images, (busy_after - busy) / max(total_after - total, 1)

    def sent(self):
        return sum(self.switch.sent_bytes(number) for number in range(STORES))

    def end(self):
        with contextlib.suppress(RuntimeError):
            self.ask("down", self.mount)
        self.switch.end()


@contextlib.contextmanager
def pool(folder, bin_dir, readers, rate, size, *options):
    made = Pool(pathlib.Path(folder), bin_dir, readers, rate, size, *options)
    try:
        yield made
    finally:
        made.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", default="100mbit", help="rate of each link, as tc has it")
    parser.add_argument("--size", type=int, default=64, help="size of the image, MiB")
    parser.add_argument("--hosts", type=int, nargs="*", default=HOSTS)
    parser.add_argument("--most", type=float, help="fail if N hosts take longer than one host by this factor")
    parser.add_argument("--without", action="store_true", help="measure without near copies, too")
    options = parser.parse_args()
    missed = False
    for reader_copies in ("on", "off") if options.without else ("on",):
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, \
                pool(folder, BIN, max(options.hosts), options.rate, options.size, "--reader-copies", reader_copies) as made:
            alone = None
            for hosts in options.hosts:
                seconds, images, busy = made.read_by(hosts, options.size)
                alone = alone or seconds
                print(f"{options.rate}, {options.size} MiB, near copies {reader_copies}, {hosts} hosts: {seconds:.2f} s, "
                      f"{seconds / alone:.2f} of one, {images:.2f} images left the stores, {100 * busy:.0f} % busy", flush=True)
                missed = missed or bool(options.most and reader_copies == "on" and seconds / alone > options.most)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
