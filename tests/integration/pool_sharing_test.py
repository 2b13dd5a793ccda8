"""Tests versions that share chunks: the space they take, and the answer of `stdchk stat`. Removing a version
harms no other, even after the manager was killed."""

import errno
import json
import os
import pathlib
import random

import pytest
from conftest import drop_caches, restart_manager
from processes import wait_until

MIB = 1 << 20
SIZE = 24 * MIB


def stat(pool, name=""):
    return json.loads(pool.stdchk("stat", "--json", pool.mount / name).stdout)


def naming(pool, name=""):
    """The naming state that `stdchk stat` reports for each series."""
    return {line["series"]: line["naming"] for line in stat(pool, name)["naming"]}


def stored(pool):
    return stat(pool)["pool"]["stored_bytes"]


def write(path, content, block=1 << 20):
    with open(path, "wb", buffering=0) as file:
        for at in range(0, len(content), block):
            assert file.write(content[at:at + block]) == len(content[at:at + block])


def series():
    """An image, an equal image, one with 100,000 more bytes in the middle, one with a part removed."""
    rng = random.Random(3)
    first = rng.randbytes(SIZE)
    more = first[:SIZE // 2] + rng.randbytes(100_000) + first[SIZE // 2:]
    return {"app.N0.T1": first, "app.N0.T2": first, "app.N0.T3": more, "app.N0.T4": more[5_000_001:]}


@pytest.mark.parametrize("block", [MIB, 40_000])
def test_content_defined_chunks_are_stored_once_wherever_they_lie(pool, block):
    pool.up("--chunking", "content")
    images = series()
    grown = []
    for name, content in images.items():
        before = stored(pool)
        write(pool.mount / name, content, block)
        grown.append(stored(pool) - before)
    assert SIZE <= grown[0] < 1.01 * SIZE  # including the chunks' headers
    # Writes of 40,000 bytes sometimes leave the kernel's page cache out of order; then a chunk may end early.
    disturbed = 0 if block == MIB else SIZE // 3
    assert grown[1] <= disturbed
    assert grown[2] < 100_000 + 3 * MIB + disturbed
    assert grown[3] < 2 * MIB + disturbed
    drop_caches()
    for name, content in images.items():
        assert (pool.mount / name).read_bytes() == content


def test_an_image_written_again_is_found_whatever_order_its_requests_come_in(pool):
    """The kernel writes its page cache back with parallel requests, which the mount's threads take out of
    order. A long delayed thread may still cost a chunk or two."""
    size, times = 128 * MIB, 10
    pool.up("--naming", "on", "--chunking", "content", benefactors=2, drain=False)
    content = random.Random(4).randbytes(size)
    again = []
    for step in range(times + 1):
        before = stored(pool)
        write(pool.mount / f"app.N0.T{step}", content, 40_000)
        again.append(stored(pool) - before)
    assert again[0] >= size
    assert sum(again[1:]) < 0.01 * size * times, again
    drop_caches()
    assert (pool.mount / f"app.N0.T{times}").read_bytes() == content


def test_chunks_of_fixed_length_find_what_has_not_moved_only(pool):
    pool.up("--chunking", "fixed")
    images = series()
    for name, content in images.items():
        write(pool.mount / name, content)
    usage = stat(pool)["usage"]
    assert usage["stored_bytes"] > 2 * SIZE
    assert stat(pool, "app.N0.T2")["usage"]["stored_bytes"] == SIZE


def test_a_mount_has_its_own_choice_and_none_shares_nothing(pool):
    pool.up("--chunking", "content")
    images = series()
    plain = pool.mount_by_hand("plain", "--chunking", "none")
    for name in ("app.N0.T1", "app.N0.T2"):
        write(plain / name, images[name])
    usage = stat(pool)["usage"]
    assert usage["stored_bytes"] == usage["unnamed_bytes"] == 2 * SIZE
    said = pool.stdchk("stat", pool.mount / "app.N0.T1").stdout
    assert "not named" in said
    assert naming(pool) == naming(pool, "app.N0.T2") == {"app.N0": "off"}
    assert "naming   off: app.N0" in said


def test_a_folder_has_its_own_choice_which_wins(pool):
    pool.up("--chunking", "fixed")
    images = series()
    for chunking in ("content", "none", "inherit"):
        folder = pool.mount / chunking
        folder.mkdir()
        pool.stdchk("policy", "set", folder, f"chunking={chunking}")
        for name in ("app.N0.T1", "app.N0.T3"):
            write(folder / name, images[name])
    shared, alone, as_the_pool = (stat(pool, name)["usage"] for name in ("content", "none", "inherit"))
    assert shared["stored_bytes"] < SIZE + 4 * MIB
    assert alone["unnamed_bytes"] == alone["stored_bytes"] == alone["logical_bytes"]
    assert as_the_pool["unnamed_bytes"] == 0
    assert as_the_pool["stored_bytes"] > SIZE + SIZE // 3


def test_stat_counts_an_image_a_folder_and_the_pool(pool):
    pool.up("--chunking", "content")
    images = series()
    (pool.mount / "one").mkdir()
    (pool.mount / "two").mkdir()
    for folder in ("one", "two"):
        for name in ("app.N0.T1", "app.N0.T2"):
            write(pool.mount / folder / name, images[name])
    for path, files in (("one", 2), ("two", 2), ("", 4), ("one/app.N0.T1", 1)):
        found = stat(pool, path)
        assert found["usage"]["files"] == files
        assert found["usage"]["logical_bytes"] == files * SIZE
        assert found["usage"]["stored_bytes"] == SIZE
        assert found["pool"]["logical_bytes"] == 4 * SIZE
        assert SIZE <= found["pool"]["stored_bytes"] < 1.01 * SIZE
    assert [line["found_again"] for line in stat(pool)["naming"]] == [1, 1]
    assert naming(pool, "one") == naming(pool, "two/app.N0.T1") == {"app.N0": "pays"}
    text = pool.stdchk("stat", pool.mount / "one").stdout
    assert "naming   pays: app.N0; 100.0 % of the newest image is in the image before it" in text
    assert "48.0 MiB stored in 24.0 MiB (50.0 %)" in text
    assert "pool     96.0 MiB stored in 24" in text


def test_deleting_a_version_harms_no_other_also_after_the_manager_was_killed(pool):
    order = [3, 1, 0, 2]
    pool.up("--chunking", "content")
    images = series()
    names = list(images)
    for name in names:
        write(pool.mount / name, images[name])
    full = stored(pool)
    for step, index in enumerate(order):
        if step % 2 == 0:
            if step == 0:
                pool.kill("manager")
            else:
                pool.hand_processes[-1].kill()
                pool.hand_processes[-1].wait()
                (pathlib.Path(pool.record["directory"]) / "manager.again").unlink()
            restart_manager(pool)

        def removed(path=pool.mount / names[index]):
            try:
                path.unlink()
            except FileNotFoundError:
                pass  # an earlier attempt, whose answer was lost, has removed it
            except OSError:
                return False
            return True
        wait_until(removed, "a manager that answers", seconds=60)
        drop_caches()
        for other in order[step + 1:]:
            assert (pool.mount / names[other]).read_bytes() == images[names[other]]
        assert stored(pool) <= full
        pool.stdchk("check", pool.mount)  # checks every reference to chunks
    wait_until(lambda: stored(pool) == 0, "all space given back")
    assert stat(pool)["pool"]["chunks"] == 0


def test_nine_tenths_of_the_memory_are_used_again_after_ten_times_filling_and_deleting(pool):
    arena = 64 * MIB
    pool.up("--chunking", "content", benefactors=2, memory="64M", drain=False)
    rng = random.Random(9)
    kept = {}

    def space():
        status = os.statvfs(pool.mount)
        return status.f_bavail * status.f_frsize

    def fill(label, longest, leave=0):
        """Writes files of any length until at most `leave` bytes are free, or there is no space."""
        for number in range(10_000):
            if leave > 0 and space() < leave:
                return
            name, content = f"{label}.{number}", rng.randbytes(rng.randrange(longest // 8, longest))
            try:
                write(pool.mount / name, content)
            except OSError as why:
                assert why.errno == errno.ENOSPC
                return
            kept[name] = content
        raise AssertionError("it never is full")

    for cycle in range(10):
        fill(f"cycle{cycle}", 12 * MIB, 13 * MIB)
        for name in rng.sample(sorted(kept), 2 * len(kept) // 3):
            (pool.mount / name).unlink()
            del kept[name]
    fill("last", MIB)  # fills the pool completely
    assert sum(len(content) for content in kept.values()) >= 0.9 * 2 * arena
    drop_caches()
    for name, content in kept.items():
        assert (pool.mount / name).read_bytes() == content


def test_a_series_without_anything_in_common_is_not_named_to_the_end(pool):
    """Naming also stops when each image is removed before the next write."""
    size = 160 * MIB
    pool.up(benefactors=2, memory="256M")
    unnamed = []
    for step in range(3):
        image = pool.mount / f"app.N0.T{step}"
        write(image, os.urandom(size))
        unnamed.append(stat(pool, image.name)["usage"]["unnamed_bytes"])
        assert naming(pool) == {"app.N0": "on" if step == 0 else "did not pay"}
        image.unlink()
    assert unnamed[0] == 0  # no earlier image to compare with
    assert 0 < unnamed[1] < unnamed[2]
    assert unnamed[2] > size / 2


@pytest.mark.parametrize("by", ["mount", "folder"])
def test_a_series_that_is_not_named_is_off_however_large_or_small_its_images_are(pool, by):
    """The chunks do not show the reason, because `auto` always names a random sample of chunks. A series of 160 chunks
    has no sample in one of 12 cases, and 8 chunks in nine of ten. A recovered manager says the same."""
    pool.up("--naming", "off" if by == "mount" else "auto", benefactors=2, memory="256M")
    if by == "folder":
        pool.stdchk("policy", "set", pool.mount, "chunking=none")
    for name, size in (("small.N0.T1", 8 * MIB), ("large.N0.T1", 160 * MIB)):
        write(pool.mount / name, os.urandom(size))
    assert naming(pool) == {"small.N0": "off", "large.N0": "off"}
    pool.kill("manager")
    restart_manager(pool)
    assert naming(pool, "large.N0.T1") == {"large.N0": "off"}
    assert naming(pool) == {"small.N0": "off", "large.N0": "off"}
