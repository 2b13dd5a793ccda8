"""Tests the drain into real file systems: several kinds, full, slow, and hanging ones."""

import contextlib
import json
import os
import re
import subprocess
import time

import file_systems
import pytest
from processes import BIN, is_running, leads_to, wait_until

MIB = 1 << 20

KINDS = {
    "ext4": lambda folder: file_systems.loop("ext4", folder),
    "xfs": lambda folder: file_systems.loop("xfs", folder),
    "fuse": file_systems.bindfs,
}


@pytest.fixture(params=KINDS)
def storage(request, tmp_path):
    """An empty directory of that kind of file system."""
    with KINDS[request.param](tmp_path) as point:
        yield point


@pytest.fixture
def troubled(tmp_path):
    with file_systems.troubled(tmp_path) as one:
        yield one


def drain_all(pool, seconds=45):
    pool.stdchk("drain", "--wait", "--timeout", seconds, pool.mount)


def is_safe(pool, name):
    return pool.stdchk("safe", pool.mount / name, check=False).returncode == 0


def temporaries(pool):
    return list((pool.drain / ".stdchk-drain").iterdir())


def write_sparse(path, size, parts):
    """Writes a sparse file of `size` bytes; `parts` gives offset and bytes of its content."""
    with open(path, "wb") as file:
        for at, content in parts:
            file.seek(at)
            file.write(content)
        file.truncate(size)


def test_hard_links_and_special_files_are_drained_and_come_back(pool, tmp_path):
    pool.drain = tmp_path / "drain"
    pool.up(benefactors=2, memory="96M")
    content = os.urandom(MIB + 5)
    (pool.mount / "sub").mkdir()
    (pool.mount / "first").write_bytes(content)
    (pool.mount / "sub/second").hardlink_to(pool.mount / "first")
    (pool.mount / "alone").write_bytes(content)
    os.mkfifo(pool.mount / "fifo", 0o640)
    drain_all(pool)
    (pool.mount / "third").hardlink_to(pool.mount / "first")  # after the drain
    names = ("first", "sub/second", "third")
    wait_until((pool.drain / "third").exists, "the name of a drained file")
    assert len({(pool.drain / name).stat().st_ino for name in names}) == 1
    assert (pool.drain / "fifo").is_fifo()
    # a new version goes to all names
    content = os.urandom(MIB)
    (pool.mount / "sub/second").write_bytes(content)
    drain_all(pool)
    wait_until(lambda: all((pool.drain / name).read_bytes() == content for name in names), "the new version")
    wait_until(lambda: len({(pool.drain / name).stat().st_ino for name in names}) == 1, "its names")
    # the first name goes, the others stay
    (pool.mount / "first").unlink()
    wait_until(lambda: not (pool.drain / "first").exists(), "the end of a name")
    assert (pool.drain / "third").read_bytes() == content
    pool.stdchk("check")
    pool.down()
    pool.up(benefactors=2, memory="96M")
    assert (pool.mount / "third").read_bytes() == content
    assert (pool.mount / "third").stat().st_nlink == 2
    assert (pool.mount / "third").stat().st_ino == (pool.mount / "sub/second").stat().st_ino
    assert (pool.mount / "fifo").is_fifo()
    assert (pool.mount / "alone").stat().st_nlink == 1


def test_what_is_drained_is_the_same_on_each_file_system(pool, storage):
    pool.drain = storage / "drain"
    pool.up(benefactors=3, memory="96M")
    files = {"app/a.N0.T1": os.urandom(5 * MIB + 17), "app/a.N1.T1": os.urandom(MIB), "app/empty": b"",
             "deep/er/one": b"1", "renamed": os.urandom(70000), "replaced": os.urandom(MIB - 1)}
    for folder in ("app", "deep", "deep/er"):
        (pool.mount / folder).mkdir()
    (pool.mount / "replaced").write_bytes(os.urandom(2 * MIB))
    (pool.mount / "before").write_bytes(files["renamed"])
    (pool.mount / "removed").write_bytes(b"not any more")
    drain_all(pool)
    # the drain sets the file aside: it gets a second name
    before = os.open(pool.mount / "replaced", os.O_RDONLY)
    for name in files.keys() - {"renamed"}:
        (pool.mount / name).write_bytes(files[name])
    (pool.mount / "before").rename(pool.mount / "renamed")
    (pool.mount / "removed").unlink()
    (pool.mount / "link").symlink_to("deep/er/one")
    (pool.mount / "app/empty").chmod(0o640)
    content = os.urandom(MIB)
    write_sparse(pool.mount / "sparse", 24 * MIB, [(3 * MIB, content), (20 * MIB + 4096, content)])
    drain_all(pool)
    for name, data in files.items():
        assert (pool.drain / name).read_bytes() == data, name
        assert is_safe(pool, name), name
    sparse = (pool.drain / "sparse").read_bytes()
    assert len(sparse) == 24 * MIB
    assert sparse.strip(b"\0") == (content + bytes(16 * MIB + 4096) + content).strip(b"\0")
    assert (pool.drain / "sparse").stat().st_blocks * 512 < 4 * MIB
    assert (pool.drain / "app/empty").stat().st_mode & 0o7777 == 0o640
    assert os.readlink(pool.drain / "link") == "deep/er/one"
    assert not (pool.drain / "before").exists() and not (pool.drain / "removed").exists()
    assert len(os.read(before, 4 * MIB)) == 2 * MIB
    os.close(before)
    wait_until(lambda: temporaries(pool) == [], "the end of the temporary files", seconds=40)
    pool.down()
    # A new pool has only the drained files.
    pool.up(benefactors=1, memory="64M")
    assert all((pool.mount / name).read_bytes() == data for name, data in files.items())
    assert (pool.mount / "sparse").read_bytes() == sparse


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_a_full_file_system_loses_nothing_and_is_filled_when_there_is_room(pool, tmp_path, kind):
    make = {"tmpfs": lambda: file_systems.tmpfs(tmp_path, "24m"),
            "ext4": lambda: file_systems.loop("ext4", tmp_path, 32 * MIB)}[kind]
    with make() as point:
        pool.drain = point / "drain"
        pool.drain.mkdir()
        ballast = point / "ballast"
        with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
            while os.statvfs(point).f_bavail * os.statvfs(point).f_bsize > 6 * MIB:
                file.write(bytes(MIB))
        pool.up(benefactors=2, memory="64M")
        files = {f"app.N{number}.T1": os.urandom(9 * MIB) for number in range(2)}
        for name, data in files.items():
            (pool.mount / name).write_bytes(data)
        wait_until(lambda: pool.status()["pool"]["drain_failed_files"] == 2, "that status tells of it")
        # Files that fit are drained.
        (pool.mount / "small").write_bytes(b"s" * MIB)
        wait_until(lambda: is_safe(pool, "small"), "the drain of what fits", seconds=40)
        wait_until(lambda: "2 failed" in pool.stdchk("status", pool.mount).stdout, "that status says so")
        assert not any(is_safe(pool, name) or (pool.drain / name).exists() for name in files)
        assert pool.stdchk("drain", "--wait", "--timeout", 2, pool.mount, check=False).returncode == 1
        assert all((pool.mount / name).read_bytes() == data for name, data in files.items())
        ballast.unlink()
        wait_until(lambda: all(is_safe(pool, name) for name in files), "the drain", seconds=45)
        assert all((pool.drain / name).read_bytes() == data for name, data in files.items())
        assert temporaries(pool) == []
        pool.down()


def uses(pool, seconds):
    """Writes, reads and asks for the status; fails if all together take longer than `seconds`."""
    began, data = time.monotonic(), os.urandom(MIB)
    (pool.mount / "used").write_bytes(data)
    assert (pool.mount / "used").read_bytes() == data
    pool.stdchk("ls", "-l", pool.mount)
    figures = pool.status()["pool"]
    (pool.mount / "used").unlink()
    assert time.monotonic() - began < seconds
    return figures


def test_a_slow_file_system_makes_the_drain_slow_and_nothing_else(pool, troubled):
    pool.drain = troubled.point / "drain"
    troubled.rules("delay 1000")  # for each FUSE write, usually of 128 KiB
    pool.up(benefactors=2, memory="64M")
    files = {f"app.N{number}.T1": os.urandom(2 * MIB) for number in range(4)}
    for name, data in files.items():
        (pool.mount / name).write_bytes(data)
    assert uses(pool, 10)["drain_pending_files"] > 0
    assert not is_safe(pool, "app.N3.T1")
    troubled.rules("delay 20")
    drain_all(pool)
    assert all((pool.drain / name).read_bytes() == data for name, data in files.items())


def test_a_part_of_a_file_system_that_hangs_stalls_only_what_goes_there(pool, troubled):
    pool.drain = troubled.point / "drain"
    troubled.rules("write HANG")
    pool.up(benefactors=2, memory="64M")
    hung = {f"hung.N{number}.T1": b"HANG" + os.urandom(MIB) for number in range(3)}
    files = {f"app.N{number}.T1": os.urandom(MIB) for number in range(8)}
    for name, data in (hung | files).items():
        (pool.mount / name).write_bytes(data)
    assert uses(pool, 10)["drain_pending_files"] >= len(hung)
    wait_until(lambda: all((pool.drain / name).exists() for name in files), "the drain of what does not hang",
               seconds=40)
    assert not any((pool.drain / name).exists() or is_safe(pool, name) for name in hung)
    assert uses(pool, 10)["drain_pending_files"] >= len(hung)
    troubled.rules()
    drain_all(pool)
    assert all((pool.drain / name).read_bytes() == data for name, data in (hung | files).items())


def test_files_that_hang_when_they_get_their_names_stall_no_others(pool, troubled):
    pool.drain = troubled.point / "drain"
    troubled.rules("fsync HANG")
    pool.up("--policy", "images=4", benefactors=2, memory="64M")
    hung = {f"hung.N{number}.T1": b"HANG" + os.urandom(MIB) for number in range(4)}
    for name, data in hung.items():
        (pool.mount / name).write_bytes(data)
    # More renames hang than the drain has threads for names; the other names must still proceed.
    wait_until(lambda: len(list(pool.drain.glob(".stdchk-drain/*.*"))) == len(hung), "the pieces")
    files = {f"app.N{number}.T{step}": os.urandom(MIB) for step in (1, 2) for number in range(4)}
    for name, data in files.items():
        (pool.mount / name).write_bytes(data)
    (pool.mount / "folder").mkdir()
    wait_until(lambda: all(is_safe(pool, name) for name in files), "the drain of what does not hang", seconds=40)
    wait_until(lambda: (pool.drain / "folder").is_dir() and leads_to(pool.drain / "latest", "app.*.T2"),
               "the changes of names")
    assert not any((pool.drain / name).exists() or is_safe(pool, name) for name in hung)
    assert uses(pool, 10)["drain_pending_files"] >= len(hung)
    troubled.rules()
    drain_all(pool)
    assert all((pool.drain / name).read_bytes() == data for name, data in (hung | files).items())


def test_down_ends_while_storage_hangs(pool, troubled):
    pool.drain = troubled.point / "drain"
    troubled.rules("write HANG")
    pool.up(benefactors=1, memory="64M")
    (pool.mount / "hung").write_bytes(b"HANG")
    wait_until(lambda: any(pool.drain.glob(".stdchk-drain/*.*")), "the drain")
    time.sleep(0.5)  # until its write
    pids = [member["pid"] for member in pool.record["members"]]
    began = time.monotonic()
    pool.down(check=False)
    assert time.monotonic() - began < 20
    assert not os.path.ismount(pool.mount)
    troubled.rules()
    wait_until(lambda: not any(is_running(pid) for pid in pids), "the end of what waited in the kernel")


def replace(path, content):
    new = path.with_name(".new")
    new.write_bytes(content)
    new.rename(path)


def write_into(path, content, keep_time=False):
    before = path.stat()
    with open(path, "r+b") as file:
        file.write(content)
    if keep_time:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def hanging_image():
    """An image whose second MiB hangs in read() while the rule exists."""
    return os.urandom(MIB) + b"".join(b"HANG" + os.urandom(4092) for page in range(256)) + os.urandom(MIB)


# Afterwards the name leads to another file or to none.
OF_NAMES = {
    "replaced": lambda path: replace(path, os.urandom(3 * MIB)),
    "replaced by a longer one": lambda path: replace(path, os.urandom(4 * MIB)),
    "replaced by a shorter one": lambda path: replace(path, os.urandom(2 * MIB)),
    "removed": lambda path: path.unlink(),
    "moved away": lambda path: path.rename(path.with_name("elsewhere")),
}
# Another node makes these changes; on this node they would wait for the reads.
OF_BYTES = {
    "truncated": lambda path: os.truncate(path, MIB + 4096),
    "emptied": lambda path: os.truncate(path, 0),
    "lengthened": lambda path: os.truncate(path, 4 * MIB),
    "written to": lambda path: write_into(path, os.urandom(3 * MIB)),
    "written to, and its time put back": lambda path: write_into(path, os.urandom(3 * MIB), keep_time=True),
}


CHANGES = {*OF_NAMES, *OF_BYTES}
OF_SAME_SIZE = {"replaced", "written to", "written to, and its time put back"}
# Keys: whether the pool itself drained the images, and whether a manifest exists. Values: the changes that
# stage-in must report.
TOLD_OF = {
    (False, True): {*OF_BYTES} - {"lengthened"},  # the file still has all bytes that the manifest lists
    (False, False): CHANGES,
    (True, True): CHANGES,  # differ from the pool's own record
    (True, False): CHANGES - OF_SAME_SIZE,  # same-size changes are loaded without notice
}


def change_while_staged_in(pool, troubled, change_of, to):
    """Returns stage-in's findings on files that it has not loaded, by name."""
    troubled.rules("read HANG")
    staging = subprocess.Popen(
        [BIN / "stdchk", "stage-in", "--json", "--readers", str(len(change_of)), *to, pool.drain],
        env=pool.environment, stdout=subprocess.PIPE, text=True)
    try:
        inodes = {(pool.drain / name).stat().st_ino for name in change_of}
        wait_until(lambda: troubled.held("read") == inodes, "that each file is read in part")
        for name, change in change_of.items():
            if change in OF_NAMES:
                OF_NAMES[change](pool.drain / name)
            elif change in OF_BYTES:
                OF_BYTES[change](troubled.behind / "drain" / name)
        assert staging.poll() is None
        troubled.rules()
        said = json.loads(staging.communicate(timeout=60)[0])
        assert staging.returncode == 1 and said["files"] == len(change_of)
        return {os.path.basename(one["path"]): one["fault"] for one in said["bad"]}
    finally:
        troubled.rules()
        staging.kill()
        staging.wait(10)


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "unlisted"])
@pytest.mark.parametrize("own", [False, True], ids=["another", "own"])
def test_what_changes_while_it_is_staged_in_is_loaded_whole_or_named(pool, troubled, own, listed):
    """Loads from the drain directory of another pool, which has ended, and from the pool's own."""
    pool.drain = troubled.point / "drain"
    changes = [None, *OF_NAMES, *OF_BYTES, None]
    old = {f"app.N{rank}.T1": hanging_image() for rank in range(len(changes))}
    change_of = dict(zip(old, changes, strict=True))
    policy = ("--policy", f"images={len(old)}")
    pool.up(*policy, benefactors=2, memory="128M")
    for name, content in old.items():
        (pool.mount / name).write_bytes(content)
    pool.down("--drain")
    if not listed:
        (pool.drain / ".stdchk-manifest").unlink()
    pool.up(*policy, benefactors=2, memory="128M", drain=own)
    faults = change_while_staged_in(pool, troubled, change_of, [] if own else ["--to", pool.mount])
    assert {change_of[name] for name in faults} == TOLD_OF[own, listed]
    assert all(re.fullmatch(r"was changed while it was read|is not what the manifest says|cannot be opened|"
                            r"has \d+ bytes instead of 3145728", fault) for fault in faults.values()), faults
    in_memory = {image["path"]: image.get("bytes_only_drained") == 0 for image in pool.list()}
    for name, change in change_of.items():
        path = troubled.behind / "drain" / name
        if name in faults:
            assert not in_memory.get(name), change
        else:
            assert in_memory[name], change
            assert (pool.mount / name).read_bytes() in (old[name], path.exists() and path.read_bytes()), change
    pool.down()
