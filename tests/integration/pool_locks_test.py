"""Locks between mounts: flock(2), fcntl(2), and appends without locks.

Each process below works on one of several mounts of a pool, as if they were on several hosts.
"""

import errno
import fcntl
import os
import signal
import sqlite3
import struct
import subprocess
import sys
import time

import pytest
from conftest import restart_manager
from processes import PATIENCE, wait_until

WORKERS = 4
ROUNDS = 25

# Adds one to the number in a file, ROUNDS times, through one descriptor. argv: path, rounds, kind of lock.
COUNTER = """
import fcntl, os, sys
path, rounds, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
file = os.open(path, os.O_RDWR)
lock = fcntl.flock if kind == "flock" else fcntl.lockf
for _ in range(rounds):
    lock(file, fcntl.LOCK_EX)
    number = int(os.pread(file, 100, 0) or b"0")
    os.pwrite(file, b"%d" % (number + 1), 0)
    lock(file, fcntl.LOCK_UN)
"""

# Appends lines through one descriptor. argv: path, rounds, name of the worker, lock or none.
APPENDER = """
import fcntl, os, sys
path, rounds, name, locks = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4] == "lock"
file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
for i in range(rounds):
    if locks: fcntl.flock(file, fcntl.LOCK_EX)
    os.write(file, b"%s %d\\n" % (name.encode(), i))
    if locks: fcntl.flock(file, fcntl.LOCK_UN)
    elif i % 5 == 4: os.fsync(file)
"""

# Takes a lock, says so, and holds it. argv: path, first byte of the range.
HOLDER = """
import fcntl, os, sys, time
file = os.open(sys.argv[1], os.O_RDWR)
fcntl.lockf(file, fcntl.LOCK_EX, 1, int(sys.argv[2])) if len(sys.argv) > 2 else fcntl.flock(file, fcntl.LOCK_EX)
print("locked", flush=True)
time.sleep(1000)
"""

# Takes a lock, writes under it, says so, and waits. argv: path, kind of lock.
LOCKED_WRITER = """
import fcntl, os, sys, time
file = os.open(sys.argv[1], os.O_RDWR)
(fcntl.flock if sys.argv[2] == "flock" else fcntl.lockf)(file, fcntl.LOCK_EX)
os.pwrite(file, b"half of a change", 0)
print("written", flush=True)
time.sleep(1000)
"""

INSERTER = """
import sqlite3, sys
path, rounds, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
base = sqlite3.connect(path, timeout=120, isolation_level=None)
for i in range(rounds):
    base.execute("begin immediate")
    (count,) = base.execute("select count(*) from t").fetchone()
    base.execute("insert into t values (?, ?, ?)", (name, i, count))
    base.execute("commit")
"""


def start(code, *arguments):
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, text=True)


def hold(path, *arguments):
    holder = start(HOLDER, path, *arguments)
    assert holder.stdout.readline() == "locked\n"
    return holder


def finish(workers):
    for worker in workers:
        assert worker.wait(120 * PATIENCE) == 0


@pytest.fixture
def mounts(pool):
    pool.up(benefactors=2, memory="256M", drain=False)
    return [pool.mount] + [pool.mount_by_hand(f"mount{i}") for i in range(1, WORKERS)]


def is_locked(path, lock=fcntl.flock):
    with open(path, "r+b") as file:
        try:
            lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@pytest.mark.parametrize("kind", ["flock", "fcntl"])
def test_counters_under_a_lock_lose_nothing(mounts, kind):
    (mounts[0] / "counter").write_bytes(b"0")
    finish([start(COUNTER, mount / "counter", ROUNDS, kind) for mount in mounts])
    assert (mounts[0] / "counter").read_bytes() == b"%d" % (WORKERS * ROUNDS)


@pytest.mark.parametrize("locks", ["lock", "none"])
def test_appends_of_all_mounts_are_in_the_file(mounts, locks):
    finish([start(APPENDER, mount / "log", ROUNDS, f"w{i}", locks) for i, mount in enumerate(mounts)])
    lines = (mounts[0] / "log").read_text().splitlines()
    expected = [f"w{i} {j}" for i in range(WORKERS) for j in range(ROUNDS)]
    assert sorted(lines) == sorted(expected)
    for i in range(WORKERS):
        of_worker = [line for line in lines if line.startswith(f"w{i} ")]
        assert of_worker == [f"w{i} {j}" for j in range(ROUNDS)]


def test_a_lock_excludes_other_mounts_until_its_holder_is_killed(mounts):
    path = "file"
    (mounts[0] / path).write_bytes(b"x")
    with hold(mounts[1] / path) as holder:
        assert is_locked(mounts[0] / path)
        assert not is_locked(mounts[0] / path, fcntl.lockf)  # another kind of lock
        holder.kill()
        holder.wait()
    wait_until(lambda: not is_locked(mounts[0] / path), "the end of the lock")
    with hold(mounts[1] / path, 0) as holder, open(mounts[0] / path, "r+b") as file:
        asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, first, length, _ = struct.unpack("hhqqi4x", fcntl.fcntl(file, fcntl.F_GETLK, asked))
        assert (kind, first, length) == (fcntl.F_WRLCK, 0, 1)
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 1)
        holder.kill()


@pytest.mark.parametrize("kind", ["flock", "fcntl"])
def test_bytes_that_a_killed_process_wrote_under_a_lock_are_not_committed(mounts, kind):
    path, before = "file", b"the last whole state"
    (mounts[0] / path).write_bytes(before)
    with start(LOCKED_WRITER, mounts[1] / path, kind) as writer:
        assert writer.stdout.readline() == "written\n"
        writer.kill()
    with open(mounts[0] / path, "r+b") as file:
        # The next holder waits until the killed process has lost the lock.
        (fcntl.flock if kind == "flock" else fcntl.lockf)(file, fcntl.LOCK_EX)
        assert os.pread(file.fileno(), 100, 0) == before
    # On the writer's mount, readers see its bytes until the kernel has told the mount of its end.
    wait_until(lambda: (mounts[1] / path).read_bytes() == before, "the end of the killed writer's session")
    assert [(mount / path).read_bytes() for mount in mounts] == [before] * len(mounts)


def test_a_wait_ends_by_a_signal_and_waits_hold_no_thread(mounts):
    (mounts[0] / "file").write_bytes(b"x")
    with hold(mounts[1] / "file") as holder:
        waiting = [start(HOLDER, mounts[0] / "file") for _ in range(40)]
        try:
            begun = time.monotonic()
            (mounts[0] / "other").write_bytes(b"y")
            assert (mounts[0] / "other").read_bytes() == b"y"
            assert time.monotonic() - begun < 2 * PATIENCE
            previous = signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError()))
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            with open(mounts[0] / "file", "r+b") as file, pytest.raises(TimeoutError):
                fcntl.flock(file, fcntl.LOCK_EX)
            signal.signal(signal.SIGALRM, previous)
            assert is_locked(mounts[0] / "file")
        finally:
            for process in [*waiting, holder]:
                process.kill()
                process.wait()
                process.stdout.close()
    wait_until(lambda: not is_locked(mounts[0] / "file"), "the end of all locks")


def test_a_circle_of_record_locks_is_refused(mounts):
    (mounts[0] / "file").write_bytes(b"12")
    code = """
import errno, fcntl, os, sys
file = os.open(sys.argv[1], os.O_RDWR)
mine, other = int(sys.argv[2]), 1 - int(sys.argv[2])
fcntl.lockf(file, fcntl.LOCK_EX, 1, mine)
print("first", flush=True)
sys.stdin.readline()
try:
    fcntl.lockf(file, fcntl.LOCK_EX, 1, other)
except OSError as error:
    sys.exit(3 if error.errno == errno.EDEADLK else 4)
"""
    both = [subprocess.Popen([sys.executable, "-c", code, mounts[i] / "file", str(i)], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True) for i in range(2)]
    for process in both:
        assert process.stdout.readline() == "first\n"
    for process in both:
        process.stdin.write("go\n")
        process.stdin.flush()
    # The refused process ends, which releases its lock for the other.
    assert sorted(process.wait(30 * PATIENCE) for process in both) == [0, 3]


def test_locks_are_claimed_from_the_next_manager(pool, mounts):
    (mounts[0] / "file").write_bytes(b"x")
    with hold(mounts[1] / "file") as holder:
        waiting = start(HOLDER, mounts[2] / "file")
        pool.kill("manager")
        restart_manager(pool)
        assert is_locked(mounts[0] / "file")
        holder.kill()
        holder.wait()
        assert waiting.stdout.readline() == "locked\n"
        waiting.kill()
        waiting.wait()
        waiting.stdout.close()


def test_sqlite_on_two_mounts(mounts):
    with sqlite3.connect(mounts[0] / "base") as base:
        base.execute("create table t (name text, i integer, count integer)")
    base.close()
    finish([start(INSERTER, mounts[i] / "base", ROUNDS, f"w{i}") for i in range(2)])
    base = sqlite3.connect(mounts[2] / "base")
    assert base.execute("pragma integrity_check").fetchone() == ("ok",)
    counts = [count for (count,) in base.execute("select count from t order by count")]
    assert counts == list(range(2 * ROUNDS))
    base.close()


def test_a_file_that_was_cut_has_its_new_length_for_the_open_after_a_lock(mounts):
    here, there = mounts[0] / "f", mounts[1] / "f"
    there.write_bytes(b"a" * 5000)
    wait_until(here.exists, "the file on the other mount")
    with open(here, "rb", buffering=0) as reader:
        assert reader.read() == b"a" * 5000
        there.write_bytes(b"b" * 100)
        fcntl.flock(reader, fcntl.LOCK_SH)
        assert os.pread(reader.fileno(), 100, 0) == b"b" * 100
        fcntl.flock(reader, fcntl.LOCK_UN)
        assert here.read_bytes() == b"b" * 100  # beside the reader
    assert here.read_bytes() == b"b" * 100
    wait_until(lambda: here.stat().st_size == 100, "the new length")
    wait_until(lambda: here.stat().st_mtime_ns == there.stat().st_mtime_ns, "the time of the last write")


def test_a_lock_that_is_not_granted_says_so(mounts):
    (mounts[0] / "file").write_bytes(b"x")
    with hold(mounts[1] / "file") as holder, open(mounts[0] / "file", "rb") as file:
        with pytest.raises(OSError) as refused:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        assert refused.value.errno == errno.EWOULDBLOCK
        holder.kill()


def test_locks_of_an_open_file_description_end_with_its_last_descriptor(mounts):
    (mounts[0] / "file").write_bytes(b"x")
    whole = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)

    def is_granted(file):
        try:
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, whole)
        except BlockingIOError:
            return False
        return True

    first = os.open(mounts[0] / "file", os.O_RDWR)
    assert is_granted(first)
    second = os.dup(first)
    os.close(first)
    with open(mounts[1] / "file", "r+b") as other:
        assert not is_granted(other)
        os.close(second)
        wait_until(lambda: is_granted(other), "the end of the lock")
