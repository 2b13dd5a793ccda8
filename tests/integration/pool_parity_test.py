"""Tests parity in real pools: made, read through, made again, reported."""

import os
import signal

import pytest
from conftest import drop_caches
from pool_copies_test import MIB, change_memory, check_metadata, content, figures, redundant, write
from processes import wait_until


def read_all(pool, images, name):
    """Reads every image through a mount with empty caches."""
    drop_caches()
    fresh = pool.mount_by_hand(name)
    for image, data in images.items():
        assert (fresh / image).read_bytes() == data, image


def gone(pool):
    return [b["state"] for b in figures(pool)["benefactors"]].count("gone")


@pytest.mark.parametrize("parity", [1, 2])
def test_as_many_benefactors_as_parity_blocks_may_be_killed(pool, parity):
    # Lost blocks can be made again while there are as many benefactors as a stripe has blocks.
    pool.up("--copies", f"ec(4,{parity})", benefactors=5 + 2 * parity, memory="96M", drain=False)
    images = {f"app.N{i}.T1": write(pool, f"app.N{i}.T1", i, 12 * MIB) for i in range(4)}
    wait_until(lambda: redundant(pool), "the parity")
    row = {row["path"]: row for row in pool.list()}["app.N0.T1"]
    assert row["parity"] == f"ec(4,{parity})"
    assert row["chunks_lacking_copies"] == 0
    before = figures(pool)
    assert before["stripes"] >= 12
    # All stripes are whole, except a few at the ends of images.
    assert before["parity_bytes"] < (parity / 4 + 0.25) * 48 * MIB
    for number in range(parity):
        pool.kill("benefactor", number)
    # Reads at once, through the parity, before lost blocks are made again.
    read_all(pool, images, "degraded")
    wait_until(lambda: gone(pool) == parity and redundant(pool), "new copies of the lost blocks",
               seconds=60)
    after = figures(pool)
    assert after["lost_chunks"] == 0
    assert after["rebuilt_chunks"] > 0
    check_metadata(pool)
    # The restored parity survives another loss.
    pool.kill("benefactor", parity)
    read_all(pool, images, "again")
    wait_until(lambda: gone(pool) == parity + 1 and redundant(pool), "it is made again once more",
               seconds=60)
    assert figures(pool)["lost_chunks"] == 0
    for image in images:
        (pool.mount / image).unlink()
    wait_until(lambda: figures(pool)["stripes"] == 0 and figures(pool)["stored_bytes"] == 0,
               "nothing is left")
    check_metadata(pool)


def test_more_losses_than_parity_are_told_and_never_read_as_something_else(pool):
    pool.up("--copies", "ec(3,1)", benefactors=5, memory="96M", drain=False)
    data = write(pool, "app.N0.T1", 1, 12 * MIB)
    wait_until(lambda: redundant(pool), "the parity")
    # Three of five benefactors hold at least two of a stripe's four blocks. All three die at once, which
    # leaves no time for a rebuild.
    for pid in pool.pids("benefactor")[:3]:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: gone(pool) == 3, "the deaths are noticed", seconds=30)
    wait_until(lambda: figures(pool)["lost_chunks"] > 0, "the loss is told")
    fresh = pool.mount_by_hand("fresh")
    with pytest.raises(OSError), open(fresh / "app.N0.T1", "rb") as file:
        assert file.read() == data


def test_a_folder_asks_for_parity_and_a_close_may_wait_for_it(pool):
    pool.up("--close", "redundant", benefactors=4, memory="96M", drain=False)
    (pool.mount / "app").mkdir()
    pool.stdchk("policy", "set", pool.mount / "app", "copies=ec(3,1)")
    shown = pool.stdchk("policy", "get", pool.mount / "app").stdout
    assert "ec(3,1)" in shown
    data = content(3, 6 * MIB)
    (pool.mount / "app" / "a").write_bytes(data)
    assert redundant(pool)
    assert figures(pool)["stripes"] >= 2
    detail = pool.stdchk("ls", "-l", pool.mount / "app").stdout
    assert "ec(3,1)" in detail and "part of" not in detail
    assert "parity" in pool.stdchk("status", pool.mount).stdout
    unsafe = pool.stdchk("safe", pool.mount / "app" / "a", check=False)
    assert unsafe.returncode == 1 and "copies=ec(3,1)" in unsafe.stdout
    bad = pool.stdchk("policy", "set", pool.mount / "app", "copies=ec(99,1)", check=False)
    assert bad.returncode != 0 and "ec(k,m)" in bad.stderr


def test_a_changed_chunk_is_read_and_repaired_through_parity(pool):
    disk = pool.folder / "arenas"
    disk.mkdir()
    pool.up("--copies", "ec(2,1)", "--disk", disk, benefactors=4, memory="64M", drain=False)
    data = write(pool, "app.N0.T1", 5, 4 * MIB)
    wait_until(lambda: redundant(pool), "the parity")
    changed = data[MIB:MIB + 64]
    holders = 0
    for pid in pool.pids("benefactor"):
        try:
            change_memory(pid, "arenas", changed)
            holders += 1
        except AssertionError:
            continue
    assert holders == 1
    read_all(pool, {"app.N0.T1": data}, "fresh")
    pool.stdchk("scrub", "--wait", pool.mount, check=False)
    wait_until(lambda: figures(pool)["scrub"]["repaired_chunks"] == 1, "the repair")
    assert redundant(pool)
    check_metadata(pool)


def test_a_topology_that_is_wrong_is_told(pool):
    topology = pool.folder / "topology"
    topology.write_text("host rack=1\nother row=2\n")
    done = pool.stdchk("up", "--mount", pool.mount, "--memory", "16M", "--topology", topology,
                       check=False)
    assert done.returncode != 0
    told = done.stdout + done.stderr
    assert "line 2" in told and "row=2" in told, told
    topology.write_text("host rack=1\nother rack=2\n")
    pool.up("--topology", topology, benefactors=2, memory="16M", drain=False)
