"""Tests that benefactors forget deleted chunks when the manager tells them to, and no other chunks."""

import json
import os
import shutil

from conftest import all_read_back, drop_caches, write_random
from processes import wait_until

MIB = 1 << 20


def write(folder, names, size=2 * MIB):
    return write_random(folder, names, size)


def collect(pool, *arguments):
    """The sums of the figures of all benefactors."""
    reply = json.loads(pool.stdchk("gc", "--json", *arguments, pool.mount).stdout)
    assert reply["executed"] == ("--dry-run" not in arguments)
    out = {"whole": sum(each["whole"] for each in reply["benefactors"])}
    for key in ("garbage", "forgotten", "used", "granted", "waiting", "copying", "missing"):
        out[key] = sum(each[f"{key}_extents"] for each in reply["benefactors"])
    return out


def plan(pool):
    return collect(pool, "--dry-run")


def wait_for_garbage(pool, extents):
    """Waits until removals have taken effect and no process has the files open."""
    wait_until(lambda: plan(pool)["garbage"] >= extents, f"{extents} extents of garbage")


def test_what_was_deleted_is_planned_then_forgotten_and_a_rebuilt_manager_finds_nothing(pool):
    pool.up("--gc-period", "0", "--policy", "copies=2", memory="64M", drain=False)
    wait_until(lambda: pool.status()["pool"]["log_copies"] == 3, "three copies of the metadata")
    folder = pool.mount / "app"
    kept = write(folder, [f"kept.N{i}.T1" for i in range(4)])
    gone = write(folder, [f"gone.N{i}.T1" for i in range(4)])
    chunks = 2 * 2  # a file's two chunks, with two copies each
    wait_until(lambda: plan(pool)["used"] == 8 * chunks, "all copies")
    for name in gone:
        (folder / name).unlink()
    wait_for_garbage(pool, 4 * chunks)
    planned = plan(pool)
    assert planned["whole"] == 4 and planned["forgotten"] == 0
    assert planned["used"] == 4 * chunks and planned["missing"] == 0
    assert plan(pool)["garbage"] == planned["garbage"]
    text = pool.stdchk("gc", "--dry-run", pool.mount).stdout
    assert text.count("that nothing refers to") == 4 and "to give back" in text

    done = collect(pool)
    assert done["garbage"] == done["forgotten"] == planned["garbage"]
    after = plan(pool)
    assert after["garbage"] == 0 and after["used"] == 4 * chunks
    drop_caches()
    assert all_read_back(folder, kept)

    pool.kill("manager")
    shutil.rmtree(os.path.join(pool.record["directory"], "manager"))
    assert "rebuilt from the metadata on benefactors" in pool.stdchk("recover", pool.mount).stdout
    drop_caches()
    wait_until(lambda: all_read_back(folder, kept), "the images", seconds=60)
    wait_until(lambda: plan(pool)["whole"] == 4, "all benefactors")
    rebuilt = plan(pool)
    assert rebuilt["garbage"] == 0 and rebuilt["missing"] == 0
    assert rebuilt["used"] == 4 * chunks
    assert "all rules hold" in pool.stdchk("check", pool.mount).stdout
    pool.down()


def test_what_somebody_reads_or_writes_is_not_forgotten(pool):
    pool.up("--gc-period", "0", benefactors=2, memory="64M", drain=False)
    folder = pool.mount / "app"
    content = write(folder, ["read.N0.T1"])["read.N0.T1"]
    with open(folder / "read.N0.T1", "rb") as reader, open(folder / "new.N0.T1", "wb") as writer:
        assert reader.read(4096) == content[:4096]
        (folder / "read.N0.T1").unlink()
        writer.write(content)
        writer.flush()
        collect(pool)
        drop_caches()
        reader.seek(0)
        assert reader.read() == content
    assert (folder / "new.N0.T1").read_bytes() == content
    drop_caches()
    assert (folder / "new.N0.T1").read_bytes() == content
    assert "all rules hold" in pool.stdchk("check", pool.mount).stdout
    pool.down()


def test_rounds_come_by_themselves(pool):
    pool.up("--gc-period", "1", benefactors=2, memory="64M", drain=False)
    folder = pool.mount / "app"
    kept = write(folder, ["kept.N0.T1"])
    write(folder, ["gone.N0.T1"])
    (folder / "gone.N0.T1").unlink()

    def forgotten():
        logs = (pool.folder / "runtime" / "stdchk").glob("*/manager.log")
        return "2 extents that nothing refers to were forgotten" in "".join(
            path.read_text() for path in logs
        )

    wait_until(forgotten, "a round that forgets")
    assert plan(pool)["garbage"] == 0
    drop_caches()
    assert all_read_back(folder, kept)
    pool.down()
