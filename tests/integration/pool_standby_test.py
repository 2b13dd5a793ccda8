"""Tests that a standby takes over during a write, from a manager that is killed, stopped or cut off."""

import errno
import os
import pathlib
import subprocess
import sys
import threading
import time

from conftest import drop_caches
from processes import is_running, stopped, wait_until
from writers import go_on

IMAGE_BYTES = 64 << 10
STATED_SECONDS = 15  # docs/guide/failures.md: for a manager whose process is lost or stopped
STATED_SECONDS_HOST = 20  # for a manager whose host is lost
CALL_SECONDS = 31  # limit of a call without a manager: 30 s (docs/guide/failures.md), and 1 s for this machine
SLOW_MACHINE = 5
# Stores an image, and closes it after a line of input. Runs in its own process: starting another process
# would close the open files there, too.
IMAGE = """
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
os.write(fd, b"of the old manager")
os.fsync(fd)
print("stored", flush=True)
sys.stdin.readline()
try:
    os.close(fd)
    print(0)
except OSError as error:
    print(error.errno)
"""


class Writer(threading.Thread):
    """Saves images one after the other, and repeats failed images, as programs do."""

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
        """Waits until the writer has committed `count` more images."""
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


def write_hosts(pool, address, prefix=""):
    """Returns options for two hosts at an address. `prefix` runs a command there."""
    shell, hosts = pool.folder / "shell", pool.folder / "hosts"
    shell.write_text(f'#!/bin/sh\nshift\nexec {prefix} "$@"\n')
    shell.chmod(0o755)
    hosts.write_text(f"one address={address} benefactors=1\ntwo address={address} benefactors=3\n")
    return "--hosts", hosts, "--rsh", shell


def start(pool, *words):
    pool.up("--standby", "--policy", "copies=2", *words, memory="64M", drain=False)
    return followed(pool)


def followed(pool):
    """A folder in the pool, once its standby can take over."""
    wait_until(lambda: pool.status()["pool"]["log_copies"] == 3, "three copies of the metadata")
    assert pool.status()["pool"]["standby_follows"]
    assert "follows the manager" in pool.stdchk("status", pool.mount).stdout
    time.sleep(2)  # twice a second the standby learns which benefactors keep the log
    folder = pool.mount / "app"
    folder.mkdir()
    return folder


def check_taken_over(pool, writer, folder, lost_at, stated_seconds=STATED_SECONDS):
    """Checks that the writer commits again within the stated time, and that all committed images exist."""
    writer.goes_on(seconds=60)
    assert writer.longest < stated_seconds + SLOW_MACHINE
    print(f"commits again {time.monotonic() - lost_at:.1f} s after the loss, longest stall "
          f"{writer.longest:.1f} s, {len(writer.failures)} writes failed: {writer.failures}")
    assert writer.failures == []  # the write in progress continued
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


def stored_image(path):
    process = subprocess.Popen([sys.executable, "-c", IMAGE, path], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == "stored\n"
    return process


def check_ended(pool, writer, folder, manager):
    """Checks that the old manager learns of its successor, ends, and has changed nothing."""
    wait_until(lambda: not is_running(manager), "the end of the manager that came back", 40)
    assert "has taken this pool over" in pathlib.Path(pool.record["directory"], "manager.log").read_text()
    writer.goes_on()
    writer.end()
    all_there(folder, writer.committed)
    pool.stdchk("check", pool.mount)


def test_a_stopped_manager_that_wakes_up_hears_of_its_standby_and_ends(pool):
    folder = start(pool, *write_hosts(pool, "127.0.0.1"), "--listen", "127.0.0.1")
    standby = next(m for m in pool.record["members"] if m["role"] == "standby")
    assert standby["host"] == "one"
    (manager,) = pool.pids("manager")
    writer = Writer(folder)
    writer.goes_on()
    lost_at = time.monotonic()
    with stopped(manager):
        check_taken_over(pool, writer, folder, lost_at)
    check_ended(pool, writer, folder, manager)
    pool.down()


def test_a_manager_whose_host_is_cut_off_answers_no_change_and_ends_when_it_is_back(neighbour, pool):
    here = f"nsenter --net=/proc/{os.getpid()}/ns/net"
    pool.up("--standby", "--policy", "copies=2", "--no-mount", *write_hosts(pool, neighbour.near, here), "--listen",
            neighbour.far, memory="64M", drain=False, prefix=neighbour.prefix)
    assert pool.mount_by_hand("mount") == pool.mount
    beside = pool.mount_by_hand("beside", prefix=neighbour.prefix)  # on the manager's host
    folder = followed(pool)
    assert (beside / "app").is_dir()
    (manager,) = pool.pids("manager")
    writer = Writer(folder)
    writer.goes_on()
    (folder / "app.N1.T1").write_bytes(b"old")
    images = [stored_image(beside / "app" / name) for name in ("app.N1.T0", "app.N1.T1")]
    neighbour.set_link("down")
    lost_at = time.monotonic()
    for image in images:
        go_on(image)
    changes = [subprocess.Popen([*command, beside / "app" / name], stderr=subprocess.PIPE, text=True)
               for command, name in ((["mkdir"], "cut-off"), (["rm", "-f"], "app.N0.T0"))]
    check_taken_over(pool, writer, folder, lost_at, STATED_SECONDS_HOST)
    for change in changes:
        _, said = change.communicate(timeout=CALL_SECONDS - (time.monotonic() - lost_at) + SLOW_MACHINE)
        assert os.strerror(errno.EIO) in said
    for image in images:
        said, _ = image.communicate(timeout=SLOW_MACHINE)
        assert said == f"{errno.EIO}\n"
    assert is_running(manager)
    neighbour.set_link("up")
    check_ended(pool, writer, folder, manager)
    assert not (folder / "cut-off").exists()
    assert not (folder / "app.N1.T0").exists()
    assert (folder / "app.N1.T1").read_bytes() == b"old"
    wait_until(lambda: (beside / "app" / "app.N0.T0").exists(), "the new image on the reconnected mount")
    pool.down()
