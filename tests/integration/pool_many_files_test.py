"""Many files at once: open for writing, open in a process that is killed, in one folder."""

import os
import resource
import subprocess
import sys
import threading
import time
import urllib.request

from processes import PATIENCE, wait_until

# Files that the killed process has open, or fewer where the system allows fewer.
OPEN_FILES = min(19_900, resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 100)
LISTED_FILES = 100_000

WRITER = """
import os, sys, time
files = []
for i in range(int(sys.argv[2])):
    files.append(os.open(f"{sys.argv[1]}/f{i}", os.O_CREAT | os.O_WRONLY, 0o644))
    os.write(files[-1], b"%100d" % i)
print("open", flush=True)
time.sleep(1000)
"""


def allow_open_files(count):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(count + 100, hard), hard))


class Prober(threading.Thread):
    """Makes and reads small files all the time. Keeps the longest time of one round, in seconds, and the errors."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder
        self.stopped = threading.Event()
        self.longest = 0.0
        self.errors = []
        self.rounds = 0

    def run(self):
        while not self.stopped.is_set():
            begun = time.monotonic()
            path = self.folder / f"probe{self.rounds % 20}"
            try:
                path.write_bytes(b"x")
                assert path.read_bytes() == b"x"
            except OSError as error:
                self.errors.append(error)
            self.longest = max(self.longest, time.monotonic() - begun)
            self.rounds += 1
            time.sleep(0.01)


def test_a_killed_process_with_many_open_files_does_not_stop_others(pool):
    pool.up(benefactors=2, memory="512M", drain=False)
    other = pool.mount_by_hand("other")
    (pool.mount / "many").mkdir()
    (pool.mount / "probes").mkdir()
    writer = subprocess.Popen([sys.executable, "-c", WRITER, pool.mount / "many", str(OPEN_FILES)],
                              stdout=subprocess.PIPE, text=True, preexec_fn=lambda: allow_open_files(OPEN_FILES))
    prober = Prober(other / "probes")
    try:
        assert writer.stdout.readline() == "open\n"
        prober.start()
        wait_until(lambda: prober.rounds >= 20, "the first probes")
        writer.kill()
        writer.wait(60 * PATIENCE)
        wait_until(lambda: pool.status()["pool"]["sessions"] == 0, "the end of all sessions", 60)
    finally:
        writer.kill()
        prober.stopped.set()
        if prober.is_alive():
            prober.join()
    assert prober.errors == []
    assert prober.longest < 2 * PATIENCE, prober.longest
    assert os.listdir(other / "many") == []


def test_writers_beyond_the_window_neither_wait_nor_take_a_chunk_each(pool):
    """The window of the mount has 128 slots of 1 MiB. Each of 700 open files has 100 bytes there, or in the pool."""
    pool.up(benefactors=2, memory="512M", drain=False)
    count = 700
    allow_open_files(count + 200)
    free_before = pool.status()["pool"]["free_bytes"]
    files = [os.open(pool.mount / f"f{i}", os.O_CREAT | os.O_WRONLY, 0o644) for i in range(count)]
    try:
        begun = time.monotonic()
        for i, file in enumerate(files):
            os.write(file, b"%100d" % i)
        each = (time.monotonic() - begun) / count
        # `status` is a child process: its start closes copies of the descriptors, which commits all files. Only the
        # files that were opened first, one for each second slot, have space for a whole chunk.
        taken = free_before - pool.status()["pool"]["free_bytes"]
    finally:
        for file in files:
            os.close(file)
    assert taken < 80 << 20, taken
    assert each < 0.004 * PATIENCE, each
    for i in range(count):
        assert (pool.mount / f"f{i}").read_bytes() == b"%100d" % i


def requests_served(pool):
    """The number of requests that the manager has served. The pool was started with --metrics."""
    address = next(member["metrics"] for member in pool.status()["members"] if member["role"] == "manager")
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30 * PATIENCE) as page:
        lines = page.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("stdchk_requests_total "))


def test_a_folder_of_100000_files_is_listed_within_a_second(pool):
    """A new pool shows the files of the drain directory, which is the fastest way to make so many files."""
    folder = pool.drain / "many"
    folder.mkdir(parents=True)
    for i in range(LISTED_FILES):
        (folder / f"file{i:06}").touch()
    pool.up("--metrics", "127.0.0.1:0", benefactors=1, memory="256M")

    def seconds_of(count):
        begun = time.monotonic()
        assert count() == LISTED_FILES
        return time.monotonic() - begun

    def long_list():
        """ls also asks for two extended attributes of each file, which the mount answers."""
        done = subprocess.run(["ls", "-l", pool.mount / "many"], stdout=subprocess.PIPE, check=True)
        return done.stdout.count(b"\n") - 1  # without the line for the total

    first = seconds_of(lambda: len(os.listdir(pool.mount / "many")))
    with_attributes = seconds_of(lambda: sum(one.stat().st_size == 0 for one in os.scandir(pool.mount / "many")))
    before = requests_served(pool)
    long = seconds_of(long_list)
    asked = requests_served(pool) - before
    assert first < PATIENCE, first
    assert with_attributes < 5 * PATIENCE, with_attributes
    assert long < 20 * PATIENCE, long
    # Each page of the folder has many files. A request for each file would be 100,000.
    assert asked < LISTED_FILES / 4, asked
