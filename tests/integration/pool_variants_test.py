"""Runs the same small work on differently configured pools: chunk sizes, naming, transports, kinds of memory,
an ordinary user's pool."""

import errno
import os
import pathlib
import random
import re
import subprocess
import sys

import pytest
from conftest import drop_caches
from processes import PATIENCE, programs_for_all, run, wait_until

MIB = 1 << 20

VARIANTS = {
    "the longest chunks": ["--chunk-size", "16M"],
    "the shortest chunks, not named": ["--chunk-size", "64K", "--naming", "off"],
    "chunks by content": ["--chunking", "content"],
    "short chunks by content, TCP, a small window":
        ["--chunking", "content", "--chunk-size", "64K", "--transport", "tcp", "--window", "4M"],
    "TCP, closed early": ["--transport", "tcp", "--close", "early"],
    "shared memory, memfd, not named": ["--transport", "shm", "--backing", "memfd", "--naming", "off"],
    "a small window": ["--window", "4M"],
    "disk": ["--disk", "DISK"],
    "stored is what its benefactor has summed": ["--policy", "proof=checksum"],
}

# Overwrites parts of an open file, and prints its final hash.
REWRITE = """
import os, random, sys
path, size = sys.argv[1], int(sys.argv[2])
rng = random.Random(7)
model = bytearray(rng.randbytes(size))
fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
done = 0
while done < size:
    done += os.write(fd, model[done:])
for _ in range(100):
    data = rng.randbytes(rng.choice((1, 4095, 65536, 300001)))
    offset = rng.randrange(size - len(data))
    assert os.pwrite(fd, data, offset) == len(data)
    model[offset:offset + len(data)] = data
    if os.pread(fd, 5000, offset) != bytes(model[offset:offset + 5000]):
        sys.exit("a read in between differs")
os.close(fd)
sys.stdout.buffer.write(model)
"""


def write_and_compare(mount, source):
    sizes = (4096, 100000, MIB, 40 * MIB)
    for block in sizes:
        run("dd", f"if={source}", f"of={mount}/app.N0.T{block}", f"bs={block}", "status=none")
    model = subprocess.run([sys.executable, "-c", REWRITE, mount / "rewritten", str(20 * MIB)],
                           check=True, capture_output=True, timeout=60).stdout
    drop_caches()
    for block in sizes:
        run("cmp", source, mount / f"app.N0.T{block}")
    assert (mount / "rewritten").read_bytes() == model


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("source") / "bytes"
    path.write_bytes(random.Random(11).randbytes(40 * MIB + 4321))
    path.parent.chmod(0o755)
    return path


@pytest.mark.parametrize("name", VARIANTS)
def test_a_pool_keeps_what_is_written_however_it_is_set_up(pool, source, tmp_path, name):
    pool.up(*[str(tmp_path) if word == "DISK" else word for word in VARIANTS[name]], benefactors=3)
    write_and_compare(pool.mount, source)
    pool.stdchk("drain", "--wait", "--timeout", 50, pool.mount)
    pool.stdchk("safe", pool.mount)
    for path in pool.mount.iterdir():
        run("cmp", path, pool.drain / path.name)
    pool.down()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root reserves huge pages")
def test_huge_pages_that_are_reserved_are_lent(pool, source):
    reserved = pathlib.Path("/proc/sys/vm/nr_hugepages")
    before = int(reserved.read_text())
    reserved.write_text(str(before + 128))
    try:
        if int(reserved.read_text()) < before + 128:
            pytest.skip("this machine has no 256 MiB of huge pages left")
        pool.up("--backing", "hugetlb", benefactors=2, memory="96M")
        assert "(memfd hugetlb), 94.0 MiB of it on huge pages" in pathlib.Path(
            pool.record["directory"], "benefactor.0.log").read_text()
        write_and_compare(pool.mount, source)
        pool.down()
    finally:
        reserved.write_text(str(before))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root reserves huge pages")
def test_a_ramdisk_of_huge_pages_is_lent(pool, source):
    reserved = pathlib.Path("/proc/sys/vm/nr_hugepages")
    before = int(reserved.read_text())
    pages = pool.folder / "pages"
    pages.mkdir()
    reserved.write_text(str(before + 128))
    try:
        if int(reserved.read_text()) < before + 128:
            pytest.skip("this machine has no 256 MiB of huge pages left")
        run("mount", "-t", "hugetlbfs", "-o", "pagesize=2M", "none", pages)
        pool.up("--backing", pages, benefactors=2, memory="96M")
        for index in (0, 1):
            log = pathlib.Path(pool.record["directory"], f"benefactor.{index}.log").read_text()
            assert f"(hugetlbfs {pages}), 94.0 MiB of it on huge pages" in log
        write_and_compare(pool.mount, source)
        pool.down()
    finally:
        run("umount", "--lazy", pages, check=False)  # remains of a pool that failed
        reserved.write_text(str(before))


def test_a_benefactor_that_is_full_takes_no_more_than_it_lends_and_32_mib_of_its_own(pool):
    pool.up("--chunk-size", "64K", benefactors=2, memory="64M", drain=False)
    with pytest.raises(OSError) as full, open(pool.mount / "app.N0.T1", "wb", buffering=0) as file:
        while True:
            file.write(os.urandom(MIB))
    assert full.value.errno == errno.ENOSPC
    for pid in pool.pids("benefactor"):
        most = re.search(r"VmHWM:\s*(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text())
        assert 63 * MIB <= int(most[1]) * 1024 < (64 + 32 * PATIENCE) * MIB


# Runs as an ordinary user, in a mount namespace where everybody may open /dev/fuse, as on desktops.
AS_USER = """mknod "$1/fuse" c 10 229 && chmod 666 "$1/fuse" && mount --bind "$1/fuse" /dev/fuse && shift &&
    exec setpriv --reuid 65534 --regid 65534 --clear-groups sh -ec "$@"
"""
OWN_POOL = """
    stdchk up --mount "$1" --drain "$2" --memory 128M
    trap 'stdchk down "$1"' EXIT
    cp "$3" "$1/app.N0.T1"
    cmp "$3" "$1/app.N0.T1"
    stdchk drain --wait --timeout 50 "$1"
    cmp "$3" "$2/app.N0.T1"
    trap - EXIT
    stdchk down "$1"
    ! mountpoint --quiet "$1"
    echo good as $(id -u)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="all other tests are an ordinary user's already")
def test_an_ordinary_user_has_a_pool_of_his_own(pool, source):
    for path in (pool.folder, pool.runtime):
        os.chown(path, 65534, 65534)
    own = pool.folder / "bytes"  # root owns the other directory
    own.write_bytes(source.read_bytes())
    programs = programs_for_all(pool.folder / "bin")
    done = run("unshare", "--mount", "sh", "-c", AS_USER, "sh", pool.folder, OWN_POOL, "sh", pool.mount, pool.drain,
               own, env=dict(pool.environment, PATH=f"{programs}:{os.environ['PATH']}"))
    assert "good as 65534" in done.stdout
    assert os.stat(pool.drain / "app.N0.T1").st_uid == 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount from a pid namespace of its own")
@pytest.mark.parametrize("choice", ["commit", "abort"])
def test_the_close_of_a_writer_that_the_mount_cannot_see_does_as_it_was_told(pool, choice):
    pool.up(benefactors=2, drain=False)
    old, new = os.urandom(2 * MIB), os.urandom(3 * MIB)
    (pool.mount / "app.N0.T1").write_bytes(old)
    # The daemon sees no process outside its own pid namespace.
    blind = pool.mount_by_hand("blind", "--unseen-writer", choice, prefix=("unshare", "--pid", "--fork"))
    for name in ("app.N0.T1", "app.N0.T2"):
        (blind / name).write_bytes(new)
    if choice == "commit":
        assert {path.name: path.read_bytes() for path in pool.mount.iterdir()} == {"app.N0.T1": new, "app.N0.T2": new}
    else:
        # The kernel reports the end of an open file after close() has returned.
        wait_until(lambda: len(pool.list("", "--aborted")) == 2, "the end of both sessions")
        assert {path.name: path.read_bytes() for path in pool.mount.iterdir()} == {"app.N0.T1": old}
        assert {path.name: path.read_bytes() for path in blind.iterdir()} == {"app.N0.T1": old}
    # The option does not concern writers that the daemon can see.
    seeing = pool.mount_by_hand("seeing", "--unseen-writer", choice)
    (seeing / "app.N0.T3").write_bytes(new)
    assert (pool.mount / "app.N0.T3").read_bytes() == new
