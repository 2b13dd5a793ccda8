"""Tests images that only the drain directory holds: a read returns the drained bytes, or an error."""

import concurrent.futures
import errno
import json
import os
import pathlib
import subprocess

import pytest
from conftest import drop_caches, restart_manager, write_random
from processes import BIN, run, wait_until

MIB = 1 << 20


def damage(path, at):
    """Flips one bit in the storage; the file keeps its size and its time."""
    with open(path, "r+b") as file:
        times = os.stat(file.fileno())
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def read_error(path, at=0, size=-1):
    """The errno of the read; None: the bytes can be read."""
    try:
        with open(path, "rb") as file:
            file.seek(at)
            file.read(size)
    except OSError as why:
        return why.errno
    return None


def part(path, at, size):
    with open(path, "rb") as file:
        file.seek(at)
        return file.read(size)


def mount_log(pool):
    (log,) = pathlib.Path(pool.record["directory"]).glob("mount*.log")
    return log.read_text()


def check_damaged(pool, name, at, expected):
    """A damaged image answers EIO at the damage, to every reader; all else reads as written."""
    drop_caches()
    path = pool.mount / name
    assert read_error(path) == errno.EIO
    assert read_error(path, at, 1) == errno.EIO
    said = mount_log(pool)
    assert f"An input/output error of {name}: " in said and "the drained file was damaged or changed" in said
    assert f"{pool.drain}/{name}: " in said
    for other, content in expected.items():
        assert other == name or (pool.mount / other).read_bytes() == content


def drained_images(pool, *arguments, size=3 * MIB + 5):
    """Images in the drain directory of a pool that has ended."""
    pool.up(*arguments, benefactors=1, memory="96M")
    expected = write_random(pool.mount, ["app.N0.T1", "app.N1.T1", "other"], size)
    pool.down("--drain")
    return expected


def manifest_of(folder):
    return json.loads((folder / ".stdchk-manifest").read_text())


def test_a_bit_that_has_changed_in_the_drained_file_of_an_image_is_an_error(pool):
    pool.up(benefactors=1, memory="64M")
    expected = {}
    for step in (1, 2, 3):  # the third image makes the pool evict the oldest
        expected |= write_random(pool.mount, [f"app.N0.T{step}"], 24 * MIB)
        pool.stdchk("drain", "--wait", pool.mount)
    assert {entry["path"]: entry["bytes_only_drained"] for entry in pool.list()}["app.N0.T1"] == 24 * MIB
    damage(pool.drain / "app.N0.T1", 9 * MIB + 77)
    check_damaged(pool, "app.N0.T1", 9 * MIB, expected)
    # The undamaged parts stay readable.
    for at in (0, 12 * MIB):
        assert part(pool.mount / "app.N0.T1", at, MIB) == expected["app.N0.T1"][at:at + MIB]
    pool.down()


def safe(pool, path):
    """Returns the answer of `stdchk safe --json`; an empty one while the manager does not know."""
    return json.loads(pool.stdchk("safe", "--json", path, check=False).stdout or "{}")


def replace_alike(path, content):
    """Puts a file of the same size and time in the place of a drained file."""
    times = path.stat()
    other = path.with_name("other")
    other.write_bytes(content)
    os.chmod(other, times.st_mode & 0o7777)
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    os.replace(other, path)


def comparisons(pool):
    (log,) = pathlib.Path(pool.record["directory"]).glob("manager*.log")
    return log.read_text().count("it is compared")


def test_a_file_with_the_size_and_time_of_the_drained_file_is_not_safe_for_that(pool):
    pool.up(benefactors=2, memory="64M")
    image, there = pool.mount / "app.N0.T1", pool.drain / "app.N0.T1"
    content = os.urandom(3 * MIB + 5)
    image.write_bytes(content)
    pool.stdchk("drain", "--wait", "--timeout", 50, pool.mount)
    assert safe(pool, image)["safe"]
    assert comparisons(pool) == 0
    replace_alike(there, os.urandom(len(content)))
    told = safe(pool, image)
    assert not told["safe"] and told["unsafe"][0]["missing"]
    # The pool drains the image again, because memory still has its bytes.
    wait_until(lambda: safe(pool, image).get("safe"), "the second drain")
    assert there.read_bytes() == content
    damage(there, 1_000_000)
    assert not safe(pool, image)["safe"]
    wait_until(lambda: safe(pool, image).get("safe"), "the third drain")
    # An equal file is as good as the drained one, and stays.
    replace_alike(there, content)
    inode = there.stat().st_ino
    before = comparisons(pool)
    assert safe(pool, image)["safe"]
    assert there.stat().st_ino == inode
    assert comparisons(pool) == before + 1
    # The next manager has the file compared once.
    pool.kill("manager")
    restart_manager(pool)
    wait_until(lambda: safe(pool, image).get("safe"), "the next manager")
    assert safe(pool, image)["safe"]
    replace_alike(there, os.urandom(len(content)))
    assert not safe(pool, image)["safe"]


def test_a_new_pool_does_not_call_a_file_safe_for_the_size_and_time_of_the_drained_file(pool):
    expected = drained_images(pool)
    replace_alike(pool.drain / "other", os.urandom(len(expected["other"])))
    pool.up(benefactors=1, memory="64M")
    # `drain --wait` compares no found files.
    pool.stdchk("drain", "--wait", pool.mount)
    assert comparisons(pool) == 0
    for _ in range(2):
        told = safe(pool, pool.mount / "other")
        assert not told["safe"] and told["unsafe"][0]["missing"]
    assert safe(pool, pool.mount / "app.N0.T1")["safe"]
    assert comparisons(pool) == 3  # a replaced file is compared at each question
    pool.down("--drain")
    # A file that no manifest lists has no checksums to be compared with.
    (pool.drain / ".stdchk-manifest").unlink()
    pool.up(benefactors=1, memory="64M")
    assert safe(pool, pool.mount / "other")["safe"]
    pool.down()


@pytest.mark.parametrize("chunking", [(), ("--chunking", "content", "--naming", "on")], ids=["fixed", "content"])
def test_a_new_pool_compares_what_is_read_of_the_drain_directory_with_the_manifest(pool, chunking):
    expected = drained_images(pool, *chunking, size=20 * MIB + 5)
    before = manifest_of(pool.drain)
    damage(pool.drain / "app.N1.T1", 20 * MIB + 3)
    pool.up(benefactors=1, memory="64M")
    check_damaged(pool, "app.N1.T1", 20 * MIB, expected)
    # The damaged file has the size and time of the drained one. Nobody has its bytes, so the pool cannot drain it again.
    assert [one["path"] for one in safe(pool, pool.mount)["unsafe"]] == ["app.N1.T1"]
    assert safe(pool, pool.mount / "app.N0.T1")["safe"]
    # The new pool's manifest says as much of the found images as the manifest of the pool that drained them.
    pool.stdchk("drain", "--wait", pool.mount)
    assert manifest_of(pool.drain) == before
    os.chmod(pool.mount / "other", 0o640)
    os.utime(pool.mount / "other", ns=(5, 5))
    pool.down("--drain")
    after = manifest_of(pool.drain)["files"]
    assert after["other"] == before["files"]["other"] | {"mtime": 5}
    assert run(BIN / "stdchk", "verify", pool.drain, check=False).returncode == 1
    damage(pool.drain / "other", 0)
    pool.up(benefactors=1, memory="64M")
    # A recovered manager knows the checksums, too.
    pool.kill("manager")
    pool.stdchk("recover", pool.folder / "mount")
    check_damaged(pool, "other", 0, {"app.N0.T1": expected["app.N0.T1"]})
    pool.down()


def test_files_that_the_manifest_does_not_know_are_read_as_they_are(pool):
    expected = drained_images(pool)
    # The first image is replaced; the second is an older backup with an older time. The third has a manifest
    # entry without a time, as an earlier stdchk wrote it.
    (pool.drain / "app.N0.T1").write_bytes(b"another" + expected["app.N0.T1"][7:])
    damage(pool.drain / "app.N1.T1", 5)
    os.utime(pool.drain / "app.N1.T1", ns=(5, 5))
    damage(pool.drain / "other", 5)
    manifest = manifest_of(pool.drain)
    del manifest["files"]["other"]["mtime"]
    (pool.drain / ".stdchk-manifest").write_text(json.dumps(manifest))
    pool.up(benefactors=1, memory="64M")
    for name in expected:
        assert (pool.mount / name).read_bytes() == (pool.drain / name).read_bytes() != expected[name]
    pool.down("--drain")
    # The manifest still lists the original bytes.
    assert len(json.loads(run(BIN / "stdchk", "verify", "--json", pool.drain, check=False).stdout)["bad"]) == 3
    (pool.drain / ".stdchk-manifest").write_text("{")
    pool.up(benefactors=1, memory="64M")
    for name in expected:
        assert (pool.mount / name).read_bytes() == (pool.drain / name).read_bytes()
    pool.down()


def read_bytes(pool):
    """The bytes that the mount's processes have read, from files and elsewhere."""
    pids = pool.pids("mount")
    pids += [int(each) for pid in pids for each in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    said = "".join(pathlib.Path(f"/proc/{pid}/io").read_text() for pid in pids)
    return sum(int(line.split()[1]) for line in said.splitlines() if line.startswith("rchar:"))


def test_many_readers_of_drained_images_read_each_byte_about_twice(pool):
    """A benefactor reads each byte once for the check and once for the reader: its cache cannot hold whole pieces of
    all images."""
    pool.up(benefactors=1, memory="256M")
    expected = write_random(pool.mount, [f"app.N{rank}.T1" for rank in range(6)], 32 * MIB + 7)
    pool.down("--drain")
    pool.up(benefactors=1, memory="64M")
    drop_caches()
    before = read_bytes(pool)
    readers = [subprocess.Popen(["cmp", pool.mount / name, "-"], stdin=subprocess.PIPE) for name in expected]
    with concurrent.futures.ThreadPoolExecutor(len(readers)) as threads:
        list(threads.map(lambda reader, content: reader.communicate(content), readers, expected.values()))
    assert [reader.returncode for reader in readers] == [0] * len(readers)
    assert read_bytes(pool) - before < 3 * sum(map(len, expected.values()))
    pool.down()
