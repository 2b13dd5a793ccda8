"""Drives the same work through stdchk and the file systems beside it, in turns. Used by bench/run.

Each system runs alone, on an island of its own (island.py), and is started and stopped in each round. Requires root."""

import contextlib
import json
import os
import pathlib
import signal
import tempfile
import time

import peer_systems
from island import island
from report import Failure, Series

MIB = 1 << 20
RATES = ("write of 1 MiB", "write of 4 KiB", "4 writers", "read, cold", "read, warm")
NAMES = ("create", "stat", "rename", "unlink")
TIMES = ("start-up", "shut-down")
UNITS = {**dict.fromkeys(RATES, "GB/s"), **dict.fromkeys(NAMES, "names/s"), **dict.fromkeys(TIMES, "s")}
NEEDS = {"read, cold": "content", "read, warm": "content", "rename": "rename"}  # what a row needs of the system
WORK_SECONDS = 900  # the deadline of one system's work in one round

RATIOS = [f"{what}, against {peer.name}*" for peer in peer_systems.ALWAYS for what in (*RATES, *NAMES)
          if NEEDS.get(what) not in peer.lacks]


def text(size_mib, files):
    """Returns the introduction of the section's page."""
    setups = "\n        ".join(f"- *{peer.name}*: {peer.about}." for peer in peer_systems.ALL)
    return f"""
        The same program runs on each system. Each system is alone on this machine, in namespaces with a loopback device only. The
        figure is stdchk's, and the ceiling is the other system's. With a ratio above 1, stdchk has the higher rate. For start-up
        and shut-down, stdchk is faster with a ratio below 1.

        - Images have {size_mib} MiB, and each page has other bytes. They are written by calls of 1 MiB, by calls of 4 KiB, and by
          4 threads, a quarter each. The time runs from open until close has returned. All images are read back, and each byte is
          compared.
        - *cold*: reads after posix_fadvise has dropped the file from the kernel's cache. *warm*: reads right after that.
        - Names: one thread uses {files} empty files in one folder. The mount of stdchk holds the folder, and stores changes in batches.
        - *Start-up* ends when the mount is usable, *shut-down* when all daemons have ended.
        {setups}"""


def missing():
    """Returns the reason why this machine cannot run the section, or ''."""
    return "" if os.geteuid() == 0 else "only root can make namespaces and mounts"


@contextlib.contextmanager
def ended_in_order():
    """SIGTERM ends the bench like an interrupt, so that everything that was started is ended."""
    def stop(number, _):
        raise KeyboardInterrupt(signal.Signals(number).name)
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def work(where, python, place, size, files, lacks):
    command = [python, peer_systems.WORK, place, "--size", size, "--files", files]
    return json.loads(where.run(*command, *(f"--lacks={each}" for each in lacks), seconds=WORK_SECONDS))


def one_round(kind, bin_dir, disk, size, files):
    """Starts the system, does the work, and stops the system. Returns {figure's name: value}."""
    # Each system gets separate scratch folders, and twice the memory of the images.
    with tempfile.TemporaryDirectory(prefix=f"stdchk-peers-{os.getpid()}-", dir="/dev/shm", ignore_cleanup_errors=True) as folder, \
            tempfile.TemporaryDirectory(prefix=f"stdchk-peers-{os.getpid()}-", dir=disk) as on_disk, island() as where:
        peer = kind(where, bin_dir, pathlib.Path(folder), pathlib.Path(on_disk), 2 * size // MIB + 256)
        began = time.monotonic()
        try:
            place = peer.start()
            started = time.monotonic()
            found = work(where, peer.python, place, size, files, kind.lacks)
            stopping = time.monotonic()
            peer.stop()
        except Failure as why:
            raise Failure(f"{why} {peer.said()}".strip()) from None
        if kind is not peer_systems.Disk:
            found |= {"start-up": started - began, "shut-down": time.monotonic() - stopping}
        return found


def reason(kind, what, ours, theirs):
    """Returns in words why stdchk is behind in this row, or '' if it is not."""
    ratio = ours.over(theirs).median
    if ratio <= 1 if what in TIMES else ratio >= 1:
        return ""
    general = "" if what in TIMES else kind.slower.get("")
    return " (" + (kind.slower.get(what) or general or "ours is behind; no cause has been measured") + ")"


def add_rows(report, found, taken):
    """`found`: by system, for each round {what: value}."""
    ours = found[peer_systems.OURS]
    for what in UNITS:
        for kind, rounds in found.items():
            if kind is peer_systems.OURS or any(what not in each for each in rounds):
                continue
            mine, theirs = (Series([each[what] for each in values], UNITS[what], taken) for values in (ours, rounds))
            report.add(f"{what}, against {kind.name}{reason(kind, what, mine, theirs)}", mine, kind.name, theirs)


def measure(report, bin_dir, scratch, rounds, size, files, kinds=peer_systems.ALL):
    """Measures all systems in turns. Each round begins with another system. The page names systems that cannot run."""
    absent = {kind: kind.missing() for kind in kinds}
    absent = {kind: why for kind, why in absent.items() if why}
    kinds = [kind for kind in kinds if kind not in absent]
    found, taken = {kind: [] for kind in kinds}, time.time()
    with ended_in_order():
        for number in range(rounds):
            turn = number % len(kinds)
            for kind in kinds[turn:] + kinds[:turn]:
                if kind in absent:
                    continue
                try:
                    found[kind].append(one_round(kind, bin_dir, scratch, size, files))
                except Failure as why:
                    if kind is peer_systems.OURS or kind in peer_systems.ALWAYS:
                        raise
                    absent[kind] = " ".join(str(why).split())
                    print(f"  {kind.name}: {absent[kind]}", flush=True)
    add_rows(report, {kind: values for kind, values in found.items() if kind not in absent}, taken)
    for kind, why in absent.items():
        report.text += f"\n- NOT MEASURED: {kind.name}: {why}."
        print(f"  not measured: {kind.name}: {why}", flush=True)
