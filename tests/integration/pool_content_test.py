"""Tests that programs read back equal files. They read through another process with dropped caches, through a
second mount, and from a new pool on the same drain directory."""

import os
import pathlib
import random
import shutil
import subprocess
import sys

import pytest
from conftest import drop_caches
from processes import run

MIB = 1 << 20

# Each writer makes the same tree in a directory of the pool and in a local directory.


def write_cp(target, source):
    run("cp", "-r", f"{source}/.", target)


def write_dd(target, source):
    for block, name in ((1, "tiny"), (4099, "odd"), (65537, "prime"), (3 * MIB + 7, "large")):
        size = (source / "big.bin").stat().st_size if block > 1 else 4096
        run("dd", f"if={source}/big.bin", f"of={target}/{name}", f"bs={block}",
            f"count={-(-size // block)}", "status=none")


def write_rsync(target, source):
    run("rsync", "-a", f"{source}/", f"{target}/")
    run("rsync", "-a", "--checksum", f"{source}/", f"{target}/")


def write_tar(target, source):
    run("tar", "-cf", target / "all.tar", "--sort=name", "--mtime=@0", "--owner=0", "--group=0",
        "-C", source, ".")
    run("tar", "-xf", target / "all.tar", "-C", target)


def write_sqlite(target, source):
    script = "create table t (a integer primary key, b blob);\nbegin;\n"
    script += "".join(f"insert into t values ({i}, hex({i * 7919}));\n" for i in range(2000))
    script += "commit;\ndelete from t where a % 3 = 0;\nvacuum;\n"
    run("sqlite3", target / "data.db", input=script)
    assert run("sqlite3", target / "data.db", "pragma integrity_check").stdout.strip() == "ok"


def write_git(target, source):
    origin = source.parent / "origin.git"
    if not origin.exists():
        environment = dict(os.environ, GIT_AUTHOR_NAME="a", GIT_AUTHOR_EMAIL="a@b",
                           GIT_COMMITTER_NAME="a", GIT_COMMITTER_EMAIL="a@b",
                           GIT_AUTHOR_DATE="@0 +0000", GIT_COMMITTER_DATE="@0 +0000")
        run("git", "init", "-q", "-b", "main", origin)
        run("cp", "-r", f"{source}/tree", origin)
        run("git", "-C", origin, "add", ".", env=environment)
        run("git", "-C", origin, "commit", "-qm", "first", env=environment)
    run("git", "clone", "-q", "--no-hardlinks", origin, target / "clone")
    assert run("git", "-C", target / "clone", "fsck", "--strict").returncode == 0
    # Any two clones differ in the times of the index and of the log.
    shutil.rmtree(target / "clone" / ".git" / "logs")
    (target / "clone" / ".git" / "index").unlink()
    run("git", "-C", target / "clone", "reset", "-q", "--hard")
    (target / "clone" / ".git" / "index").unlink()
    shutil.rmtree(target / "clone" / ".git" / "logs", ignore_errors=True)


RANDOM_WRITER = """
import os, random, sys
path, size, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = random.Random(seed)
fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
model = bytearray()
for step in range(400):
    kind = rng.random()
    if kind < 0.03:
        length = rng.randrange(size)
        os.ftruncate(fd, length)
        model = model[:length] + bytes(max(0, length - len(model)))
    elif kind < 0.1:
        offset = rng.randrange(len(model) + 1)
        length = rng.randrange(200000)
        if os.pread(fd, length, offset) != bytes(model[offset:offset + length]):
            sys.exit(f"step {step}: a read in between differs at {offset}")
    else:
        offset = rng.randrange(size)
        data = rng.randbytes(rng.choice((1, 7, 511, 4096, 70001, 1 << 20)))
        done = 0
        while done < len(data):
            done += os.pwrite(fd, data[done:], offset + done)
        if len(model) < offset + len(data):
            model += bytes(offset + len(data) - len(model))
        model[offset:offset + len(data)] = data
    if rng.random() < 0.02:
        os.fsync(fd)
os.close(fd)
with open(path, "rb") as file:
    if file.read() != bytes(model):
        sys.exit("the file differs from the model after its close")
"""


def write_random(target, source):
    for seed in range(3):
        run(sys.executable, "-c", RANDOM_WRITER, target / f"random.{seed}", 6 * MIB, seed)


def write_sparse(target, source):
    with open(target / "sparse", "wb") as file:
        for offset in (40 * MIB + 3, 17, 9 * MIB):  # backwards, with holes
            file.seek(offset)
            file.write(b"here" * 1000)
        file.truncate(50 * MIB)
    with open(target / "appended", "wb"):
        pass
    for line in range(100):
        with open(target / "appended", "ab") as file:
            file.write(f"line {line}\n".encode())


def write_images(target, source):
    data = random.Random(5).randbytes(3 * MIB)
    for step in range(3):
        for node in range(2):
            temporary = target / f"app.N{node}.T{step}.tmp"
            temporary.write_bytes(data + bytes([step, node]))
            temporary.rename(target / f"app.N{node}.T{step}")
    os.symlink("app.N0.T2", target / "newest")


WRITERS = {
    "cp": write_cp,
    "dd": write_dd,
    "rsync": write_rsync,
    "tar": write_tar,
    "sqlite": write_sqlite,
    "git": write_git,
    "random": write_random,
    "sparse": write_sparse,
    "images": write_images,
}


def manifest(folder):
    """Name, kind and SHA-256 of all files below, read by new processes. Leaves out stdchk's own files in a
    drain directory."""
    listing = run("sh", "-c", "find . ! -name '.stdchk-*' -printf '%y %p -> %l\\n' | sort; "
                  "find . -type f ! -name '.stdchk-*' -print0 | sort -z | xargs -0 -r sha256sum", cwd=folder)
    return listing.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A tree to copy: names with spaces, empty files, sizes around the chunk's."""
    folder = tmp_path_factory.mktemp("source") / "files"
    rng = random.Random(1)
    (folder / "tree" / "a b" / "empty directory").mkdir(parents=True)
    for size in (0, 1, 4095, 4096, 65536, MIB - 1, MIB, MIB + 1, 5 * MIB + 123):
        (folder / "tree" / f"size.{size}").write_bytes(rng.randbytes(size))
    for number in range(200):
        (folder / "tree" / "a b" / f"small file {number}").write_bytes(rng.randbytes(number * 13))
    (folder / "tree" / "a b" / "script").write_text("#!/bin/sh\nexit 0\n")
    (folder / "tree" / "a b" / "script").chmod(0o755)
    (folder / "big.bin").write_bytes(rng.randbytes(24 * MIB + 4321))
    return folder


@pytest.fixture(scope="module")
def expected(module_pool, source, tmp_path_factory):
    """Runs every writer. Returns the manifests of the local trees."""
    module_pool.up(memory="512M")
    manifests = {}
    for name, writer in WRITERS.items():
        local = tmp_path_factory.mktemp(name)
        writer(local, source)
        manifests[name] = manifest(local)
    return manifests


@pytest.mark.parametrize("name", WRITERS)
def test_what_is_written_is_read_back_through_the_same_mount(module_pool, source, expected, name):
    target = module_pool.mount / name
    target.mkdir()
    WRITERS[name](target, source)
    drop_caches()
    assert manifest(target) == expected[name]


@pytest.fixture(scope="module")
def second_mount(module_pool):
    return module_pool.mount_by_hand("second")


@pytest.mark.parametrize("name", WRITERS)
def test_what_is_written_is_read_back_through_a_second_mount(second_mount, expected, name):
    assert manifest(second_mount / name) == expected[name]


def test_fio_verifies_what_it_wrote(module_pool):
    folder = module_pool.mount / "fio"
    folder.mkdir()
    for mode in ("write", "randwrite"):
        run("fio", "--name=verify", "--verify_state_save=0", f"--directory={folder}", f"--rw={mode}", "--size=24M",
            "--bsrange=512-128k", "--ioengine=psync", "--verify=crc32c", "--verify_fatal=1",
            "--numjobs=2", "--fallocate=none", "--group_reporting", seconds=120)
    shutil.rmtree(folder)


def test_everything_becomes_safe(module_pool, expected):
    module_pool.stdchk("drain", "--wait", "--timeout", 50, module_pool.mount)
    module_pool.stdchk("safe", module_pool.mount)
    for name in WRITERS:
        assert manifest(module_pool.drain / name) == expected[name]


@pytest.fixture(scope="module")
def new_pool(module_pool, expected):
    for point in module_pool.hand_mounts:
        run("umount", point)
    module_pool.hand_mounts.clear()
    module_pool.down("--drain", "--timeout", 50)
    assert not list(pathlib.Path(module_pool.mount).iterdir())
    module_pool.up(memory="512M")
    return module_pool


@pytest.mark.parametrize("name", WRITERS)
def test_what_was_drained_is_read_back_from_a_new_pool(new_pool, expected, name):
    assert manifest(new_pool.mount / name) == expected[name]


def test_no_process_of_a_pool_is_left_after_down(module_pool):
    pids = [member["pid"] for member in module_pool.record["members"]]
    module_pool.down()
    listing = subprocess.run(["ps", "-o", "stat=,pid=", "-p", ",".join(map(str, pids))],
                             capture_output=True, text=True, timeout=10).stdout.splitlines()
    # Zombies that wait for init do not count.
    assert [line for line in listing if not line.startswith("Z")] == []
