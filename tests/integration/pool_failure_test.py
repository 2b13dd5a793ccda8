"""Tests the death of a pool's processes: committed images stay, no call hangs, and `stdchk down` still works.

Every call here has a time limit (conftest.CALL_SECONDS); a hang is a failure.
"""

import contextlib
import errno
import hashlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

import pytest
from conftest import drop_caches, restart_manager
from processes import BIN, PATIENCE, is_running, run, stopped, wait_until

MIB = 1 << 20

# Writes `size` bytes in pieces; prints "writing" on the way, then waits for a line.
SLOW_WRITER = """
import os, sys
path, size = sys.argv[1], int(sys.argv[2])
fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
done = 0
while done < size:
    done += os.write(fd, os.urandom(min(1 << 20, size - done)))
    if done >= size // 2 and done - (1 << 20) < size // 2:
        print("writing", flush=True)
        sys.stdin.readline()
os.close(fd)
print("closed", flush=True)
"""

# Reads a whole file in its own process, so that a hang can be ended; prints "errno N" or a hash.
READER = """
import hashlib, sys
try:
    for path in sys.argv[1:]:
        print(hashlib.sha256(open(path, "rb").read()).hexdigest())
except OSError as error:
    print("errno", error.errno)
"""

# Reads the chunks one by one; prints as JSON the hash or the errno of each.
PART_READER = f"""
import hashlib, json, os, sys
file, parts = os.open(sys.argv[1], os.O_RDONLY), []
for at in range(0, int(sys.argv[2]), {MIB}):
    try:
        parts.append(hashlib.sha256(os.pread(file, {MIB}, at)).hexdigest())
    except OSError as error:
        parts.append(error.errno)
print(json.dumps(parts))
"""


def start_writer(path, size=16 * MIB):
    process = subprocess.Popen([sys.executable, "-c", SLOW_WRITER, str(path), str(size)],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline().strip() == "writing"
    return process


def end_writer(process, seconds=60):
    """Lets the writer finish; returns its exit status and its error output."""
    try:
        _, err = process.communicate("\n", timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"the writer hangs for {seconds} s") from None
    return process.returncode, err


def read_back(path, seconds=45):
    began = time.monotonic()
    answer = run(sys.executable, "-c", READER, path, seconds=seconds).stdout.split()
    return answer, time.monotonic() - began


def write_files(folder, count=8, size=3 * MIB):
    """Writes files of random bytes; returns the expected answers of their readers."""
    folder.mkdir(exist_ok=True)
    rng = random.Random(count)
    for number in range(count):
        (folder / f"app.N{number}.T1").write_bytes(rng.randbytes(size + number))
    return {path.name: read_back(path)[0] for path in sorted(folder.iterdir())}


def all_read_back(folder, expected):
    return {name: read_back(folder / name)[0] for name in expected} == expected


def test_a_killed_writer_leaves_the_old_image_and_is_listed(pool):
    pool.up()
    folder = pool.mount / "app"
    expected = write_files(folder, count=1)
    writer = start_writer(folder / "app.N0.T1")
    other = start_writer(folder / "app.N7.T1")
    for process in (writer, other):
        process.kill()
        process.wait(20)
    wait_until(lambda: len(pool.list("", "--aborted")) >= 2, "the aborted sessions in the list")
    assert all_read_back(folder, expected)
    assert not (folder / "app.N7.T1").exists()
    assert {entry["path"].rpartition("/")[2] for entry in pool.list("", "--aborted")} == {
        "app.N0.T1", "app.N7.T1"}
    (pool.mount / "other").mkdir()
    assert pool.list("other", "--aborted") == []
    assert len(pool.list("app", "--aborted")) == 2
    # The file of the broken connection has no name any more.
    assert [entry["path"] for entry in pool.list("app/app.N7.T1", "--aborted")] == ["app/app.N7.T1"]


def test_a_killed_mount_loses_nothing_committed(pool):
    pool.up()
    expected = write_files(pool.mount / "app")
    writer = start_writer(pool.mount / "app" / "half")
    pool.kill("mount")
    status, _ = end_writer(writer)
    assert status != 0
    again = pool.mount_by_hand("again")
    assert all_read_back(again / "app", expected)
    wait_until(lambda: not (again / "app" / "half").exists(), "the end of the dead session")
    run("umount", again)
    pool.down()
    assert os.listdir(pool.mount) == []


def test_up_cleans_the_mount_of_a_pool_that_was_killed(pool):
    pool.up()
    for role in ("mount", "manager", "benefactor", "benefactor", "benefactor", "benefactor"):
        index = [is_running(pid) for pid in pool.pids(role)].index(True)
        pool.kill(role, index)
    done = pool.up()
    assert "crashed" in done.stderr
    write_files(pool.mount / "app", count=1)
    pool.down()


@pytest.mark.parametrize("role", ["manager", "benefactor", "mount"])
def test_down_works_after_a_part_was_killed(pool, role):
    pool.up(benefactors=2)
    write_files(pool.mount / "app", count=1)
    pids = [member["pid"] for member in pool.record["members"]]
    pool.kill(role)
    done = pool.down()
    assert "had ended before" in done.stdout
    assert "logs are kept" in done.stdout
    assert not any(is_running(pid) for pid in pids)
    assert not os.path.ismount(pool.mount)


def test_a_dead_manager_is_an_error_in_bounded_time(pool):
    pool.up()
    write_files(pool.mount / "app", count=1)
    pool.kill("manager")

    @contextlib.contextmanager
    def in_time():
        began = time.monotonic()
        yield
        assert time.monotonic() - began < 26 * PATIENCE  # 25 s (docs/guide/failures.md), and 1 s for this machine

    with in_time():
        done = pool.stdchk("ls", pool.mount, check=False)
    assert done.returncode == 2
    assert "The manager does not answer; see `stdchk status`" in done.stderr
    for name in ("new", "newer"):
        with in_time(), pytest.raises(OSError) as raised:
            (pool.mount / name).write_bytes(b"x")
        assert raised.value.errno == errno.EIO
    with in_time():
        done = pool.stdchk("status", pool.mount, check=False)
    assert done.returncode == 1
    assert "manager" in done.stdout and "ended" in done.stdout


def test_a_manager_that_returns_has_all_that_was_committed(pool):
    pool.up()
    expected = write_files(pool.mount / "app")
    writer = start_writer(pool.mount / "app" / "half")
    pool.kill("manager")
    restart_manager(pool)
    assert end_writer(writer) == (0, "")  # the writer continues with its stored bytes
    drop_caches()
    assert all_read_back(pool.mount / "app", expected)
    assert (pool.mount / "app" / "half").stat().st_size == 16 * MIB
    assert run(BIN / "stdchk", "check", pool.mount, env=pool.environment).returncode == 0


def test_a_read_waits_for_benefactors_that_a_restarted_manager_has_not_seen_yet(pool):
    pool.up(benefactors=2, drain=False)
    expected = write_files(pool.mount / "app", count=4, size=8 * MIB)  # more than the mount's cache holds
    with stopped(*pool.pids("benefactor")):
        pool.kill("manager")
        restart_manager(pool)
        pool.status()  # answered only after the manager has given up waiting for benefactors with its log
        time.sleep(2)  # the mount asks again every second
        drop_caches()
        reader = subprocess.Popen([sys.executable, "-c", READER, *(pool.mount / "app" / name for name in expected)],
                                  stdout=subprocess.PIPE, text=True)
        time.sleep(2)
        assert reader.poll() is None
    assert reader.communicate(timeout=40)[0].split() == sum(expected.values(), [])
    assert all_read_back(pool.mount / "app", expected)


def test_a_killed_benefactor_loses_only_its_own_undrained_chunks(pool):
    pool.up("--stripe-width", "1", drain=False)
    folder = pool.mount / "app"
    expected = write_files(folder, size=8 * MIB)  # more than the mount's cache holds
    where = {entry["path"]: {place["benefactor"] for place in entry["benefactors"]}
             for entry in pool.list("app")}
    assert all(where[name] for name in expected)
    victim = next(iter(where[list(expected)[-1]]))  # the cache evicts the most recently read images first
    pid = next(b["pid"] for b in pool.status()["pool"]["benefactors"] if b["id"] == victim)
    assert pid in pool.pids("benefactor")
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_running(pid), "the end of the benefactor")
    drop_caches()
    lost = 0
    for name, answer in expected.items():
        now, seconds = read_back(folder / name)
        assert seconds < 40
        if victim in where[name]:
            # The mount's cache may still hold the image.
            assert now in (["errno", str(errno.EIO)], answer), name
            lost += now != answer
        else:
            assert now == answer, name
    assert lost > 0
    # New images go to the remaining benefactors.
    assert (folder / "new").write_bytes(b"n" * (2 * MIB)) == 2 * MIB
    assert (folder / "new").read_bytes() == b"n" * (2 * MIB)


def test_a_killed_benefactor_loses_nothing_that_was_drained(pool):
    pool.up()
    folder = pool.mount / "app"
    expected = write_files(folder)
    pool.stdchk("drain", "--wait", "--timeout", 50, pool.mount)
    for index in range(2):
        pool.kill("benefactor", index)
    drop_caches()
    assert all_read_back(folder, expected)


def test_of_drained_and_undrained_images_a_killed_benefactor_takes_only_the_undrained_chunks_on_it(pool):
    ranks, size = 3, 5 * MIB + 17
    pool.up("--stripe-width", "2", "--naming", "off", "--policy", f"images={ranks},drain-every=9", benefactors=3,
            memory="64M")
    first = {f"app.N{rank}.T1" for rank in range(ranks)}
    images = {f"app.N{rank}.T{step}": os.urandom(size) for step in (1, 2, 3) for rank in range(ranks)}
    for name, content in images.items():
        (pool.mount / name).write_bytes(content)
    rows = {}

    def first_set_is_drained():
        rows.update((row["path"], row) for row in pool.list())
        return {name for name in images if rows[name]["drain"] == "drained"} == first
    wait_until(first_set_is_drained, "the drain of the first set")
    had = {name: {place["benefactor"]: place["bytes"] for place in rows[name]["benefactors"]} for name in images}
    assert all(sum(places.values()) == size for places in had.values())  # the pool holds each byte once

    def taken(victim, steps):
        return {name: had[name][victim] for name in images if name[-1] in steps and victim in had[name]}
    victim = next(one for one in had["app.N0.T2"] if taken(one, "1"))
    lost = taken(victim, "23")
    pid = next(one["pid"] for one in pool.status()["pool"]["benefactors"] if one["id"] == victim)
    assert pid in pool.pids("benefactor")
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_running(pid), "the end of the benefactor")
    drop_caches()
    for name, content in images.items():
        began = time.monotonic()
        parts = json.loads(run(sys.executable, "-c", PART_READER, pool.mount / name, size, seconds=45).stdout)
        assert time.monotonic() - began < 40
        right = [content[at:at + MIB] for at in range(0, size, MIB)]
        gone = [each for each, part in zip(right, parts, strict=True) if part == errno.EIO]
        assert sum(map(len, gone)) == lost.get(name, 0), name
        assert all(part in (errno.EIO, hashlib.sha256(each).hexdigest()) for each, part in zip(right, parts)), name
    # The log names each image with losses, and the number of lost bytes, and no other image.
    log = pathlib.Path(pool.record["directory"], "manager.log")
    told = re.compile(r"image (?:.*/)?(\S+): (\d+) of its (\d+) bytes have no copy any more and were not drained")

    def named():
        return {name: (int(bytes_lost), int(whole)) for name, bytes_lost, whole in told.findall(log.read_text())}
    wait_until(lambda: named() == {name: (bytes_lost, size) for name, bytes_lost in lost.items()}, "their names")


def test_a_write_goes_on_when_a_benefactor_dies_that_has_nothing_of_the_image(pool):
    pool.up(drain=False)
    image, data = pool.mount / "app.N0.T1", os.urandom(64 * MIB)
    with open(image, "wb", buffering=0) as file:
        pool.kill("benefactor")  # this benefactor has granted space for the image
        for at in range(0, len(data), MIB):
            assert file.write(data[at:at + MIB]) == MIB
    drop_caches()
    assert image.read_bytes() == data


def test_a_benefactor_takes_along_what_it_had_of_an_image_that_is_written_and_its_writer_is_told(pool):
    pool.up(drain=False)
    image, first, second = pool.mount / "app.N0.T1", os.urandom(16 * MIB), os.urandom(32 * MIB)
    file = open(image, "wb", buffering=0)
    for at in range(0, len(first), MIB):
        file.write(first[at:at + MIB])
    os.fsync(file.fileno())  # stored, with a part on each benefactor
    pool.kill("benefactor")
    time.sleep(0.5)  # the mount notices the death
    for at in range(0, len(second), MIB):
        file.write(second[at:at + MIB])
    started = time.monotonic()
    with pytest.raises(OSError) as raised:
        file.close()
    assert raised.value.errno == errno.EIO
    assert time.monotonic() - started < 15  # then the benefactor counts as gone
    assert not image.exists()
    again = first + second
    image.write_bytes(again)
    drop_caches()
    assert image.read_bytes() == again


# Runs the manager on a disk of 256 KiB, in its own mount namespace, so that no mount is left.
SMALL_DISK = 'mount -t tmpfs -o size=256k tmpfs "$1" && shift && exec "$@"'


def test_a_manager_without_room_for_its_journal_says_so_and_ends(pool):
    state, secret = pool.folder / "small", pool.folder / "secret"
    state.mkdir()
    secret.write_text("00112233445566778899aabbccddeeff\n")
    secret.chmod(0o600)
    address = pool.folder / "address"
    with open(pool.folder / "manager.log", "wb") as log:
        manager = subprocess.Popen(
            ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", SMALL_DISK, "sh", state,
             BIN / "stdchk-manager", "--state", state / "journal", "--secret-file", secret,
             "--address-file", address], stderr=log)
    pool.hand_processes.append(manager)
    wait_until(address.exists, "the manager")
    point = pool.mount_of(address.read_text().strip(), secret, "mount")
    with pytest.raises(OSError):
        for number in range(10000):
            (point / f"directory-{number}").mkdir()
    assert manager.wait(20) == 1
    last = (pool.folder / "manager.log").read_text().splitlines()[-1]
    assert f"the journal in {state}/journal cannot be written" in last
    assert "No space left on device" in last


# Imitates a file system of which a part does not answer: some writes do not return.
HANGING_WRITES = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

ssize_t pwrite64(int fd, const void* bytes, size_t count, off_t at) {
  ssize_t (*next)(int, const void*, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite64");
  while (count >= 4 && memcmp(bytes, "HANG", 4) == 0 && access(getenv("HANG_WHILE"), F_OK) == 0) usleep(10000);
  return next(fd, bytes, count, at);
}

ssize_t pwrite(int fd, const void* bytes, size_t count, off_t at) { return pwrite64(fd, bytes, count, at); }
"""


def test_storage_that_hangs_stalls_only_what_goes_there(pool):
    source, library, hang = pool.folder / "hang.c", pool.folder / "hang.so", pool.folder / "hang"
    source.write_text(HANGING_WRITES)
    run("cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl")
    hang.touch()
    pool.environment |= {"LD_PRELOAD": str(library), "HANG_WHILE": str(hang)}
    pool.up(benefactors=1, memory="128M")
    del pool.environment["LD_PRELOAD"]
    files = {f"hung.N{number}.T1": b"HANG" + os.urandom(MIB - 4) for number in range(3)}
    files |= {f"app.N{number}.T1": os.urandom(MIB) for number in range(10)}
    for name, data in files.items():
        (pool.mount / name).write_bytes(data)
    wait_until(lambda: len(list(pool.drain.glob("app.*"))) == 10, "the drain of the files that do not hang", seconds=40)
    assert list(pool.drain.glob("hung.*")) == []
    hang.unlink()
    pool.stdchk("drain", "--wait", "--timeout", 55, pool.mount)
    assert all((pool.drain / name).read_bytes() == data for name, data in files.items())
