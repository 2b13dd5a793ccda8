"""Tests copies of chunks in real pools: made, lost, made again, checked, handed over."""

import hashlib
import os
import signal
import subprocess
import time

import pytest
from conftest import drop_caches
from processes import change_memory, is_running, wait_until

MIB = 1024 * 1024


def content(seed, size):
    block = hashlib.sha256(str(seed).encode()).digest()
    return b"".join(hashlib.sha256(block + i.to_bytes(8, "big")).digest() * 2048
                    for i in range(size // 65536))


def write(pool, name, seed, size=16 * MIB):
    data = content(seed, size)
    (pool.mount / name).write_bytes(data)
    return data


def redundant(pool):
    return pool.status()["pool"]["debt_chunks"] == 0


def figures(pool):
    return pool.status()["pool"]


def check_metadata(pool):
    done = pool.stdchk("check", "--json", pool.mount, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def read_back(pool, images, seconds=30):
    """Reads every image through a mount with empty caches; no read may take longer than `seconds`."""
    drop_caches()
    fresh = pool.mount_by_hand("fresh")
    slowest = 0.0
    for name, data in images.items():
        start = time.monotonic()
        assert (fresh / name).read_bytes() == data, name
        slowest = max(slowest, time.monotonic() - start)
    assert slowest < seconds
    return slowest


def test_a_killed_benefactor_loses_nothing_and_its_copies_are_made_again(pool):
    pool.up("--copies", "2", benefactors=4, memory="128M", drain=False)
    images = {f"app.N{i}.T1": write(pool, f"app.N{i}.T1", i) for i in range(4)}
    wait_until(lambda: redundant(pool), "the second copies")
    row = {row["path"]: row for row in pool.list()}["app.N0.T1"]
    assert row["copies"] == row["copies_wanted"] == 2
    victim = pool.kill("benefactor", 1)
    slowest = read_back(pool, images)
    print(f"slowest read with a dead benefactor: {slowest:.2f} s")
    start = time.monotonic()
    wait_until(lambda: figures(pool)["copies_made"] > 64 and redundant(pool),
               "redundancy after the death", seconds=40)
    print(f"redundant again {time.monotonic() - start:.1f} s after the death of {victim}")
    status = figures(pool)
    assert status["lost_chunks"] == 0
    check_metadata(pool)
    # With the copies restored, a second benefactor may die.
    pool.kill("benefactor", 2)
    wait_until(lambda: [b["state"] for b in figures(pool)["benefactors"]].count("gone") == 2,
               "the second death is noticed", seconds=30)
    wait_until(lambda: redundant(pool), "redundancy after the second death", seconds=40)
    for name, data in images.items():
        assert (pool.folder / "fresh" / name).read_bytes() == data


def test_a_close_may_wait_for_all_copies(pool):
    pool.up("--copies", "3", "--close", "redundant", benefactors=3, memory="128M", drain=False)
    write(pool, "a", 1)
    assert redundant(pool)
    assert pool.list()[0]["copies"] == 3
    # With fewer benefactors than copies, the status says so, and the image stays readable.
    pool.kill("benefactor", 0)
    wait_until(lambda: "gone" in [b["state"] for b in figures(pool)["benefactors"]],
               "the death is noticed", seconds=30)
    failed = False
    try:
        write(pool, "b", 2, MIB)
    except OSError:
        failed = True
    assert failed
    assert (pool.mount / "b").read_bytes() == content(2, MIB)


def test_a_benefactor_killed_in_mid_write_costs_no_image_whose_close_waits_for_two_copies(pool):
    pool.up(benefactors=4, memory="256M", drain=False)
    (pool.mount / "app").mkdir()
    pool.stdchk("policy", "set", pool.mount / "app", "copies=2", "commit=redundant")
    data = {name: content(seed, 48 * MIB) for seed, name in enumerate(("app.N0.T1", "plain"))}
    files = {name: os.open(pool.mount / "app" / name, os.O_CREAT | os.O_WRONLY) for name in data}
    for at in range(0, 48 * MIB, MIB):
        if at == 16 * MIB:
            os.fsync(files["app.N0.T1"])  # stored bytes have left the window
            pool.kill("benefactor", 1)
        for name, file in files.items():
            assert os.pwrite(file, data[name][at:at + MIB], at) == MIB
    start = time.monotonic()
    for file in files.values():
        os.close(file)
    print(f"both closed {time.monotonic() - start:.2f} s after the last byte")
    drop_caches()
    fresh = pool.mount_by_hand("fresh")
    for name, bytes_written in data.items():
        seen = subprocess.run(["sha256sum", fresh / "app" / name], capture_output=True, text=True, check=True)
        assert seen.stdout.split()[0] == hashlib.sha256(bytes_written).hexdigest()
    wait_until(lambda: "gone" in [b["state"] for b in figures(pool)["benefactors"]],
               "the death is noticed", seconds=30)
    wait_until(lambda: redundant(pool), "redundancy after the death", seconds=40)
    assert figures(pool)["lost_chunks"] == 0
    check_metadata(pool)


def test_a_close_that_waits_for_copies_has_written_them_itself(pool):
    pool.up("--copies", "2", "--close", "redundant", benefactors=3, memory="128M", drain=False)
    write(pool, "a", 1)
    assert redundant(pool)
    assert figures(pool)["copies_made"] == 0
    assert pool.list()[0]["copies"] == 2
    check_metadata(pool)


def test_mounts_and_folders_ask_for_their_own_number_of_copies(pool):
    pool.up(benefactors=3, memory="128M", drain=False)
    write(pool, "one", 1, MIB)
    two = pool.mount_by_hand("two", "--copies", "2")
    (two / "two").write_bytes(content(2, MIB))
    wait_until(lambda: redundant(pool), "the second copies")
    copies = {row["path"]: row["copies"] for row in pool.list()}
    assert copies == {"one": 1, "two": 2}
    # A folder's policy overrides the pool's, and may make close() wait for copies.
    (pool.mount / "app").mkdir()
    pool.stdchk("policy", "set", pool.mount / "app", "copies=3", "commit=redundant")
    (two / "app" / "three").write_bytes(content(3, MIB))
    assert redundant(pool)
    assert pool.list("app")[0]["copies"] == 3


def test_a_changed_bit_is_found_and_mended(pool):
    disk = pool.folder / "arenas"
    disk.mkdir()
    pool.up("--copies", "2", "--disk", disk, benefactors=2, memory="64M", drain=False)
    images = {"a": write(pool, "a", 1, 8 * MIB)}
    wait_until(lambda: redundant(pool), "the second copies")
    assert pool.stdchk("scrub", "--wait", pool.mount).returncode == 0
    # Corrupts a benefactor's memory.
    change_memory(pool.pids("benefactor")[0], "arenas", images["a"][:64])
    done = pool.stdchk("scrub", "--wait", pool.mount, check=False)
    assert done.returncode == 1, done.stdout
    wait_until(lambda: figures(pool)["scrub"]["repaired_chunks"] >= 1 and redundant(pool),
               "the repair")
    assert figures(pool)["scrub"]["wrong_chunks"] >= 1
    assert pool.stdchk("scrub", "--wait", pool.mount).returncode == 0
    read_back(pool, images)
    check_metadata(pool)


@pytest.mark.parametrize("naming", ["on", "off"])
def test_a_copy_that_has_become_wrong_is_read_past_and_mended(pool, naming):
    disk = pool.folder / "arenas"
    disk.mkdir()
    pool.up("--copies", "2", "--naming", naming, "--disk", disk, benefactors=2, memory="64M", drain=False)
    images = {"app.N0.T1": write(pool, "app.N0.T1", 1, 8 * MIB)}
    wait_until(lambda: redundant(pool), "the second copies")
    # Corrupts half of the chunks on each benefactor: any choice of copies meets corrupt ones.
    for chunk in range(8):
        change_memory(pool.pids("benefactor")[chunk // 4], "arenas", images["app.N0.T1"][chunk * MIB:][:64])
    read_back(pool, images)
    assert pool.list()[0]["chunks"] == 8
    # Readers have reported the corrupt copies that they met.
    wait_until(lambda: figures(pool)["scrub"]["repaired_chunks"] >= 1 and redundant(pool), "the repair")
    pool.stdchk("scrub", "--wait", pool.mount, check=False)  # finds the corrupt copies that no reader met
    wait_until(lambda: figures(pool)["scrub"]["repaired_chunks"] == 8 and redundant(pool), "all repairs")
    assert pool.stdchk("scrub", "--wait", pool.mount).returncode == 0
    check_metadata(pool)


def test_a_benefactor_that_is_told_to_end_hands_over_first(pool):
    pool.up(benefactors=3, memory="128M", drain=False)
    images = {f"f{i}": write(pool, f"f{i}", i, 4 * MIB) for i in range(6)}
    before = figures(pool)["copies_made"]
    pid = pool.pids("benefactor")[0]
    start = time.monotonic()
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not is_running(pid), "its end", seconds=30)
    print(f"handed over in {time.monotonic() - start:.1f} s")
    assert figures(pool)["copies_made"] > before
    read_back(pool, images)
    assert figures(pool)["lost_chunks"] == 0
    check_metadata(pool)


def test_an_image_that_is_lost_is_named(pool):
    pool.up(benefactors=2, memory="128M", drain=False)
    write(pool, "app.N0.T1", 1)
    pool.kill("benefactor", 0)
    wait_until(lambda: figures(pool)["lost_chunks"] > 0, "the loss is noticed", seconds=30)
    log = (pool.folder / "runtime" / "stdchk").glob("*/manager.log")
    assert "image app.N0.T1" in "".join(path.read_text() for path in log)
    start = time.monotonic()
    drop_caches()
    fresh = pool.mount_by_hand("fresh")
    try:
        (fresh / "app.N0.T1").read_bytes()
        raise AssertionError("bytes that are lost were read")
    except OSError as error:
        assert error.errno == 5
    assert time.monotonic() - start < 30
    assert "An input/output error of app.N0.T1: " in (pool.folder / "fresh.log").read_text()


def test_garbage_is_planned_before_it_is_collected(pool):
    pool.up(benefactors=2, memory="64M", drain=False)
    write(pool, "a", 1, 4 * MIB)
    plan = pool.stdchk("gc", "--dry-run", pool.mount)
    assert "to give back" in plan.stdout
    assert "given back" in pool.stdchk("gc", pool.mount).stdout
    assert "all rules hold" in pool.stdchk("check", pool.mount).stdout
