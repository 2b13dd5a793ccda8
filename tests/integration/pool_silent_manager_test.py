"""Tests a silent manager: stopped, or cut off from the network, or the mount is cut off. Each call on the
mount ends in time, with an error, or normally if the manager returns before."""

import contextlib
import errno
import os
import re
import subprocess
import sys
import time

from processes import BIN, stopped, wait_until

MIB = 1 << 20
END_SECONDS = 31  # a call's limit of 30 s (docs/guide/failures.md), and 1 s for this machine
# more time for a read that the kernel repeats when no benefactor answers (docs/guide/failures.md)
AGAIN_SECONDS = 5
SHORT_SECONDS = 8  # a stop that calls outlast, although it is longer than a lease
STALE_SECONDS = 1.5  # afterwards no name and no attribute is cached any more

# For each call: preparations in the process's own folder, then the call during the silence. A file `old` of 2
# MiB exists.
NEW = "fd = os.open('new', os.O_WRONLY | os.O_CREAT)"
IMAGE = "fd = os.open('app.N0.T1', os.O_WRONLY | os.O_CREAT)"
DIRTY = "; os.write(fd, b'x' * 5000000)"
CALLS = {
    "stat": ("", "os.stat('old')"),
    "look up": ("", "os.stat('none')"),
    "list": ("", "os.listdir('.')"),
    "open": ("", "os.open('old', os.O_RDONLY)"),
    "create": ("", "os.open('new', os.O_WRONLY | os.O_CREAT)"),
    "make a folder": ("", "os.mkdir('folder')"),
    "rename": ("", "os.rename('old', 'other')"),
    "unlink": ("", "os.unlink('old')"),
    "truncate": ("", "os.truncate('old', 1)"),
    # Each write is a call. A write that ends well when a slot gets free is followed by one that waits its own limit.
    "write": (NEW, "for _ in range(24): began = time.monotonic(); os.write(fd, os.urandom(1 << 20))"),
    "fsync": (NEW + DIRTY, "os.fsync(fd)"),
    "fsync of an image": (IMAGE + DIRTY, "os.fsync(fd)"),
    "close": (NEW + DIRTY, "os.close(fd)"),
    "read": ("fd = os.open('old', os.O_RDONLY); os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)",
             "assert os.pread(fd, 4096, 1 << 20) == bytes(range(256)) * 16"),
}
# Calls in one folder: the kernel holds its lock while one of them waits.
TOGETHER = {f"create {i} of many": ("", f"os.open('new{i}', os.O_WRONLY | os.O_CREAT)") for i in range(4)}
NORMAL = {"look up": errno.ENOENT}
GOES_ON = {"read"}  # needs the benefactors only
CALLER = """
import os, sys, time
os.chdir(sys.argv[1])
exec(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
began = time.monotonic()
try:
    exec(sys.argv[3])
    error = 0
except OSError as raised:
    error = raised.errno
print(error, time.monotonic() - began, flush=True)
os._exit(0)
"""


class SmallPool:
    """A manager, a benefactor and a mount, started by hand."""

    def __init__(self, pool, name, address="127.0.0.1", prefix=(), near="127.0.0.1", mount_prefix=()):
        self.pool, self.name, self.secret = pool, name, pool.folder / "secret"
        if not self.secret.exists():
            self.secret.write_text("0123456789abcdef" * 2 + "\n")
            self.secret.chmod(0o600)
        told = pool.folder / f"{name}.address"
        self.manager = self.start("manager", "--state", pool.folder / f"{name}.state", "--address-file", told,
                                  "--listen", address, prefix=prefix)
        wait_until(told.exists, "the manager")
        ready = pool.folder / f"{name}.lent"
        self.start("benefactor", "--manager", told.read_text().strip(), "--memory", "256M", "--ready-file", ready,
                   "--listen", near)
        wait_until(ready.exists, "the benefactor")
        # A held directory answers changes of the first 100 ms: pool_leased_names_test.py.
        self.mount = pool.mount_of(told.read_text().strip(), self.secret, f"{name}.mount", "--window", "8M",
                                   "--names", "stored", prefix=mount_prefix)

    def start(self, role, *words, prefix=()):
        with open(self.pool.folder / f"{self.name}.{role}.log", "ab") as log:
            process = subprocess.Popen([*prefix, BIN / f"stdchk-{role}", "--secret-file", self.secret, *words],
                                       stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self.pool.environment)
        self.pool.hand_processes.append(process)
        return process

    def prepare(self):
        """Starts processes that make their call after a line of input."""
        self.callers = {}
        for call, (before, then) in (CALLS | TOGETHER).items():
            here = self.mount / ("shared" if call in TOGETHER else call)
            here.mkdir(exist_ok=True)
            (here / "old").write_bytes(bytes(range(256)) * 8192)
            self.callers[call] = subprocess.Popen([sys.executable, "-c", CALLER, here, before, then], text=True,
                                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for caller in self.callers.values():
            assert caller.stdout.readline() == "ready\n"
        os.stat(self.mount / "shared")

    def go(self, calls):
        for call in calls:
            self.callers[call].stdin.write("\n")
            self.callers[call].stdin.flush()

    def results(self):
        """The errno and the seconds of each call."""
        out = {}
        for call, caller in self.callers.items():
            try:
                said, _ = caller.communicate(timeout=4 * END_SECONDS)
            finally:
                caller.kill()
            error, seconds = said.split()
            out[call] = int(error), float(seconds)
            print(f"{self.name}: {call}: {errno.errorcode.get(int(error), 'good')} after {float(seconds):.1f} s")
        return out

    def writes(self):
        try:
            (self.mount / "after").write_bytes(b"x" * MIB)
            return (self.mount / "after").read_bytes() == b"x" * MIB
        except OSError:
            return False


def test_each_call_ends_in_time_while_the_manager_is_silent(neighbour, pool):
    lost, back = SmallPool(pool, "lost"), SmallPool(pool, "back")
    cut = SmallPool(pool, "cut", neighbour.far, neighbour.prefix, neighbour.near)
    alone = SmallPool(pool, "alone", neighbour.near, near=neighbour.near, mount_prefix=neighbour.prefix)
    pools = lost, back, cut, alone
    with contextlib.ExitStack() as ends:
        for one in pools:
            one.prepare()
        neighbour.set_link("down")
        ends.enter_context(stopped(lost.manager.pid))
        with stopped(back.manager.pid):
            for one in pools:
                one.go(TOGETHER)
            time.sleep(STALE_SECONDS)
            for one in pools:
                one.go(CALLS)
            time.sleep(SHORT_SECONDS)
        for call, (error, seconds) in back.results().items():
            assert error == NORMAL.get(call, 0), call
            assert seconds < SHORT_SECONDS + 10, call
        for one in (lost, cut):
            for call, (error, seconds) in one.results().items():
                assert error == (0 if call in GOES_ON else errno.EIO), (one.name, call)
                assert seconds < END_SECONDS, (one.name, call)
        for call, (error, seconds) in alone.results().items():
            assert error == errno.EIO, call
            assert seconds < END_SECONDS + (AGAIN_SECONDS if call == "read" else 0), call
        said = (pool.folder / "alone.mount.log").read_text()
        for call in ("write", "close", "fsync"):
            assert re.search(f"An input/output error of {call}/new: .*The manager does not answer; see `stdchk status`", said)
    neighbour.set_link("up")
    for one in pools:
        wait_until(one.writes, f"writing in {one.name}", 30)


COMMANDS = (["ls"], ["stat"], ["status"], ["safe"], ["drain"], ["check"], ["gc", "--dry-run"], ["scrub"], ["set", "list"],
            ["policy", "get"], ["top", "--count", "1"])


def test_each_command_ends_in_time_while_the_manager_is_stopped(pool):
    pool.up(benefactors=1)
    (pool.mount / "app.N0.T1").write_bytes(os.urandom(MIB))
    with stopped(*pool.pids("manager")):
        began = time.monotonic()
        asked = {" ".join(words): subprocess.Popen([BIN / "stdchk", *words, pool.mount], env=pool.environment, text=True,
                                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                 for words in COMMANDS}
        for command, process in asked.items():
            try:
                out, said = process.communicate(timeout=END_SECONDS - (time.monotonic() - began))
            finally:
                process.kill()
            print(f"{command}: {process.returncode} after {time.monotonic() - began:.1f} s: {out}{said}")
            assert process.returncode != 0, command
            assert "manager" in out + said, command
