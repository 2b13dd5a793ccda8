"""Tests leases of directories: a mount holds a directory that it uses alone, and sends its changes in batches.
Other mounts see each change that they may see, and a lost host or manager loses the last changes at most."""

import fcntl
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
from conftest import restart_manager
from processes import is_running, stopped, wait_until

WITHOUT_GUARD = ("--watchdog", "0")


def leased_mount(pool, name):
    point = pool.mount_by_hand(name, *WITHOUT_GUARD)
    return point, pool.hand_processes[-1]


@pytest.fixture
def two(pool):
    """Two mounts with leases, in a folder that neither holds yet."""
    pool.up(benefactors=1, memory="128M", drain=False)
    first, _ = leased_mount(pool, "first")
    second, _ = leased_mount(pool, "second")
    (first / "d").mkdir()
    return first / "d", second / "d"


def touch(path):
    with open(path, "x"):
        pass


def create_many(folder, count, prefix="f"):
    for i in range(count):
        touch(folder / f"{prefix}{i}")


def rate_of(folder):
    began = time.monotonic()
    create_many(folder, 300, "rate")
    return 300 / (time.monotonic() - began)


def test_a_mount_alone_changes_names_and_another_sees_all_of_them(two):
    first, second = two
    create_many(first, 300)
    for i in range(100):
        os.unlink(first / f"f{i}")
    for i in range(100, 200):
        os.rename(first / f"f{i}", first / f"g{i}")
    (first / "sub").mkdir(0o700)
    create_many(first / "sub", 50)
    os.symlink("g100", first / "link")
    os.chmod(first / "g101", 0o600)
    os.utime(first / "g102", ns=(1_000_000_000, 2_000_000_000))
    expected = {f"g{i}" for i in range(100, 200)} | {f"f{i}" for i in range(200, 300)} | {"sub", "link"}
    assert set(os.listdir(first)) == expected
    assert set(os.listdir(second)) == expected
    assert len(os.listdir(second / "sub")) == 50
    assert os.readlink(second / "link") == "g100"
    assert os.stat(second / "g101").st_mode & 0o777 == 0o600
    assert os.stat(second / "g102").st_mtime_ns == 2_000_000_000
    assert os.stat(second / "sub").st_mode & 0o777 == 0o700
    for name in expected:
        ours, theirs = os.lstat(first / name), os.lstat(second / name)
        assert (ours.st_ino, ours.st_mtime_ns, ours.st_uid) == (theirs.st_ino, theirs.st_mtime_ns, theirs.st_uid), name


def test_each_change_is_seen_by_the_other_mount_at_once(two):
    first, second = two
    for turn in range(3):
        create_many(first, 50, f"a{turn}.")
        assert len(os.listdir(second)) == 50
        (first / "file").write_bytes(b"first" * turn)
        assert (second / "file").read_bytes() == b"first" * turn
        for i in range(50):
            os.unlink(second / f"a{turn}.{i}")
        os.unlink(second / "file")
        assert os.listdir(first) == []
        time.sleep(2.2)  # until neither mount watches the folder


def test_a_replaced_file_is_the_old_or_the_new_one(two):
    first, second = two
    create_many(first, 100)
    (first / "target").write_bytes(b"0" * 4096)
    ended = threading.Event()
    wrong = []

    def read():
        while not ended.is_set():
            content = (second / "target").read_bytes()
            if len(content) != 4096 or len(set(content)) != 1:
                wrong.append(content[:10])

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for i in range(60):
            (first / "new").write_bytes(bytes([i]) * 4096)
            os.rename(first / "new", first / "target")
    finally:
        ended.set()
        reader.join()
    assert not wrong
    assert (second / "target").read_bytes() == bytes([59]) * 4096


def test_links_locks_and_open_files_cross_a_lease(two):
    first, second = two
    create_many(first, 100)
    os.link(first / "f1", first / "hard")
    assert os.stat(second / "f1").st_nlink == 2
    time.sleep(2.2)
    with open(first / "kept", "wb") as file:
        create_many(first, 100, "g")
        os.unlink(first / "kept")
        file.write(b"x" * 10_000)
        file.flush()
        assert os.fstat(file.fileno()).st_size == 10_000
        assert not (second / "kept").exists()
    with open(first / "locked", "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with open(second / "locked", "rb") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.write(b"under the lock")
    assert (second / "locked").read_bytes() == b"under the lock"
    with open(first / "late", "wb") as file:
        os.listdir(second)
        file.write(b"after the lease")
    assert (second / "late").read_bytes() == b"after the lease"


WRITER = """
import os, sys
folder, log = sys.argv[1], os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for i in range(1_000_000):
    fd = os.open(f"{folder}/f{i:06}", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    os.close(fd)
    if i % 3 == 2:
        os.unlink(f"{folder}/f{i - 1:06}")
    if i % 500 == 499:
        directory = os.open(folder, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)
        os.write(log, f"{i}\\n".encode())
"""


def start_writer(folder, log):
    return subprocess.Popen([sys.executable, "-c", WRITER, folder, log], stderr=subprocess.DEVNULL)


def newest_synced(log):
    lines = log.read_text().split() if log.exists() else []
    return int(lines[-1]) if lines else -1


def check_prefix(names, synced):
    """The names are those of a moment after the change `synced`."""
    there = sorted(int(re.fullmatch(r"f(\d{6})", name)[1]) for name in names)
    assert there, "nothing survived"
    newest = there[-1]
    assert newest >= synced, (newest, synced)
    removed = [i - 1 for i in range(newest + 1) if i % 3 == 2]
    for allowed in (removed, removed[:-1]):  # the last removal may be lost
        if there == sorted(set(range(newest + 1)) - set(allowed)):
            return
    pytest.fail(f"not a prefix: {len(there)} names up to {newest}")


def test_what_survives_a_killed_mount_is_a_prefix_with_all_that_was_synced(pool, tmp_path):
    pool.up(benefactors=1, memory="128M", drain=False)
    point, process = leased_mount(pool, "first")
    (point / "d").mkdir()
    log = tmp_path / "log"
    writer = start_writer(point / "d", log)
    wait_until(lambda: newest_synced(log) >= 300, "synced changes", 60)
    process.kill()
    process.wait()
    subprocess.run(["umount", "--lazy", point], check=True)
    writer.wait(30)
    check_prefix(os.listdir(pool.mount / "d"), newest_synced(log))


def test_a_killed_manager_gets_the_last_batches_again(pool, tmp_path):
    pool.up(benefactors=1, memory="128M", drain=False)
    point, _ = leased_mount(pool, "first")
    (point / "d").mkdir()
    log = tmp_path / "log"
    writer = start_writer(point / "d", log)
    wait_until(lambda: newest_synced(log) >= 300, "synced changes", 60)
    pool.kill("manager")
    restart_manager(pool)
    before = newest_synced(log)
    wait_until(lambda: newest_synced(log) >= before + 300, "changes with the next manager", 60)
    assert writer.poll() is None
    writer.send_signal(signal.SIGSTOP)
    time.sleep(0.5)
    ours = os.listdir(point / "d")
    check_prefix(ours, newest_synced(log))
    theirs = os.listdir(pool.mount / "d")
    # The writer may have stopped while its newest file was open. Others see that name after the close.
    assert set(theirs) <= set(ours) and set(ours) - set(theirs) <= {max(ours)}
    writer.kill()
    writer.wait()


def test_a_stopped_mount_does_not_keep_a_directory(two, pool):
    first, second = two
    process = pool.hand_processes[0]
    create_many(first, 200)
    os.kill(process.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        there = os.listdir(second)
        assert time.monotonic() - began < 15
        assert 100 < len(there) <= 200
        touch(second / "new")
    finally:
        os.kill(process.pid, signal.SIGCONT)
    assert is_running(process.pid)
    assert sorted(os.listdir(first)) == sorted([*there, "new"])


def test_fsync_waits_for_all_changes_and_few_changes_wait_for_a_silent_manager(pool):
    pool.up(benefactors=1, memory="128M", drain=False)
    first, _ = leased_mount(pool, "first")
    second, _ = leased_mount(pool, "second")
    (first / "d").mkdir()
    create_many(first / "d", 50)
    os.chmod(first / "d" / "f0", 0o600)
    reader = os.open(first / "d" / "f0", os.O_RDONLY)
    ended, made = {}, []

    def run(what, call):
        def body():
            call()
            ended[what] = time.monotonic()
        thread = threading.Thread(target=body)
        thread.start()
        return thread

    def make():
        for number in range(500):
            touch(first / "d" / f"late{number}")
            made.append(number)
            time.sleep(0.01)

    with stopped(*pool.pids("manager")):
        os.chmod(first / "d" / "f0", 0o640)
        threads = [run("fsync", lambda: os.fsync(reader)), run("make", make)]
        time.sleep(1.5)
        goes_on = time.monotonic()
        # The oldest change is at most 100 ms old when a change is answered.
        assert len(made) < 50
    for thread in threads:
        thread.join(60)
    os.close(reader)
    assert min(ended.values()) > goes_on and len(made) == 500
    assert {f"late{number}" for number in range(500)} <= set(os.listdir(second / "d"))
    assert (second / "d" / "f0").stat().st_mode & 0o777 == 0o640


def test_leases_make_changes_of_names_faster(pool):
    pool.up(benefactors=1, memory="128M", drain=False)
    plain = pool.mount_by_hand("plain", "--watchdog", "0", "--names", "stored")
    (pool.mount / "leased").mkdir()
    (plain / "stored").mkdir()
    create_many(pool.mount / "leased", 20)
    assert rate_of(pool.mount / "leased") > 1.5 * rate_of(plain / "stored")
