"""A standby takes the pool over from a manager that is killed or stopped, under a writer."""

import errno
import os
import pathlib
import threading
import time

from conftest import drop_caches, is_running, stopped, wait_until

IMAGE_BYTES = 64 << 10
STATED_SECONDS = 15  # docs/operating.md, for a manager whose process is lost or stopped
SLOW_MACHINE = 5

SHELL = """#!/bin/sh
shift
exec "$@"
"""


class Writer(threading.Thread):
    """Saves images one after the other, as a program does that tries one again when it failed."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self.folder = folder
        self.committed = {}
        self.failures = []
        self.longest = 0.0
        self.ends = threading.Event()
        self.start()

    def run(self):
        last = time.monotonic()
        while not self.ends.wait(0.05):
            name = f"app.N0.T{len(self.committed)}"
            content = os.urandom(IMAGE_BYTES)
            try:
                (self.folder / name).write_bytes(content)
            except OSError as error:
                self.failures.append(error)
                continue
            self.committed[name] = content
            self.longest = max(self.longest, time.monotonic() - last)
            last = time.monotonic()

    def goes_on(self, count=10, seconds=20.0):
        """Waits until it has committed `count` more."""
        wanted = len(self.committed) + count
        wait_until(lambda: len(self.committed) >= wanted, "the writer", seconds)

    def end(self):
        self.ends.set()
        self.join(60)
        assert not self.is_alive()


def all_there(folder, committed):
    drop_caches()
    for name, content in committed.items():
        assert (folder / name).read_bytes() == content, name


def start(pool, *words):
    pool.up("--standby", "--policy", "copies=2", *words, memory="64M", drain=False)
    wait_until(lambda: pool.status()["pool"]["log_copies"] == 3, "three copies of the metadata")
    assert pool.status()["pool"]["standby_follows"]
    assert "follows the manager" in pool.stdchk("status", pool.mount).stdout
    time.sleep(2)  # the standby hears twice a second who keeps the log
    folder = pool.mount / "app"
    folder.mkdir()
    return folder


def check_taken_over(pool, writer, folder, lost_at):
    """The writer commits again within the stated time, and all that it ever committed is there."""
    writer.goes_on(seconds=60)
    assert writer.longest < STATED_SECONDS + SLOW_MACHINE
    print(f"commits again {time.monotonic() - lost_at:.1f} s after the loss, longest stall "
          f"{writer.longest:.1f} s, {len(writer.failures)} writes failed: {writer.failures}")
    assert writer.failures == []  # the one that was under way went on
    assert pool.status()["pool"]["epoch"] >= 256
    all_there(folder, dict(writer.committed))


def test_a_killed_manager_is_followed_by_its_standby_under_a_writer(pool):
    folder = start(pool)
    writer = Writer(folder)
    writer.goes_on()
    lost_at = time.monotonic()
    pool.kill("manager")
    check_taken_over(pool, writer, folder, lost_at)
    writer.end()
    all_there(folder, writer.committed)
    pool.stdchk("check", pool.mount)
    refused = pool.stdchk("recover", pool.mount, check=False)
    assert refused.returncode != 0 and "has taken over and serves" in refused.stderr
    pool.down()


def test_a_stopped_manager_that_wakes_up_hears_of_its_standby_and_ends(pool):
    shell = pool.folder / "shell"
    shell.write_text(SHELL)
    shell.chmod(0o755)
    hosts = pool.folder / "hosts"
    hosts.write_text("one address=127.0.0.1 benefactors=1\ntwo address=127.0.0.1 benefactors=3\n")
    folder = start(pool, "--hosts", hosts, "--rsh", shell, "--listen", "127.0.0.1")
    standby = next(m for m in pool.record["members"] if m["role"] == "standby")
    assert standby["host"] == "one"
    (manager,) = pool.pids("manager")
    writer = Writer(folder)
    writer.goes_on()
    lost_at = time.monotonic()
    with stopped(manager):
        check_taken_over(pool, writer, folder, lost_at)
    wait_until(lambda: not is_running(manager), "the end of the manager that woke up")
    assert "has taken this pool over" in pathlib.Path(pool.record["directory"], "manager.log").read_text()
    writer.goes_on()
    writer.end()
    all_there(folder, writer.committed)
    pool.stdchk("check", pool.mount)
    pool.down()
