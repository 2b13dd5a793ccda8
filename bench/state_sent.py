#!/usr/bin/env python3
"""Measures the state that clones on other hosts need: bench/state_sent.py [--mib N] [--hosts N] [--rounds N] [--json]

The comparison is with a process that is suspended and resumed as a whole, as in table 2 of the SnowFlock paper. A process
has loaded data into memory. Workers on other hosts each read 4 % of it. Hosts are network namespaces on one switch. The time runs from the request until the last worker has its result. The sent state is what leaves the process's host.

- clones: sf_clone to all hosts. Sent: all bytes to the daemons there: CRIU's small image, and pages that clones touch.
- suspend and resume, multicast: CRIU dumps the process, stdchk-cast sends the image, CRIU restores it on each host.
- suspend and resume, unicast: the same steps; the hosts get the image in turns, by unicast.

Needs root, and the CRIU of scripts/trixie-root.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = pathlib.Path(os.environ.get("STDCHK_BIN", ROOT / "build" / "bin"))
sys.path.insert(0, str(ROOT / "tests" / "integration"))
sys.path.insert(0, str(ROOT / "python"))

from networks import Switch  # noqa: E402  (the path comes first)

MIB = 1 << 20
SHARE = 25  # a worker reads a 25th of the memory
PAGES = "pages-1.img"
WAIT_S = 120


def wait_for(condition, what):
    until = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > until:
            sys.exit(f"state_sent: {what} did not come")
        time.sleep(0.005)


def load(mib):
    """The data of the parent: each page has a number."""
    memory = bytearray(mib * MIB)
    for at in range(0, len(memory), 4096):
        memory[at] = at // 4096 % 251
    return memory


def work(memory, number):
    """Reads the worker's part of the memory, in runs of 16 pages."""
    pages = len(memory) // 4096
    first = number * pages // SHARE % (pages - pages // SHARE)
    return sum(memory[first * 4096:(first + pages // SHARE) * 4096:4096])


class Hosts:
    def __init__(self, folder, count):
        self.folder, self.network = folder, Switch(count + 1)
        self.names = [self.network.address(number) for number in range(1, count + 1)]
        for number, name in enumerate(self.names, 1):
            (folder / f"net-{name}").write_text(self.network.hosts[number].path)

    @property
    def prefix(self):
        return self.network.hosts[0].prefix

    def script(self, name, text):
        path = self.folder / name
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)
        return path


def parent_of_clones(mib, hosts):
    """Runs in a process of its own. Prints the seconds."""
    from stdchk import fork  # noqa: PLC0415

    memory = load(mib)
    began = time.monotonic()
    ticket = fork.request_ticket(hosts + 1)
    me = fork.clone(ticket)
    if me:
        fork.exit(work(memory, me))
    results = fork.join(ticket)
    took = time.monotonic() - began
    assert ticket.count == hosts + 1
    assert results == {one: work(memory, one) for one in range(1, hosts + 2)}
    print(took)


def by_clones(hosts, criu, mib):
    """Returns the seconds and the MiB to other hosts. The first clone stays on the parent's host."""
    folder = hosts.folder
    for old in folder.glob("sent-*"):
        old.unlink()
    # tee copies what goes to a host into wc.
    rsh = hosts.script("rsh", f"""host=$1; shift
tee >(wc -c >{folder}/part-$host; mv {folder}/part-$host {folder}/sent-$host) |
  nsenter --net=$(cat {folder}/net-$host) unshare --uts --mount --propagation slave bash -c "hostname far-$host; $*" """)
    forkd = hosts.script("forkd", f'exec {BIN / "stdchk-forkd"} --criu {criu} --log-level warning "$@"')
    (folder / "hosts").write_text("".join(f"{name} slots=1 memory=1G\n" for name in hosts.names))
    ready = folder / "ready"
    ready.unlink(missing_ok=True)
    daemon = subprocess.Popen([*hosts.prefix, BIN / "stdchk-forkd", "--socket", folder / "run" / "socket", "--ready-file", ready,
                               "--slots", "1", "--clone-memory", "16M", "--hosts", folder / "hosts", "--rsh", rsh,
                               "--remote-program", forkd, "--criu", criu, "--log-level", "warning"])
    try:
        wait_for(ready.exists, "the daemon")
        environment = dict(os.environ, STDCHK_FORKD=str(folder / "run" / "socket"), STDCHK_FORK_LIBRARY=str(
            (BIN / "stdchk-forkd").resolve().parent / "libstdchk_fork.so.0"))
        said = subprocess.run([*hosts.prefix, sys.executable, __file__, "--parent", "--mib", str(mib), "--hosts",
                               str(len(hosts.names))], env=environment, cwd="/", check=True, capture_output=True, text=True,
                              timeout=WAIT_S)
        sent = [folder / f"sent-{name}" for name in hosts.names]
        wait_for(lambda: all(path.exists() for path in sent), "the end of the remote shells")
        return float(said.stdout), sum(int(path.read_text()) for path in sent) / MIB
    finally:
        daemon.terminate()
        daemon.wait()


# A process that waits for its number, which is in a file of its host's folder, and writes its result there.
WAITER = """
import os, pathlib, sys, time
sys.path.insert(0, sys.argv[1])
from state_sent import load, work
memory = load(int(sys.argv[2]))
pathlib.Path(sys.argv[3], "loaded").touch()
place = pathlib.Path("/mnt")
while not (place / "number").exists(): time.sleep(0.005)
number = int((place / "number").read_text())
(place / "part").write_text(str(work(memory, number)))
os.rename(place / "part", place / "result")
"""


def suspended(hosts, criu, mib):
    """Starts a process, waits until it has its data, and dumps it. Returns the folder of the image, and the time before
    the dump."""
    folder = hosts.folder / "suspended"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    process = subprocess.Popen(["setsid", sys.executable, "-c", WAITER, ROOT / "bench", str(mib), folder], cwd="/",
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for((folder / "loaded").exists, "the process to suspend")
    image = folder / "image"
    image.mkdir()
    began = time.monotonic()
    done = subprocess.run([criu, "dump", "-t", str(process.pid), "-D", image, "-o", "dump.log", "-v1",
                           "--manage-cgroups=ignore"], capture_output=True, text=True)
    if done.returncode != 0:
        process.kill()
        sys.exit("state_sent: CRIU cannot dump: " + (image / "dump.log").read_text()[-500:])
    process.wait(WAIT_S)
    return image, began


def resume(hosts, criu, number, image):
    """Starts the process from the image on a host, and returns the command that runs until the process ends."""
    script = (f"mount -t tmpfs none /mnt && echo {number} >/mnt/number && mount -t proc proc /proc && "
              f"{criu} restore -D {image} -o restore.log -v1 --manage-cgroups=ignore && cp /mnt/result {image}/result")
    return subprocess.Popen([*hosts.network.hosts[number].prefix, "unshare", "--pid", "--fork", "--mount", "--uts", "sh", "-c",
                             script], stdin=subprocess.DEVNULL)


def receive(hosts, key, sender, number, to):
    address, root = sender
    return subprocess.Popen([*hosts.network.hosts[number].prefix, BIN / "stdchk-cast", "receive", "--secret-file", key, "--own",
                             hosts.network.address(number), "--sender", address, "--root", root, to / PAGES],
                            stdout=subprocess.DEVNULL)


def by_suspension(hosts, criu, mib, multicast):
    """Returns the seconds and the MiB to other hosts."""
    image, began = suspended(hosts, criu, mib)
    count = len(hosts.names)
    key, ready = hosts.folder / "key", hosts.folder / "cast-ready"
    key.touch(0o600)
    key.write_text(os.urandom(16).hex() + "\n")
    ready.unlink(missing_ok=True)
    before = hosts.network.sent_bytes(0)
    sender = subprocess.Popen([*hosts.prefix, BIN / "stdchk-cast", "send", "--secret-file", key, "--own", hosts.network.address(0),
                               "--expect", str(count if multicast else 1), "--idle", "60", "--ready-file", ready,
                               image / PAGES], stdout=subprocess.DEVNULL)
    wait_for(ready.exists, "the sender")
    places = [hosts.folder / f"host{number}" for number in range(1, count + 1)]
    small = [path for path in image.glob("*.img") if path.name != PAGES]
    for place in places:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        for path in small:
            shutil.copy(path, place)
    address = ready.read_text().split()
    running, resumed = [], []
    for number, place in enumerate(places, 1):
        running.append(receive(hosts, key, address, number, place))
        if not multicast:
            running[-1].wait(WAIT_S)
    for number, (each, place) in enumerate(zip(running, places, strict=True), 1):
        if each.wait(WAIT_S) != 0:
            sys.exit("state_sent: a receiver failed")
        resumed.append(resume(hosts, criu, number, place))
    for number, (each, place) in enumerate(zip(resumed, places, strict=True), 1):
        if each.wait(WAIT_S) != 0:
            sys.exit(f"state_sent: host {number} cannot resume: " + (place / "restore.log").read_text()[-500:])
    took = time.monotonic() - began
    sender.terminate()
    sender.wait()
    sent = hosts.network.sent_bytes(0) - before + count * sum(path.stat().st_size for path in small)
    memory = load(mib)
    for number, place in enumerate(places, 1):
        assert int((place / "result").read_text()) == work(memory, number)
    shutil.rmtree(image.parent)
    for place in places:
        shutil.rmtree(place)
    return took, sent / MIB


def criu_here():
    made = subprocess.run([ROOT / "scripts" / "trixie-root"], capture_output=True, text=True)
    if made.returncode != 0:
        sys.exit("state_sent: CRIU is absent: " + made.stderr.strip().splitlines()[-1])
    return pathlib.Path(made.stdout.strip()) / "criu-here"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--parent", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.parent:
        return parent_of_clones(given.mib, given.hosts)
    criu = criu_here()
    ways = {"clones": lambda hosts: by_clones(hosts, criu, given.mib),
            "suspend and resume, multicast": lambda hosts: by_suspension(hosts, criu, given.mib, True),
            "suspend and resume, unicast": lambda hosts: by_suspension(hosts, criu, given.mib, False)}
    found = {way: {"seconds": [], "sent_mib": []} for way in ways}
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="stdchk-bench-") as folder:
        hosts = Hosts(pathlib.Path(folder), given.hosts)
        try:
            for _ in range(given.rounds):
                for way, measure in ways.items():
                    seconds, sent = measure(hosts)
                    found[way]["seconds"].append(seconds)
                    found[way]["sent_mib"].append(sent)
        finally:
            hosts.network.end()
    if given.json:
        return print(json.dumps({"mib": given.mib, "hosts": given.hosts, "ways": found, "taken": time.time()}))
    for way, figures in found.items():
        print(f"{given.mib} MiB, {given.hosts} hosts, {way}: {statistics.median(figures['seconds']):.2f} s, "
              f"{statistics.median(figures['sent_mib']):.1f} MiB sent")


if __name__ == "__main__":
    main()
