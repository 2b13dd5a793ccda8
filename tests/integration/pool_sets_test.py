"""Tests sets that are written again: the links must name a complete set meanwhile, in the pool and in the drain
directory."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time

from conftest import restart_manager
from processes import wait_until

RANKS = 3
REWRITER = """
import sys
with open(sys.argv[1], "wb", buffering=0) as image:
    image.write(bytes(1000))
    print("open", flush=True)
    sys.stdin.read()
"""
KIB = 1 << 10


def write_image(folder, rank, timestep, content):
    (folder / f"app.N{rank}.T{timestep}").write_bytes(bytes([content]) * (100 * KIB + rank))


def write_set(folder, timestep, content):
    for rank in range(RANKS):
        write_image(folder, rank, timestep, content)


def link_of(folder):
    with contextlib.suppress(FileNotFoundError):
        return os.readlink(folder / "latest")
    return None


def drain(pool):
    pool.stdchk("drain", "--wait", "--timeout", 50, pool.mount)


class Watch:
    """Watches the link in a drain directory all the time."""

    def __init__(self, folder):
        self.folder, self.looks, self.mixed = folder, 0, []
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        self.thread.join()

    def look(self):
        """The set that the link named throughout the look, and the first byte of each of its images."""
        before = os.lstat(self.folder / "latest")
        named = os.readlink(self.folder / "latest")
        found = []
        for rank in range(RANKS):
            try:
                with open(self.folder / named.replace("*", f"N{rank}"), "rb") as image:
                    found.append(image.read(1))
            except FileNotFoundError:
                found.append(None)
        after = os.lstat(self.folder / "latest")
        same = (before.st_ino, before.st_ctime_ns) == (after.st_ino, after.st_ctime_ns)
        return (named, found) if same else None

    def run(self):
        while not self.ends.is_set():
            with contextlib.suppress(FileNotFoundError):
                seen = self.look()
                if seen is None:
                    continue
                self.looks += 1
                if None in seen[1] or len(set(seen[1])) > 1:
                    self.mixed.append(seen)


def test_the_drain_directorys_link_never_names_a_set_that_is_being_replaced(pool):
    pool.up("--policy", f"images={RANKS},keep=1", benefactors=2)
    with Watch(pool.drain) as watch:
        for content in range(8):
            timestep = content % 2
            for rank in range(RANKS):
                write_image(pool.mount, rank, timestep, content)
                # The set drains in several steps, and the manager restarts between them.
                if rank == content % RANKS:
                    drain(pool)
                if rank == 1 and content % 3 == 2:
                    pool.kill("manager")
                    pool.stdchk("recover", pool.mount)
            drain(pool)
            wait_until(lambda now=timestep: link_of(pool.drain) == f"app.*.T{now}", "the link")
        # Rewriting one image breaks the newest set. Its predecessor, which the pool has removed, is whole in
        # the drain directory.
        write_image(pool.mount, 1, 1, 100)
        drain(pool)
        assert link_of(pool.drain) == "app.*.T0" and link_of(pool.mount) is None
        # Rewriting an image of that set leaves no whole set.
        write_image(pool.mount, 1, 0, 101)
        drain(pool)
        assert link_of(pool.drain) is None
    assert watch.looks > 100 and watch.mixed == []
    pool.down()


def images(folder):
    return sorted(name for name in os.listdir(folder) if name.startswith("app."))


def of_sets(*timesteps):
    return sorted(f"app.N{rank}.T{timestep}" for timestep in timesteps for rank in range(RANKS))


def test_old_sets_go_by_themselves_but_not_what_must_be_drained_first_nor_the_last_complete_one(pool):
    """The manager removes sets at their time, without any request of a client."""
    pool.up("--policy", f"images={RANKS},purge-after=3s,must-be-drained=yes", benefactors=2)
    for folder in ("kept/app.N1.T2", "free/app.N0.T1"):  # blocks the drain of an image with this name
        (pool.drain / folder / "in the way").mkdir(parents=True)
    kept, free = pool.mount / "kept", pool.mount / "free"
    kept.mkdir()
    free.mkdir()
    pool.stdchk("policy", "set", free, "must-be-drained=no")
    began = time.monotonic()
    for timestep in (1, 2, 3):
        write_set(kept, timestep, timestep)
        if timestep < 3:
            write_set(free, timestep, timestep)
    if time.monotonic() - began < 2:  # on an idle machine: no set is old yet
        assert images(kept) == of_sets(1, 2, 3) and images(free) == of_sets(1, 2)
    wait_until(lambda: images(kept) == of_sets(2, 3), "the end of the first set, which is drained")
    wait_until(lambda: images(free) == of_sets(2), "the end of one that need not be drained")
    assert link_of(kept) == "app.*.T3" and link_of(free) == "app.*.T2"
    time.sleep(4)  # then all remaining sets are older than the limit
    assert images(kept) == of_sets(2, 3) and images(free) == of_sets(2)
    assert (kept / "app.N0.T2").read_bytes() == bytes([2]) * (100 * KIB)
    (pool.drain / "kept" / "app.N1.T2" / "in the way").rmdir()
    (pool.drain / "kept" / "app.N1.T2").rmdir()
    drain(pool)
    wait_until(lambda: images(kept) == of_sets(3), "the end of the one that is drained now")
    assert images(pool.drain / "kept") == of_sets(1, 2, 3)
    assert link_of(kept) == link_of(pool.drain / "kept") == "app.*.T3"
    pool.down()


def test_a_set_whose_images_are_written_again_while_the_manager_is_restarted_is_not_whole(pool):
    pool.up(benefactors=2)
    pool.stdchk("policy", "set", pool.mount, f"images={RANKS}")

    def is_complete():
        (one,) = json.loads(pool.stdchk("set", "list", "--json", pool.mount).stdout)["sets"]
        return one["complete"]

    for rank in (0, 1):
        write_image(pool.mount, rank, 1, 1)
    # Runs in its own process: a fork of this one would close the open file, too, and wait for the manager.
    with subprocess.Popen([sys.executable, "-c", REWRITER, pool.mount / "app.N0.T1"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as again:
        assert again.stdout.readline() == b"open\n"
        pool.kill("manager")
        restart_manager(pool)
        write_image(pool.mount, 2, 1, 2)
        assert not is_complete() and link_of(pool.mount) is None
    assert again.returncode == 0
    assert not is_complete() and link_of(pool.mount) is None
    write_image(pool.mount, 1, 1, 2)
    assert is_complete()
    wait_until(lambda: link_of(pool.mount) == "app.*.T1", "the link")
    pool.down()
