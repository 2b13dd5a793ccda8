"""Tests the promises of a mount to an application, with one test for each rule.

The tests run over one of three kinds of mounts:
- a pool in the memory of the test program that STDCHK_FUSE_OVER_MEMORY names;
- a real pool that the tests start (STDCHK_BIN: the folder of its programs);
- the existing mount STDCHK_TEST_MOUNT and, for rules about two mounts, STDCHK_TEST_MOUNT2.
Another process reads files back. Where permitted, it first drops the kernel's caches.
"""

import ctypes
import errno
import hashlib
import mmap
import os
import random
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time

import pytest

KIB = 1024
MIB = 1024 * KIB
PROGRAMS = os.environ.get("STDCHK_BIN")
OVER_MEMORY = None if PROGRAMS else os.environ.get("STDCHK_FUSE_OVER_MEMORY")
RUN_AS_CHILD = [sys.executable, "-c"]


def wait_for(condition, seconds=5.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def start_real_pool(programs, base, first, second):
    """A manager, two benefactors and two mounts; yields when both mounts can be used."""
    daemons = []

    def start(program, ready, *arguments):
        with open(f"{base}/{os.path.basename(ready)}.log", "wb") as log:
            daemons.append(subprocess.Popen([os.path.join(programs, program), *arguments], stderr=log))
        assert wait_for(lambda: os.path.exists(ready) or daemons[-1].poll() is not None, 30)
        assert daemons[-1].poll() is None, open(f"{base}/{os.path.basename(ready)}.log").read()

    secret, address = base + "/secret", base + "/address"
    put(secret, os.urandom(16).hex().encode() + b"\n")
    os.chmod(secret, 0o600)
    start("stdchk-manager", address, "--state", base + "/state", "--secret-file", secret,
          "--address-file", address)
    with open(address, encoding="ascii") as file:
        manager = ["--manager", file.read().strip(), "--secret-file", secret]
    for i in range(2):
        start("stdchk-benefactor", f"{base}/benefactor{i}", *manager, "--ready-file",
              f"{base}/benefactor{i}", "--memory", "512M")
    for name, point, source in (("mount0", first, []), ("mount1", second, ["--source", "pool:second"])):
        start("stdchk-mount", f"{base}/{name}", *manager, "--ready-file", f"{base}/{name}", *source,
              *(["--allow-other"] if os.geteuid() == 0 else []), point)
    return daemons


@pytest.fixture(scope="session")
def mounts():
    given = os.environ.get("STDCHK_TEST_MOUNT")
    if given:
        yield given, os.environ.get("STDCHK_TEST_MOUNT2")
        return
    if not PROGRAMS and not OVER_MEMORY:
        pytest.skip("none of STDCHK_TEST_MOUNT, STDCHK_BIN, STDCHK_FUSE_OVER_MEMORY is set")
    if not os.path.exists("/dev/fuse"):
        pytest.skip("there is no /dev/fuse here")
    base = tempfile.mkdtemp(prefix="stdchk-mount-test-")
    os.chmod(base, 0o755)  # other users come through
    first, second = os.path.join(base, "first"), os.path.join(base, "second")
    os.mkdir(first)
    os.mkdir(second)
    if PROGRAMS:
        os.mkdir(base + "/state")
        daemons = start_real_pool(PROGRAMS, base, first, second)
    else:
        daemons = [subprocess.Popen([OVER_MEMORY, first, second], stdout=subprocess.PIPE)]
        assert daemons[0].stdout.readline() == b"ready\n", "the mount did not start"
    yield first, second
    for daemon in reversed(daemons):
        daemon.terminate()
        assert daemon.wait(timeout=30) == 0
    assert not os.path.ismount(first) and not os.path.ismount(second)
    shutil.rmtree(base)


@pytest.fixture
def here(mounts, request):
    """An empty directory of the first mount."""
    path = os.path.join(mounts[0], f"{request.node.name}-{os.getpid()}")
    os.mkdir(path)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def there(mounts, here):
    """The same directory through the second mount."""
    if not mounts[1]:
        pytest.skip("STDCHK_TEST_MOUNT2 is not set")
    return os.path.join(mounts[1], os.path.basename(here))


def drop_caches():
    if os.geteuid() == 0:
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as setting:
            setting.write("3")


class Elsewhere:
    """Another process that reads files. It is started before any file is opened, because a fork in mid-write
    closes the inherited descriptors, and each close commits."""

    CODE = """
import sys
for line in sys.stdin.buffer:
    try:
        with open(line[:-1], "rb", buffering=0) as file:
            data = file.readall()
        sys.stdout.buffer.write(b"%d\\n" % len(data) + data)
    except OSError as error:
        sys.stdout.buffer.write(b"-%d\\n" % error.errno)
    sys.stdout.buffer.flush()
"""

    def __init__(self):
        self.process = subprocess.Popen(RUN_AS_CHILD + [self.CODE], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)

    def read(self, path):
        self.process.stdin.write(path.encode() + b"\n")
        self.process.stdin.flush()
        size = int(self.process.stdout.readline())
        if size < 0:
            raise OSError(-size, os.strerror(-size), path)
        return self.process.stdout.read(size)


elsewhere = Elsewhere()


def read_back(path):
    drop_caches()
    return elsewhere.read(path)


def put(path, data):
    with open(path, "wb") as file:
        file.write(data)


def noise(size, seed=1):
    return random.Random(seed).randbytes(size)


def run_child(code, *arguments, **options):
    return subprocess.Popen(RUN_AS_CHILD + [code, *arguments], stdout=subprocess.PIPE, **options)


WRITE_AND_WAIT = """
import os, sys, time
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
for i in range(4):
    os.write(fd, bytes([65 + i]) * (1 << 20))
print("written", flush=True)
time.sleep(60)
"""


def kill_in_mid_write(path, how=signal.SIGKILL):
    child = run_child(WRITE_AND_WAIT, path)
    assert child.stdout.readline() == b"written\n"
    child.send_signal(how)
    child.wait(timeout=10)


# ---- writing and reading ----------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 511, 4096, 65537, MIB - 1, MIB, MIB + 1, 5 * MIB + 12345])
def test_a_file_of_any_size_is_read_back_equal(here, size):
    data = noise(size)
    put(here + "/f", data)
    assert read_back(here + "/f") == data
    assert os.stat(here + "/f").st_size == size


@pytest.mark.parametrize("block", [1000, 4096, 10240, 131072, 1048583])
def test_a_file_written_in_odd_blocks_is_read_back_equal(here, block):
    data = noise(3 * MIB + 17)
    with open(here + "/f", "wb", buffering=0) as file:
        for at in range(0, len(data), block):
            file.write(data[at : at + block])
    assert read_back(here + "/f") == data


def test_a_file_written_backwards_is_read_back_equal(here):
    data = noise(2 * MIB + 999)
    with open(here + "/f", "wb", buffering=0) as file:
        for at in reversed(range(0, len(data), 50000)):
            file.seek(at)
            file.write(data[at : at + 50000])
    assert read_back(here + "/f") == data


@pytest.mark.parametrize("flags", [os.O_WRONLY, os.O_RDWR])
def test_writes_that_overlap_leave_the_last_bytes(here, flags):
    model = bytearray(MIB + 5000)
    fd = os.open(here + "/f", flags | os.O_CREAT, 0o644)
    for seed, (at, size) in enumerate([(0, MIB), (4096, 70000), (MIB - 100, 5100), (10, 5000)]):
        data = noise(size, seed)
        assert os.pwrite(fd, data, at) == size
        model[at : at + size] = data
    os.close(fd)
    assert read_back(here + "/f") == bytes(model)


@pytest.mark.parametrize("flags", [os.O_WRONLY, os.O_RDWR])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_random_writer_matches_its_model(here, flags, seed):
    rng = random.Random(seed)
    model = bytearray()
    path = here + "/f"
    put(path, b"")
    for _ in range(6):
        fd = os.open(path, flags)
        for _ in range(25):
            what = rng.random()
            if what < 0.1:
                size = rng.randrange(0, 2 * MIB)
                os.ftruncate(fd, size)
                model[size:] = b""
                model.extend(bytes(size - len(model)))
                continue
            at = rng.randrange(0, 2 * MIB)
            data = rng.randbytes(rng.choice([1, 7, 512, 4096, 5000, 65536, 300000]))
            assert os.pwrite(fd, data, at) == len(data)
            model.extend(bytes(max(0, at + len(data) - len(model))))
            model[at : at + len(data)] = data
        assert os.fstat(fd).st_size == len(model)
        os.close(fd)
        assert os.stat(path).st_size == len(model)
        assert hashlib.sha256(read_back(path)).digest() == hashlib.sha256(model).digest()


def test_a_sparse_file_reads_as_zeros_where_nothing_was_written(here):
    with open(here + "/f", "wb") as file:
        file.seek(3 * MIB + 7)
        file.write(b"end")
    assert read_back(here + "/f") == bytes(3 * MIB + 7) + b"end"


def test_a_writer_reads_its_own_bytes_before_it_closes(here):
    fd = os.open(here + "/f", os.O_RDWR | os.O_CREAT, 0o644)
    os.pwrite(fd, b"abc", 100)
    assert os.pread(fd, 200, 0) == bytes(100) + b"abc"
    os.close(fd)


def test_a_reader_on_the_same_mount_sees_the_bytes_of_an_open_writer(here):
    with open(here + "/f", "wb", buffering=0) as writer:
        writer.write(b"early")
        with open(here + "/f", "rb") as reader:
            assert reader.read() == b"early"
        assert os.stat(here + "/f").st_size == 5


@pytest.mark.parametrize("flags", [os.O_WRONLY, os.O_RDWR])
def test_append_goes_to_the_end(here, flags):
    model = b""
    for i in range(5):
        fd = os.open(here + "/f", flags | os.O_CREAT | os.O_APPEND, 0o644)
        for j in range(3):
            line = f"line {i} {j}\n".encode() * (i * 700 + 1)
            os.write(fd, line)
            model += line
        os.close(fd)
    assert read_back(here + "/f") == model


def test_two_appenders_on_one_mount_lose_nothing(here):
    first = os.open(here + "/f", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    second = os.open(here + "/f", os.O_WRONLY | os.O_APPEND)
    for i in range(20):
        os.write(first if i % 2 else second, b"%04d" % i)
    os.close(first)
    os.close(second)
    assert read_back(here + "/f") == b"".join(b"%04d" % i for i in range(20))


def test_truncate_by_path_and_by_descriptor(here):
    data = noise(2 * MIB)
    path = here + "/f"
    put(path, data)
    os.truncate(path, 1000)
    assert read_back(path) == data[:1000]
    os.truncate(path, 5000)
    assert read_back(path) == data[:1000] + bytes(4000)
    with open(path, "r+b") as file:
        file.truncate(10)
        file.seek(20)
        file.write(b"x")
    assert read_back(path) == data[:10] + bytes(10) + b"x"
    with open(path, "wb"):
        pass
    assert read_back(path) == b""


def test_open_with_truncation_starts_empty(here):
    put(here + "/f", noise(MIB))
    put(here + "/f", b"short")
    assert read_back(here + "/f") == b"short"


def fallocate(path, *arguments):
    return subprocess.run(["fallocate", *arguments, path], check=False, capture_output=True).returncode


def test_fallocate_extends_zeroes_and_cuts_the_end(here):
    fd = os.open(here + "/f", os.O_RDWR | os.O_CREAT, 0o644)
    os.write(fd, b"abc")
    os.posix_fallocate(fd, 0, 100000)
    assert os.fstat(fd).st_size == 100000
    os.close(fd)
    assert read_back(here + "/f") == b"abc" + bytes(99997)
    put(here + "/f", b"x" * 100000)
    assert fallocate(here + "/f", "-n", "-o", "0", "-l", "200000") == 0
    assert os.stat(here + "/f").st_size == 100000
    assert fallocate(here + "/f", "-z", "-o", "10", "-l", "90") == 0
    assert read_back(here + "/f") == b"x" * 10 + bytes(90) + b"x" * 99900
    assert fallocate(here + "/f", "-p", "-o", "50000", "-l", "60000") == 0
    assert read_back(here + "/f") == b"x" * 10 + bytes(90) + b"x" * 49900 + bytes(50000)
    assert fallocate(here + "/f", "-p", "-o", "20000", "-l", "10000") == 0
    assert read_back(here + "/f") == b"x" * 10 + bytes(90) + b"x" * 19900 + bytes(10000) + b"x" * 20000 + bytes(50000)
    # A commit cannot take a range out of a file.
    assert fallocate(here + "/f", "--collapse-range", "-o", "0", "-l", "4096") != 0
    assert fallocate(here + "/f", "--insert-range", "-o", "0", "-l", "4096") != 0


def test_temporary_files_have_no_name(here):
    if OVER_MEMORY:  # only a pool has files without a name: pool_unnamed_test.py tests them
        with pytest.raises(OSError) as refused:
            os.open(here, os.O_TMPFILE | os.O_RDWR, 0o600)
        assert refused.value.errno == errno.EOPNOTSUPP
    with tempfile.TemporaryFile(dir=here) as file:  # tries O_TMPFILE first
        file.write(b"bytes")
        file.seek(0)
        assert file.read() == b"bytes"
    assert os.listdir(here) == []


def test_an_access_list_that_is_a_mode_changes_the_mode(here):
    put(here + "/f", b"x")
    os.chmod(here + "/f", 0o4640)
    # acl(5), linux/posix_acl_xattr.h: owner, group, others. pool_acl_test.py tests longer lists.
    entries = [(1, 7, -1), (4, 5, -1), (32, 1, -1)]
    text = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    os.setxattr(here + "/f", "system.posix_acl_access", text)
    assert stat.S_IMODE(os.stat(here + "/f").st_mode) == 0o4751
    with pytest.raises(OSError) as absent:
        os.getxattr(here + "/f", "system.posix_acl_access")
    assert absent.value.errno == errno.ENODATA
    assert os.listxattr(here + "/f") == []
    assert subprocess.run(["cp", "-p", here + "/f", here + "/g"], check=True).returncode == 0
    assert stat.S_IMODE(os.stat(here + "/g").st_mode) == 0o4751


def test_fallocate_of_more_than_the_pool_has_is_refused(here):
    fd = os.open(here + "/f", os.O_RDWR | os.O_CREAT, 0o644)
    with pytest.raises(OSError) as refused:
        os.posix_fallocate(fd, 0, 1 << 40)
    assert refused.value.errno == errno.ENOSPC
    assert os.fstat(fd).st_size == 0
    if OVER_MEMORY:
        pytest.skip("the pool in memory has no file of 1 TiB")
    os.ftruncate(fd, 1 << 40)
    with pytest.raises(OSError) as refused:
        os.posix_fallocate(fd, 0, 1 << 40)
    assert refused.value.errno == errno.ENOSPC
    os.posix_fallocate(fd, 0, 4096)
    os.close(fd)


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_directory_that_is_open_can_be_asked_for_after_its_name_is_gone(here, how):
    os.mkdir(here + "/d", 0o750)
    fd = os.open(here + "/d", os.O_RDONLY | os.O_DIRECTORY)
    if how == "removed":
        os.rmdir(here + "/d")
    else:
        os.mkdir(here + "/e")
        os.rename(here + "/e", here + "/d")
    for _ in range(2):
        status = os.fstat(fd)
        assert stat.S_ISDIR(status.st_mode)
        assert stat.S_IMODE(status.st_mode) == 0o750
        assert status.st_nlink == 0
        time.sleep(1.1)  # the kernel's attributes expire
    assert os.listdir(fd) == []
    with pytest.raises(OSError) as refused:
        os.open("f", os.O_WRONLY | os.O_CREAT, dir_fd=fd)
    assert refused.value.errno == errno.ENOENT
    os.close(fd)


def data_ranges(fd):
    """Returns the ranges of data that lseek(2) finds, as pairs of begin and end."""
    found, end = [], 0
    while True:
        try:
            begin = os.lseek(fd, end, os.SEEK_DATA)
        except OSError as error:
            assert error.errno == errno.ENXIO
            return found
        end = os.lseek(fd, begin, os.SEEK_HOLE)
        found.append((begin, end))


def test_a_seek_in_a_file_that_is_written_keeps_the_holes_of_other_files(here):
    if OVER_MEMORY:
        pytest.skip("the pool in memory has no holes")
    with open(here + "/sparse", "wb") as file:
        file.truncate(64 * MIB)
        file.seek(32 * MIB)
        file.write(noise(4096))
    sparse = os.open(here + "/sparse", os.O_RDONLY)
    before = data_ranges(sparse)
    assert sum(end - begin for begin, end in before) < 4 * MIB
    os.setxattr(here, "user.stdchk.write_mode", b"cached")
    written = os.open(here + "/written", os.O_RDWR | os.O_CREAT, 0o644)
    reader = os.open(here + "/written", os.O_RDONLY)
    os.pwrite(written, noise(1000), 0)
    os.pwrite(written, noise(1000), 8 * MIB)
    for fd in (written, reader):
        ranges = data_ranges(fd)
        assert ranges[0][0] == 0
        assert ranges[-1] == (ranges[-1][0], 8 * MIB + 1000)
    assert os.pread(reader, 1000, 8 * MIB) == os.pread(written, 1000, 8 * MIB) != bytes(1000)
    assert data_ranges(sparse) == before
    for fd in (sparse, written, reader):
        os.close(fd)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: os.symlink("nowhere", path)], ids=["folder", "FIFO", "link"])
def test_the_time_of_change_of_a_renamed_file_is_shown_at_once(here, make):
    """The mount has the old time in its cache, for up to 1 s."""
    old, new = here + "/old", here + "/new"
    make(old)
    for _ in range(10):
        before = os.lstat(old).st_ctime_ns
        time.sleep(0.01)
        os.rename(old, new)
        assert os.lstat(new).st_ctime_ns > before
        old, new = new, old


def test_a_folder_set_to_cached_writes_small_blocks_correctly(here):
    os.setxattr(here, "user.stdchk.write_mode", b"cached")
    data = noise(MIB + 4321)
    for _ in range(2):
        with open(here + "/f", "wb", buffering=0) as file:
            for at in range(0, len(data), 1111):
                file.write(data[at : at + 1111])
        assert read_back(here + "/f") == data
    with pytest.raises(OSError) as refused:
        os.setxattr(here, "user.stdchk.write_mode", b"sometimes")
    assert refused.value.errno == errno.EINVAL


def test_a_series_of_small_writes_is_written_correctly_in_both_modes(here):
    for step in range(20):  # the mount learns, writes cached, and looks again
        data = noise(40000, step)
        with open(f"{here}/app.N0.T{step}", "wb", buffering=0) as file:
            for at in range(0, len(data), 500):
                file.write(data[at : at + 500])
        assert read_back(f"{here}/app.N0.T{step}") == data


# ---- mapping ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["f", "app.N0.T1"])
def test_mmap_reads_a_file(here, name):
    data = noise(3 * MIB + 5)
    put(f"{here}/{name}", data)
    with open(f"{here}/{name}", "rb") as file:
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            assert mapped[:] == data


def test_mmap_writes_are_committed_at_close(here):
    data = bytearray(noise(2 * MIB))
    put(here + "/f", data)
    with open(here + "/f", "r+b") as file:
        with mmap.mmap(file.fileno(), 0) as mapped:
            mapped[5000:5010] = b"0123456789"
            mapped[MIB + 1 : MIB + 3] = b"ab"
    data[5000:5010] = b"0123456789"
    data[MIB + 1 : MIB + 3] = b"ab"
    assert read_back(here + "/f") == bytes(data)


def test_mmap_writes_after_close_are_committed_when_the_mapping_ends(here):
    put(here + "/f", bytes(MIB))
    fd = os.open(here + "/f", os.O_RDWR)
    mapped = mmap.mmap(fd, MIB)
    os.close(fd)
    mapped[1000:1004] = b"late"
    mapped.close()
    assert wait_for(lambda: read_back(here + "/f")[1000:1004] == b"late")


# ---- when an image becomes visible --------------------------------------------------------------


def test_another_mount_sees_the_old_image_until_close_then_the_new_one_whole(here, there):
    put(here + "/f", b"old" * 1000)
    assert read_back(there + "/f") == b"old" * 1000
    with open(here + "/f", "wb", buffering=0) as file:
        file.write(b"new" * 5000)
        assert read_back(there + "/f") == b"old" * 1000
        assert os.stat(there + "/f").st_size == 3000
    assert read_back(there + "/f") == b"new" * 5000
    assert wait_for(lambda: os.stat(there + "/f").st_size == 15000)


def test_a_new_file_is_not_there_for_another_mount_before_its_close(here, there):
    with open(here + "/f", "wb", buffering=0) as file:
        file.write(b"part")
        assert os.path.exists(here + "/f")
        assert not os.path.exists(there + "/f")
    assert wait_for(lambda: os.path.exists(there + "/f"))
    assert read_back(there + "/f") == b"part"


def test_an_open_reader_keeps_its_version(here, there):
    old, new = noise(2 * MIB, 1), noise(2 * MIB, 2)
    put(here + "/f", old)
    for writer in (here, there):
        with open(here + "/f", "rb") as reader:
            assert reader.read(1000) == old[:1000]
            put(writer + "/f", new)
            assert reader.read() == old[1000:]
            assert read_back(here + "/f") == new
        put(here + "/f", old)
        assert read_back(here + "/f") == old


def test_an_open_right_after_a_close_elsewhere_sees_the_new_image(here, there):
    for i in range(20):
        put((here if i % 2 else there) + "/f", b"%d" % i * 1000)
        with open((there if i % 2 else here) + "/f", "rb") as reader:
            assert reader.read() == b"%d" % i * 1000


def test_mounts_write_disjoint_parts_of_one_file(here, there):
    part = MIB + 100
    parts = [noise(part, seed) for seed in range(4)]
    put(here + "/f", b"")
    assert wait_for(lambda: os.path.exists(there + "/f"))
    fds = [os.open((here if i % 2 else there) + "/f", os.O_WRONLY) for i in range(4)]
    for at in range(0, part, 100000):
        for i, fd in enumerate(fds):
            os.pwrite(fd, parts[i][at : at + 100000], i * part + at)
    for fd in fds:
        os.close(fd)
    assert read_back(here + "/f") == b"".join(parts)
    assert read_back(there + "/f") == b"".join(parts)


def test_processes_write_disjoint_parts_of_one_file(here):
    code = """
import os, sys
rank = int(sys.argv[2])
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o644)
for i in range(8):
    os.pwrite(fd, bytes([rank + 1]) * 65536, (i * 4 + rank) * 65536)
os.close(fd)
"""
    children = [run_child(code, here + "/f", str(rank)) for rank in range(4)]
    assert [child.wait(timeout=30) for child in children] == [0] * 4
    row = b"".join(bytes([rank + 1]) * 65536 for rank in range(4))
    assert read_back(here + "/f") == row * 8


def test_fsync_commits_a_plain_file(here, there):
    with open(here + "/plain", "wb", buffering=0) as file:
        file.write(b"durable")
        os.fsync(file.fileno())
        assert wait_for(lambda: os.path.exists(there + "/plain"))
        assert read_back(there + "/plain") == b"durable"


def test_fsync_keeps_an_image_private(here, there):
    if OVER_MEMORY:
        pytest.skip("the pool in memory has no images that are stored but private")
    with open(here + "/app.N1.T1", "wb", buffering=0) as file:
        file.write(b"stored")
        os.fsync(file.fileno())
        time.sleep(0.1)
        assert not os.path.exists(there + "/app.N1.T1")
    assert read_back(there + "/app.N1.T1") == b"stored"


# ---- writers that die -------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_writer_killed_in_mid_write_leaves_the_old_image(here, how):
    put(here + "/app.N0.T1", b"old" * 100)
    kill_in_mid_write(here + "/app.N0.T1", how)
    assert wait_for(lambda: os.stat(here + "/app.N0.T1").st_size == 300)
    assert read_back(here + "/app.N0.T1") == b"old" * 100


def test_a_writer_killed_in_mid_write_of_a_new_file_leaves_nothing(here):
    kill_in_mid_write(here + "/app.N0.T2")
    assert wait_for(lambda: not os.path.exists(here + "/app.N0.T2"))
    assert wait_for(lambda: os.listdir(here) == [])


def test_a_cached_writer_killed_in_mid_write_leaves_the_old_image(here):
    os.setxattr(here, "user.stdchk.write_mode", b"cached")
    put(here + "/f", b"old" * 100)
    kill_in_mid_write(here + "/f")
    assert wait_for(lambda: os.stat(here + "/f").st_size == 300)
    assert read_back(here + "/f") == b"old" * 100


def test_a_writer_with_threads_killed_in_mid_write_leaves_the_old_image(here):
    put(here + "/f", b"old")
    code = """
import os, sys, threading, time
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC)
def work(n):
    for i in range(10**6):
        os.pwrite(fd, bytes([n]) * 70000, (n * 7 + i % 7) * 70000)
for n in range(4):
    threading.Thread(target=work, args=(n,), daemon=True).start()
time.sleep(0.3)
print("written", flush=True)
time.sleep(60)
"""
    child = run_child(code, here + "/f")
    assert child.stdout.readline() == b"written\n"
    child.kill()
    child.wait(timeout=10)
    assert wait_for(lambda: read_back(here + "/f") == b"old")


def test_a_writer_that_exits_without_close_commits(here):
    code = "import os, sys\nfd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o644)\n" \
           "os.write(fd, b'x' * 100000)\nos._exit(3)"
    assert run_child(code, here + "/f").wait(timeout=10) == 3
    assert read_back(here + "/f") == b"x" * 100000


def test_a_thread_that_ends_the_process_without_close_commits(here):
    code = """
import os, sys, threading
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o644)
def work():
    os.write(fd, b'y' * 100000)
    os._exit(0)
threading.Thread(target=work).start()
threading.Event().wait(30)
"""
    assert run_child(code, here + "/f").wait(timeout=10) == 0
    assert read_back(here + "/f") == b"y" * 100000


def test_a_fork_that_exits_in_mid_write_commits_and_the_parent_goes_on(here):
    fd = os.open(here + "/f", os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(fd, b"before")
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert read_back(here + "/f") == b"before"
    os.write(fd, b" and after")
    os.close(fd)
    assert read_back(here + "/f") == b"before and after"


def test_a_killed_fork_does_not_take_the_parents_bytes_away(here):
    fd = os.open(here + "/f", os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(fd, b"before")
    child = os.fork()
    if child == 0:
        signal.pause()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.write(fd, b" and after")
    os.close(fd)
    assert read_back(here + "/f") == b"before and after"


def test_a_duplicated_descriptor_commits_at_each_close(here):
    fd = os.open(here + "/f", os.O_WRONLY | os.O_CREAT, 0o644)
    other = os.dup(fd)
    os.write(fd, b"one")
    os.close(other)
    assert read_back(here + "/f") == b"one"
    os.write(fd, b"two")
    os.close(fd)
    assert read_back(here + "/f") == b"onetwo"


# ---- names ------------------------------------------------------------------------------------


def test_exclusive_creation_happens_once(here):
    os.close(os.open(here + "/f", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with pytest.raises(FileExistsError):
        os.open(here + "/f", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)


def test_many_exclusive_creators_have_one_winner(here):
    wins = []

    def attempt():
        try:
            os.close(os.open(here + "/lock", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            wins.append(1)
        except FileExistsError:
            pass

    threads = [threading.Thread(target=attempt) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wins) == 1


def test_rename_over_an_open_file_leaves_its_reader_the_old_bytes(here):
    put(here + "/f", b"old")
    put(here + "/g", b"new")
    with open(here + "/f", "rb") as reader:
        os.rename(here + "/g", here + "/f")
        assert reader.read() == b"old"
    assert read_back(here + "/f") == b"new"
    assert os.listdir(here) == ["f"]


def test_a_file_renamed_while_it_is_written_is_complete_under_the_new_name(here):
    with open(here + "/tmp", "wb", buffering=0) as file:
        file.write(b"a" * 100000)
        os.rename(here + "/tmp", here + "/final")
        file.write(b"b" * 100000)
    assert read_back(here + "/final") == b"a" * 100000 + b"b" * 100000
    assert os.listdir(here) == ["final"]


def test_write_a_temporary_name_then_rename(here, there):
    for i in range(3):
        put(here + "/tmp", b"%d" % i * 1000)
        os.rename(here + "/tmp", here + "/f")
        assert read_back(here + "/f") == b"%d" % i * 1000
        assert wait_for(lambda i=i: read_back(there + "/f") == b"%d" % i * 1000)


def test_directories_are_renamed_with_what_is_in_them(here):
    os.makedirs(here + "/a/b")
    put(here + "/a/b/f", b"deep")
    os.rename(here + "/a", here + "/c")
    assert read_back(here + "/c/b/f") == b"deep"
    with pytest.raises(OSError) as refused:
        os.rename(here + "/c", here + "/c/b/c")
    assert refused.value.errno == errno.EINVAL


def test_rename_can_refuse_to_replace_and_can_exchange(here):
    libc = ctypes.CDLL(None, use_errno=True)

    def renameat2(old, new, flags):
        if libc.renameat2(-100, old.encode(), -100, new.encode(), flags) != 0:
            return ctypes.get_errno()
        return 0

    put(here + "/f", b"f")
    put(here + "/g", b"g")
    assert renameat2(here + "/f", here + "/g", 1) == errno.EEXIST
    assert renameat2(here + "/f", here + "/g", 2) == 0
    assert read_back(here + "/f") == b"g" and read_back(here + "/g") == b"f"
    assert renameat2(here + "/f", here + "/h", 1) == 0
    assert sorted(os.listdir(here)) == ["g", "h"]


def test_an_unlinked_file_is_written_and_read_until_its_close(here):
    fd = os.open(here + "/f", os.O_RDWR | os.O_CREAT, 0o644)
    os.write(fd, b"one")
    os.unlink(here + "/f")
    os.write(fd, b"two")
    assert os.pread(fd, 100, 0) == b"onetwo"
    assert os.fstat(fd).st_nlink == 0 and os.fstat(fd).st_size == 6
    os.close(fd)
    assert os.listdir(here) == []


def test_an_unlinked_committed_file_is_read_until_its_close(here):
    data = noise(MIB)
    put(here + "/f", data)
    with open(here + "/f", "rb") as reader:
        os.unlink(here + "/f")
        put(here + "/f", b"another")
        assert reader.read() == data
    assert read_back(here + "/f") == b"another"


def test_directories_are_made_and_removed(here):
    os.mkdir(here + "/d", 0o750)
    assert stat.S_IMODE(os.stat(here + "/d").st_mode) == 0o750
    put(here + "/d/f", b"")
    with pytest.raises(OSError) as refused:
        os.rmdir(here + "/d")
    assert refused.value.errno == errno.ENOTEMPTY
    with pytest.raises(IsADirectoryError):
        os.unlink(here + "/d")
    os.unlink(here + "/d/f")
    os.rmdir(here + "/d")
    assert os.listdir(here) == []


def test_a_directory_of_5000_entries_is_listed_once_each(here):
    for i in range(5000):
        os.mknod(f"{here}/file-{i:05}")
    drop_caches()
    assert sorted(os.listdir(here)) == [f"file-{i:05}" for i in range(5000)]
    assert len([entry for entry in os.scandir(here) if entry.is_file() and entry.stat().st_ino]) == 5000
    with os.scandir(here) as listing:  # removing while listing skips nothing
        for entry in listing:
            os.unlink(entry.path)
    assert os.listdir(here) == []


def test_symbolic_links(here):
    put(here + "/f", b"target")
    os.symlink("f", here + "/link")
    os.symlink("nowhere", here + "/dangling")
    assert os.readlink(here + "/link") == "f"
    assert read_back(here + "/link") == b"target"
    assert os.path.islink(here + "/dangling") and not os.path.exists(here + "/dangling")


def test_a_hard_link_is_a_second_name_of_the_same_file(here):
    put(here + "/f", b"content")
    os.link(here + "/f", here + "/g")
    assert os.stat(here + "/f").st_nlink == 2
    assert os.stat(here + "/f").st_ino == os.stat(here + "/g").st_ino
    put(here + "/g", b"written by the second name")
    assert read_back(here + "/f") == b"written by the second name"
    os.chmod(here + "/f", 0o640)
    assert stat.S_IMODE(os.stat(here + "/g").st_mode) == 0o640
    os.unlink(here + "/f")
    assert os.stat(here + "/g").st_nlink == 1
    assert read_back(here + "/g") == b"written by the second name"
    with pytest.raises(FileExistsError):
        os.link(here + "/g", here + "/g")
    with pytest.raises(PermissionError):
        os.link(here, here + "/folder")


@pytest.mark.parametrize("content", [b"", b"content"])
def test_the_count_of_links_is_right_at_once_after_a_touch(here, content):
    fd = os.open(here + "/f", os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(fd, content)
    os.utime(fd, None)
    os.close(fd)
    for count in range(2, 6):
        os.link(here + "/f", f"{here}/f{count}")
        assert os.stat(here + "/f").st_nlink == count
        assert os.stat(f"{here}/f{count}").st_nlink == count


def test_a_file_with_another_name_is_committed_after_one_name_went(here):
    put(here + "/f", b"old")
    os.link(here + "/f", here + "/g")
    fd = os.open(here + "/f", os.O_WRONLY)
    os.write(fd, b"new")
    os.unlink(here + "/f")
    os.close(fd)
    assert read_back(here + "/g") == b"new"


def test_chown_takes_the_set_id_bits_of_all_but_directories(here):
    put(here + "/file", b"")
    os.mkfifo(here + "/fifo")
    os.mknod(here + "/socket", stat.S_IFSOCK | 0o600)
    os.mkdir(here + "/folder")
    for name, left in (("file", 0o555), ("fifo", 0o555), ("socket", 0o555), ("folder", 0o6555)):
        os.chmod(f"{here}/{name}", 0o6555)
        os.chown(f"{here}/{name}", os.getuid(), os.getgid())
        assert stat.S_IMODE(os.stat(f"{here}/{name}").st_mode) == left, name


def test_an_exec_that_closes_a_written_file_does_not_hang(here):
    fd = os.open(here + "/f", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    os.write(fd, b"content")
    child = os.fork()
    if child == 0:
        os.execv("/bin/true", ["true"])  # closes the file
    assert wait_for(lambda: os.waitpid(child, os.WNOHANG)[0] == child, 20)
    os.close(fd)
    assert read_back(here + "/f") == b"content"


def test_a_new_file_that_is_open_can_be_linked(here):
    fd = os.open(here + "/f", os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(fd, b"12")
    os.link(here + "/f", here + "/g")
    os.write(fd, b"34")
    os.close(fd)
    assert read_back(here + "/g") == b"1234" and os.stat(here + "/f").st_nlink == 2


def test_a_rename_over_one_name_leaves_the_other(here):
    put(here + "/f", b"kept")
    put(here + "/new", b"new")
    os.link(here + "/f", here + "/g")
    os.rename(here + "/new", here + "/f")
    assert read_back(here + "/f") == b"new" and read_back(here + "/g") == b"kept"
    assert os.stat(here + "/g").st_nlink == 1
    os.link(here + "/g", here + "/h")
    os.rename(here + "/g", here + "/h")  # two names of one file: nothing happens
    assert os.path.exists(here + "/g") and os.path.exists(here + "/h")


def test_hard_links_are_seen_by_another_mount(here, there):
    put(here + "/f", b"x")
    assert os.stat(there + "/f").st_nlink == 1
    os.link(here + "/f", here + "/g")
    assert wait_for(lambda: os.stat(there + "/f").st_nlink == 2)
    os.unlink(there + "/f")
    assert wait_for(lambda: os.stat(here + "/g").st_nlink == 1)
    assert read_back(here + "/g") == b"x"


def test_fifos_and_sockets_connect_processes(here):
    os.mkfifo(here + "/fifo", 0o600)
    assert stat.S_ISFIFO(os.stat(here + "/fifo").st_mode)
    writer = subprocess.Popen(["sh", "-c", f"echo through > {here}/fifo"])
    with open(here + "/fifo", "rb") as fifo:
        assert fifo.read() == b"through\n"
    assert writer.wait(10) == 0
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        os.chdir(here)  # the whole path may be too long for an address
        try:
            server.bind("socket")
            server.listen(1)
            client.connect("socket")
        finally:
            os.chdir("/")
        assert stat.S_ISSOCK(os.stat(here + "/socket").st_mode)
    os.unlink(here + "/socket")
    os.rename(here + "/fifo", here + "/moved")
    assert stat.S_ISFIFO(os.stat(here + "/moved").st_mode)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make devices")
def test_devices_keep_their_numbers(here):
    os.mknod(here + "/null", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    os.mknod(here + "/disk", stat.S_IFBLK | 0o600, os.makedev(259, 1 << 12))
    assert os.stat(here + "/null").st_rdev == os.makedev(1, 3)
    assert os.stat(here + "/disk").st_rdev == os.makedev(259, 1 << 12)
    assert stat.S_ISBLK(os.stat(here + "/disk").st_mode)


REPLACER = """
import os, sys
folder, count = sys.argv[1], int(sys.argv[2])
for i in range(1, count + 1):
    with open(folder + "/new", "w") as file:
        file.write(str(i) * 5)
    os.symlink(f"t{i}", folder + "/newlink")
    os.rename(folder + "/newlink", folder + "/link")
    os.rename(folder + "/new", folder + "/f")
"""


@pytest.mark.parametrize("mount", ("here", "there"))
def test_a_name_that_is_replaced_all_the_time_is_always_there(request, here, mount):
    """open, stat, readlink and getxattr never fail. After a process has seen the new file, it never sees the old one."""
    seen_at = request.getfixturevalue(mount)
    put(here + "/f", b"0" * 5)
    os.symlink("t0", here + "/link")
    replacer = subprocess.Popen([*RUN_AS_CHILD, REPLACER, here, "400"])
    newest, opens = 0, 0
    while replacer.poll() is None:
        with open(seen_at + "/f", "rb") as file:
            content = file.read()
        length = len(content) // 5
        number = int(content[:length])
        assert content == str(number).encode() * 5
        assert number >= newest
        newest, opens = number, opens + 1
        assert os.stat(seen_at + "/f").st_size >= 5
        assert os.readlink(seen_at + "/link").startswith("t")
        with pytest.raises(OSError) as none:
            os.getxattr(seen_at + "/f", "user.none")
        assert none.value.errno == errno.ENODATA
    assert replacer.returncode == 0
    assert opens > 20
    assert wait_for(lambda: read_back(seen_at + "/f") == b"400" * 5)


def test_names_of_255_bytes_work_and_longer_ones_are_refused(here):
    put(here + "/" + "n" * 255, b"x")
    assert os.listdir(here) == ["n" * 255]
    with pytest.raises(OSError) as refused:
        put(here + "/" + "n" * 256, b"x")
    assert refused.value.errno == errno.ENAMETOOLONG


# ---- attributes -------------------------------------------------------------------------------


def test_modes_and_owners(here):
    put(here + "/f", b"x")
    os.chmod(here + "/f", 0o640)
    assert stat.S_IMODE(os.stat(here + "/f").st_mode) == 0o640
    if os.geteuid() != 0:
        pytest.skip("changing owners needs root")
    os.chown(here + "/f", 1234, 4321)
    assert (os.stat(here + "/f").st_uid, os.stat(here + "/f").st_gid) == (1234, 4321)


def test_another_user_is_refused_by_the_modes(here):
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    put(here + "/f", b"secret")
    code = "import os, sys\nos.setuid(12345)\ntry:\n open(sys.argv[1])\nexcept OSError:\n sys.exit(7)"
    for mode, outcome in ((0o644, 0), (0o600, 7)):
        os.chmod(here + "/f", mode)
        assert run_child(code, here + "/f").wait(timeout=10) == outcome


@pytest.mark.parametrize("flags", [os.O_WRONLY, os.O_RDWR])
def test_a_write_by_another_user_takes_the_set_id_bits_away(here, flags):
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    put(here + "/f", b"program")
    os.chmod(here + "/f", 0o6777)
    assert stat.S_IMODE(os.stat(here + "/f").st_mode) == 0o6777
    code = "import os, sys\nos.setuid(12345)\nfd = os.open(sys.argv[1], int(sys.argv[2]))\nos.write(fd, b'x')"
    assert run_child(code, here + "/f", str(flags)).wait(timeout=10) == 0
    drop_caches()
    assert wait_for(lambda: stat.S_IMODE(os.stat(here + "/f").st_mode) == 0o777)


# A user of another number and group works with a file that everybody may write. `fd` was opened before the bits
# were set; sys.argv[1] is the file.
BY_ANOTHER = {
    "write": "os.write(fd, b'x')",
    "write at": "os.pwrite(fd, b'x', 100)",
    "write vector": "os.writev(fd, [b'x', b'y'])",
    "write to a new descriptor": "os.write(os.open(sys.argv[1], os.O_WRONLY), b'x')",
    "append": "os.write(os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND), b'x')",
    "copy": "os.copy_file_range(os.open(sys.argv[1], os.O_RDONLY), fd, 4, 0, 100)",
    "fallocate": "os.posix_fallocate(fd, 0, 100)",
    "fallocate more": "os.posix_fallocate(fd, 0, 100000)",
    "truncate": "os.truncate(sys.argv[1], 3)",
    "ftruncate": "os.ftruncate(fd, 3)",
    "ftruncate to more": "os.ftruncate(fd, 50000)",
    "open and truncate": "os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC)",
    "read": "os.pread(fd, 4, 0)",
    "open": "os.open(sys.argv[1], os.O_RDWR)",
    "change of times": "os.utime(sys.argv[1])",
}
SET_ID_MODES = (0o6777, 0o4777, 0o2777, 0o2767, 0o6767, 0o4666, 0o2676, 0o777)


def modes_after(folder, code, user, flags):
    """Runs `code` as `user` on files of root. Returns the files' new modes by their old modes."""
    paths = {mode: os.path.join(folder, f"{mode:o}") for mode in SET_ID_MODES}
    for path in paths.values():
        put(path, b"program" * 1000)
        os.chmod(path, 0o666)
    source = f"""
import os, sys
os.setgroups([])
os.setgid({user})
os.setuid({user})
paths = sys.argv[1:]
opened = [os.open(path, {flags}) for path in paths]
print("open", flush=True)
sys.stdin.readline()
for path, fd in zip(paths, opened):
    sys.argv[1] = path
    try:
        {code}
    except OSError as error:
        print(error.errno)
    os.close(fd)
"""
    child = run_child(source, *paths.values(), stdin=subprocess.PIPE)
    assert child.stdout.readline() == b"open\n"
    for mode, path in paths.items():
        os.chmod(path, mode)
    said, _ = child.communicate(b"go\n", timeout=30)
    drop_caches()
    now = {f"{mode:o}": f"{stat.S_IMODE(os.stat(path).st_mode):o}" for mode, path in paths.items()}
    for path in paths.values():
        os.unlink(path)
    return now, said


@pytest.mark.parametrize("flags", ["O_RDWR", "O_RDWR | os.O_DIRECT"], ids=["cached", "direct"])
@pytest.mark.parametrize("user", [12345, 0], ids=["another", "root"])
@pytest.mark.parametrize("what", BY_ANOTHER)
def test_set_id_bits_go_when_those_of_a_file_system_of_the_kernel_go(here, what, user, flags):
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    if "DIRECT" in flags and what not in ("fallocate", "ftruncate", "open and truncate"):
        pytest.skip("a direct write needs aligned bytes")
    os.chmod(here, 0o777)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as kernels:
        os.chmod(kernels, 0o777)
        ours = modes_after(here, BY_ANOTHER[what], user, flags="os." + flags)
        assert ours == modes_after(kernels, BY_ANOTHER[what], user, flags="os.O_RDWR")


def test_set_id_bits_that_an_allocation_takes_stay_away_after_the_close(here):
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    code = ("import os, sys\nos.setgroups([])\nos.setgid(12345)\nos.setuid(12345)\n"
            "for path in sys.argv[1:]:\n fd = os.open(path, os.O_RDWR)\n os.posix_fallocate(fd, 0, 100)\n os.close(fd)")
    os.chmod(here, 0o777)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as kernels:
        os.chmod(kernels, 0o777)
        now = []
        for folder in (here, kernels):
            paths = [f"{folder}/{mode:o}" for mode in (0o6666, *SET_ID_MODES)]
            for path in paths:
                put(path, b"program" * 1000)
                os.chmod(path, int(os.path.basename(path), 8))
            child = run_child(code, *paths)
            assert child.wait(timeout=30) == 0
            # The program stat asks for the mode alone, and the kernel may have an old mode in its cache.
            now.append(subprocess.run(["stat", "-c", "%a", *paths], capture_output=True, text=True, check=True).stdout)
    assert now[0] == now[1]


def test_set_id_bits_go_when_a_descriptor_of_root_is_used_by_another(here):
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    put(here + "/f", b"program")
    fd = os.open(here + "/f", os.O_WRONLY)
    os.chmod(here + "/f", 0o6777)
    code = "import os, sys\nos.setuid(12345)\nos.write(int(sys.argv[1]), b'x')"
    assert run_child(code, str(fd), pass_fds=[fd]).wait(timeout=10) == 0
    os.close(fd)
    assert stat.S_IMODE(os.stat(here + "/f").st_mode) == 0o777


def test_who_writes_a_program_and_sets_its_bits_then_keeps_them(here):
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    os.chmod(here, 0o777)
    code = ("import os, sys\nos.setgid(12345)\nos.setuid(12345)\nfd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)\n"
            "os.write(fd, b'program')\nos.fchmod(fd, 0o6755)\nos.close(fd)")
    assert run_child(code, here + "/f").wait(timeout=10) == 0
    drop_caches()
    assert stat.S_IMODE(os.stat(here + "/f").st_mode) == 0o6755


def test_a_chown_takes_the_set_id_bits_away_as_on_a_file_system_of_the_kernel(here):
    if os.geteuid() != 0:
        pytest.skip("changing owners needs root")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as kernels:
        for mode in SET_ID_MODES:
            now = []
            for folder in (here, kernels):
                path = f"{folder}/f{mode:o}"
                put(path, b"program")
                for owner in (12345, 54321):  # of a file of root's group, and of a file of another group
                    os.chmod(path, mode)
                    os.chown(path, owner, owner)
                    now.append(stat.S_IMODE(os.stat(path).st_mode))
            assert now[:2] == now[2:], f"{mode:o} became {now[0]:o}, {now[1]:o} and not {now[2]:o}, {now[3]:o}"


def test_a_umask_is_respected(here):
    old = os.umask(0o027)
    try:
        os.close(os.open(here + "/f", os.O_CREAT | os.O_WRONLY, 0o666))
    finally:
        os.umask(old)
    assert stat.S_IMODE(os.stat(here + "/f").st_mode) == 0o640


@pytest.mark.parametrize("how", ["path", "descriptor", "cached descriptor"])
def test_times_set_after_the_last_write_outlive_the_close(here, how):
    flags = os.O_RDWR if how == "cached descriptor" else os.O_WRONLY
    fd = os.open(here + "/f", flags | os.O_CREAT, 0o644)
    os.write(fd, b"x" * 5000)
    target = here + "/f" if how == "path" else fd
    os.utime(target, ns=(1_000_000_000_000_000_007, 1_200_000_000_123_456_789))
    os.close(fd)
    drop_caches()
    time.sleep(0.05)
    after = os.stat(here + "/f")
    assert (after.st_atime_ns, after.st_mtime_ns) == (1_000_000_000_000_000_007, 1_200_000_000_123_456_789)


def test_a_write_moves_the_modification_time(here):
    put(here + "/f", b"x")
    os.utime(here + "/f", ns=(10**18, 10**18))
    assert os.stat(here + "/f").st_mtime_ns == 10**18
    before = time.time_ns()
    put(here + "/f", b"y")
    drop_caches()
    assert abs(os.stat(here + "/f").st_mtime_ns - before) < 5 * 10**9
    os.utime(here + "/f")
    assert abs(os.stat(here + "/f").st_mtime_ns - time.time_ns()) < 5 * 10**9


def test_the_inode_number_stays_over_versions(here):
    put(here + "/f", b"1")
    number = os.stat(here + "/f").st_ino
    for i in range(3):
        put(here + "/f", b"%d" % i)
        drop_caches()
        assert os.stat(here + "/f").st_ino == number
    assert [entry.inode() for entry in os.scandir(here)] == [number]


def test_attributes_changed_elsewhere_are_seen(here, there):
    put(here + "/f", b"x")
    assert wait_for(lambda: os.path.exists(there + "/f"))
    os.stat(there + "/f")
    os.chmod(here + "/f", 0o604)
    os.utime(here + "/f", ns=(10**18, 10**18 + 5))
    assert wait_for(lambda: stat.S_IMODE(os.stat(there + "/f").st_mode) == 0o604)
    assert wait_for(lambda: os.stat(there + "/f").st_mtime_ns == 10**18 + 5)


def test_names_changed_elsewhere_are_seen(here, there):
    put(here + "/f", b"x")
    assert wait_for(lambda: os.listdir(there) == ["f"])
    os.rename(here + "/f", here + "/g")
    assert wait_for(lambda: os.path.exists(there + "/g") and not os.path.exists(there + "/f"))
    os.unlink(here + "/g")
    assert wait_for(lambda: not os.path.exists(there + "/g"))


def test_extended_attributes(here):
    path = here + "/f"
    put(path, b"x")
    os.setxattr(path, "user.note", b"a\0b")
    assert os.getxattr(path, "user.note") == b"a\0b"
    assert os.listxattr(path) == ["user.note"]
    with pytest.raises(FileExistsError):
        os.setxattr(path, "user.note", b"c", os.XATTR_CREATE)
    os.removexattr(path, "user.note")
    with pytest.raises(OSError) as missing:
        os.getxattr(path, "user.note")
    assert missing.value.errno == errno.ENODATA
    with pytest.raises(OSError) as refused:
        os.setxattr(path, "security.capability", bytes(20))
    assert refused.value.errno in (errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM)


def missing_attribute(path):
    with pytest.raises(OSError) as missing:
        os.getxattr(path, "user.note")
    return missing.value.errno == errno.ENODATA


def test_an_attribute_is_there_as_soon_as_it_is_set(here):
    """The mount knows which files have none. Others ask for attributes at the same time, so answers may be late."""
    ended = threading.Event()

    def look():
        while not ended.is_set():
            for entry in os.scandir(here):
                entry.stat()
                os.listxattr(entry.path)

    looking = threading.Thread(target=look)
    put(here + "/f0", b"x")
    looking.start()
    try:
        for i in range(100):
            path = f"{here}/f{i}"
            fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o644)
            assert missing_attribute(fd) and missing_attribute(path) and os.listxattr(path) == []
            if i % 2 == 0:
                os.setxattr(fd, "user.note", b"%d" % i)
            os.write(fd, b"x")
            os.close(fd)
            if i % 2 != 0:
                assert missing_attribute(path)
                os.setxattr(path, "user.note", b"%d" % i)
            assert os.getxattr(path, "user.note") == b"%d" % i and os.listxattr(path) == ["user.note"]
            if i % 3 == 0:
                os.removexattr(path, "user.note")
                assert missing_attribute(path) and os.listxattr(path) == []
    finally:
        ended.set()
        looking.join()


def test_an_attribute_that_is_set_elsewhere_is_seen(here, there):
    put(here + "/f", b"x")
    assert wait_for(lambda: os.path.exists(there + "/f"))
    assert missing_attribute(there + "/f") and os.listxattr(there + "/f") == []
    os.setxattr(here + "/f", "user.note", b"a")
    assert wait_for(lambda: os.listxattr(there + "/f") == ["user.note"])
    assert os.getxattr(there + "/f", "user.note") == b"a"
    os.removexattr(there + "/f", "user.note")
    assert missing_attribute(there + "/f")
    assert wait_for(lambda: os.listxattr(here + "/f") == [])


def test_an_attribute_may_have_64_kib(here):
    path = here + "/f"
    put(path, b"x")
    longest = os.urandom(64 * KIB)
    os.setxattr(path, "user.long", longest)
    assert os.getxattr(path, "user.long") == longest
    os.setxattr(path, "user.short", b"beside it")
    assert os.getxattr(path, "user.long") == longest
    with pytest.raises(OSError) as full:
        os.setxattr(path, "user.second", longest)
    assert full.value.errno in (errno.ENOSPC, errno.E2BIG)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may set them")
def test_attributes_of_root_are_hidden_from_users(here):
    path = here + "/f"
    put(path, b"x")
    os.chmod(here, 0o755)
    os.setxattr(path, "trusted.note", b"c")
    os.setxattr(path, "security.note", b"d")
    assert sorted(os.listxattr(path)) == ["security.note", "trusted.note"]
    seen = subprocess.run([*RUN_AS_CHILD, f"import os; os.setuid(65534); print(os.listxattr({path!r}))"],
                          check=True, capture_output=True).stdout
    assert seen == b"['security.note']\n"


def test_the_version_and_the_drain_state_are_extended_attributes(here):
    path = here + "/f"
    for i in range(1, 4):
        put(path, b"%d" % i)
        assert int(os.getxattr(path, "user.stdchk.version")) == i
    assert os.getxattr(path, "user.stdchk.drained") in (
        b"none", b"pending", b"running", b"drained", b"failed")
    with pytest.raises(OSError) as refused:
        os.setxattr(path, "user.stdchk.version", b"9")
    assert refused.value.errno == errno.EACCES


def test_a_policy_is_an_extended_attribute_of_its_folder(here):
    folder = here + "/folder"
    os.makedirs(folder + "/below")
    key = "user.stdchk.policy.copies"
    with pytest.raises(OSError) as raised:
        os.getxattr(folder + "/below", key)
    assert raised.value.errno == errno.ENODATA
    os.setxattr(folder, key, b"1")
    assert os.getxattr(folder + "/below", key) == b"1"
    assert os.listxattr(folder) == []
    for name, value, expected in (("copies", b"many", errno.EINVAL), ("nothing", b"1", errno.EINVAL)):
        with pytest.raises(OSError) as raised:
            os.setxattr(folder, f"user.stdchk.policy.{name}", value)
        assert raised.value.errno == expected
    put(folder + "/file", b"x")
    with pytest.raises(OSError) as raised:
        os.setxattr(folder + "/file", key, b"1")
    assert raised.value.errno == errno.ENOTDIR
    os.removexattr(folder, key)
    with pytest.raises(OSError) as raised:
        os.getxattr(folder, key)
    assert raised.value.errno == errno.ENODATA


def test_the_end_of_an_old_mapping_commits_nothing_of_the_next_writer(here):
    path = here + "/f"
    with open(path, "w+b") as old:
        old.write(b"1")
        old.flush()
        # mmap.mmap would keep another descriptor, and its close would be a close of the file. So the test calls libc.
        libc = ctypes.CDLL(None)
        libc.mmap.restype = ctypes.c_void_p
        mapping = ctypes.c_void_p(libc.mmap(None, ctypes.c_size_t(1), mmap.PROT_READ, mmap.MAP_SHARED,
                                            old.fileno(), ctypes.c_long(0)))
    with open(path, "wb") as new:
        assert libc.munmap(mapping, ctypes.c_size_t(1)) == 0
        time.sleep(0.2)  # the kernel tells of it afterwards
        assert os.getxattr(path, "user.stdchk.version") == b"1"
        new.write(b"2")
    assert os.getxattr(path, "user.stdchk.version") == b"2"
    assert open(path, "rb").read() == b"2"


@pytest.mark.skipif(not PROGRAMS, reason="STDCHK_BIN is not set")
def test_the_mount_table_shows_the_source_that_the_option_names(mounts):
    def shown(point):
        return subprocess.run(["findmnt", "-no", "SOURCE,FSTYPE", point], check=True, capture_output=True,
                              text=True, timeout=10).stdout.split()

    assert shown(mounts[0]) == ["stdchk", "fuse.stdchk"]
    assert shown(mounts[1]) == ["pool:second", "fuse.stdchk"]


@pytest.mark.skipif(not PROGRAMS, reason="STDCHK_BIN is not set")
@pytest.mark.parametrize("name", ["a,allow_root", "a b", "x" * 65])
def test_a_source_that_libfuse_would_misread_is_refused(name, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(os.urandom(16).hex().encode() + b"\n")
    secret.chmod(0o600)
    done = subprocess.run([os.path.join(PROGRAMS, "stdchk-mount"), "--manager", "tcp://127.0.0.1:1", "--secret-file",
                           str(secret), "--ready-file", str(tmp_path / "ready"), "--source", name, str(tmp_path)],
                          capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode != 0 and "--source takes 1 to 64 letters" in done.stderr, done.stderr


def test_statfs_tells_of_what_is_written(here):
    def free_bytes():
        space = os.statvfs(here)
        assert space.f_bavail <= space.f_blocks and space.f_namemax == 255
        return space.f_bavail * space.f_frsize

    before = free_bytes()
    put(here + "/f", noise(32 * MIB, 4242))
    assert wait_for(lambda: free_bytes() < before - 16 * MIB)  # others' space may come back meanwhile
    os.unlink(here + "/f")
    assert wait_for(lambda: free_bytes() > before - 16 * MIB)


LISTS_AND_CLOSES = """
import os, sys, time
end = time.monotonic() + 1.5
while time.monotonic() < end:
    assert len(os.listdir(sys.argv[1])) == 40
    with open(sys.argv[1] + "/7", "rb") as file:
        assert file.read() == b"7" * 70000
"""


def test_a_directory_that_is_closed_at_once_may_be_listed_by_many(here):
    """close() may come before the mount has finished its answer. A sanitizer reports a late use."""
    for i in range(40):
        put(f"{here}/{i}", str(i).encode() * 70000)
    many = [subprocess.Popen([*RUN_AS_CHILD, LISTS_AND_CLOSES, here]) for _ in range(6)]
    assert [one.wait(timeout=30) for one in many] == [0] * 6


# ---- everyday programs --------------------------------------------------------------------------


@pytest.mark.parametrize("program", ["tar", "cp", "rsync", "sqlite3", "git"])
def test_everyday_programs(here, tmp_path, program):
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    source = tmp_path / "source"
    source.mkdir()
    for i in range(20):
        (source / f"f{i}").write_bytes(noise(i * 10007, i))
    run = lambda *args, **more: subprocess.run(args, check=True, capture_output=True, timeout=120, **more)
    if program == "tar":
        run("tar", "-C", str(tmp_path), "-cf", here + "/a.tar", "source")
        run("tar", "-C", here, "-xf", here + "/a.tar")
    elif program == "cp":
        run("cp", "-a", str(source), here + "/source")
    elif program == "rsync":
        run("rsync", "-a", str(source), here)
        run("rsync", "-a", "--inplace", "-c", str(source), here)
    elif program == "sqlite3":
        for i in range(5):
            run("sqlite3", here + "/db", f"create table t{i}(a); insert into t{i} values ({i});")
        total = run("sqlite3", here + "/db", "select sum(a) from (select * from t3 union select * from t4)")
        assert total.stdout == b"7\n"
        assert run("sqlite3", here + "/db", "pragma integrity_check").stdout == b"ok\n"
        return
    else:
        run("git", "init", "-q", ".", cwd=source)
        run("git", "-c", "user.name=x", "-c", "user.email=x@y", "add", ".", cwd=source)
        run("git", "-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qm", "x", cwd=source)
        run("git", "clone", "-q", "--no-hardlinks", str(source), here + "/source")
        run("git", "fsck", cwd=here + "/source")
        shutil.rmtree(here + "/source/.git")
        shutil.rmtree(source / ".git")
    drop_caches()
    run("diff", "-r", str(source), here + "/source")
    if program in ("cp", "rsync", "tar"):
        for name in os.listdir(source):
            wanted, got = os.stat(source / name), os.stat(here + "/source/" + name)
            assert int(wanted.st_mtime) == int(got.st_mtime)
