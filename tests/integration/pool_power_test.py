"""Tests power failures: a change that a pool has reported as durable must survive. The file system keeps only
synced changes (forgetful_fs.c). Killing processes would not show this, because the kernel's cache survives.
"""

import contextlib
import os
import random
import shutil
import signal
import sqlite3
import time

import file_systems
import pytest
from conftest import all_read_back, restart_manager, write_random
from processes import BIN, children_of, is_running, leads_to, run, wait_until

MIB = 1 << 20
KIB = 1 << 10
RANKS = 3


@pytest.fixture
def storage(request, tmp_path):
    """A file system that forgets; the fixture's parameter gives its options."""
    with file_systems.forgetful(tmp_path, *getattr(request, "param", ())) as one:
        yield one


def ignored_syncs(*options):
    """File systems that ignore one kind of sync each."""
    return [pytest.param(("--ignore-sync", kind, *options), id=kind) for kind in ("files", "folders")]


def kill_all(pool):
    """Kills all processes, so that no file stays open."""
    pids = [member["pid"] for member in pool.record["members"]]
    pids += [child for pid in pids if is_running(pid) for child in children_of(pid)]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(map(is_running, pids)), "the end of all processes")
    pool.hand_mounts.append(pool.mount)  # `stdchk down` may find no record of the mount any more


# Tests of the manager's journal.


def write_names(pool):
    """Writes images and changes names, and waits for each answer. Returns the expected content by path."""
    folder = pool.mount / "run"
    expected = write_random(folder, [f"app.N{rank}.T1" for rank in range(8)] + ["old", "removed"], 300 * KIB)
    # Fills more than the write-ahead log holds: SQLite merges it into the database after 1000 pages.
    for number in range(400):
        (folder / f"{number}").mkdir()
    (folder / "old").rename(folder / "new")
    expected["new"] = expected.pop("old")
    (folder / "removed").unlink()
    del expected["removed"]
    return expected


def records(storage, folder):
    """The number of commands in the journal that is on the file system now; opens a copy of it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in ("journal.db", "journal.db-wal"):
        with contextlib.suppress(FileNotFoundError):
            shutil.copy(storage.point / "state" / "manager" / name, folder)
    with contextlib.closing(sqlite3.connect(folder / "journal.db")) as database:
        try:
            return database.execute("SELECT COUNT(*) FROM record").fetchone()[0]
        except sqlite3.Error:
            return 0


def test_what_was_committed_outlives_the_power_of_the_managers_host(pool, storage):
    pool.up("--state", storage.point / "state", benefactors=2, memory="64M", drain=False)
    expected = write_names(pool)
    before = pool.list("run")
    pool.kill("manager")
    storage.forget()
    restart_manager(pool)
    wait_until(lambda: all_read_back(pool.mount / "run", expected), "the images", seconds=40)
    assert pool.list("run") == before
    assert not (pool.mount / "run" / "old").exists() and not (pool.mount / "run" / "removed").exists()
    # The recovered pool works.
    (pool.mount / "run" / "later").write_bytes(b"later")
    pool.stdchk("check")
    pool.down()


def test_a_journal_is_whole_after_any_change_of_names(pool, storage, tmp_path):
    pool.up("--state", storage.point / "state", benefactors=1, memory="64M", drain=False)
    write_names(pool)
    kill_all(pool)
    before = records(storage, tmp_path / "copy")
    assert before > 400
    storage.forget("bytes")
    assert records(storage, tmp_path / "copy") == before
    storage.forget()
    assert records(storage, tmp_path / "copy") == before


@pytest.mark.parametrize("storage", ignored_syncs(), indirect=True)
def test_a_journal_that_is_not_synced_is_lost(pool, storage, tmp_path):
    """Proves that the tests above can fail."""
    pool.up("--state", storage.point / "state", benefactors=1, memory="64M", drain=False)
    write_names(pool)
    kill_all(pool)
    before = records(storage, tmp_path / "copy")
    storage.forget()
    assert before > 400 and records(storage, tmp_path / "copy") < before


# Tests of the drain directory. Each benefactor is a node, and syncs its own writes.


def image(folder, rank, timestep):
    return folder / f"app.N{rank}.T{timestep}"


def write_drained(pool, *how):
    """Writes and changes files in folders until all are safe. Returns the expected content by path, and the paths that
    must be absent from the drain directory."""
    drain = ("drain", "--wait", *how, pool.mount)
    run_folder, deep = pool.mount / "run", pool.mount / "deep" / "er"
    deep.mkdir(parents=True)
    expected = {}
    for timestep in (1, 2):
        made = write_random(run_folder, [f"app.N{rank}.T{timestep}" for rank in range(RANKS)], 5 * MIB + 17)
        expected |= {f"run/{name}": content for name, content in made.items()}
    expected["deep/er/one"], expected["empty"], moved = os.urandom(70000), b"", os.urandom(MIB)
    (deep / "one").write_bytes(expected["deep/er/one"])
    (pool.mount / "empty").touch()
    (pool.mount / "gone").mkdir()
    for name in ("before", "replaced", "removed", "gone/all"):
        (pool.mount / name).write_bytes(moved)
    with open(pool.mount / "sparse", "wb") as file:
        file.write(moved)
        file.truncate(9 * MIB)
    expected["sparse"] = moved + bytes(8 * MIB)
    pool.stdchk(*drain)
    assert how or (pool.drain / "gone" / ".stdchk-manifest").exists()
    (pool.mount / "before").rename(deep / "moved")
    expected["deep/er/moved"] = moved
    expected["replaced"] = os.urandom(2 * MIB + 1)
    (pool.mount / "replaced").write_bytes(expected["replaced"])
    for name in ("removed", "gone/all"):
        (pool.mount / name).unlink()
    (pool.mount / "link").symlink_to("deep/er/one")
    pool.stdchk(*drain)
    assert pool.stdchk("safe", pool.mount, check=False).returncode == 0
    wait_until(lambda: (pool.drain / "run" / "latest").is_symlink(), "the link")
    return expected, ["before", "removed", "gone/all", "gone/.stdchk-manifest"]


def check_drained(pool, expected, gone):
    for name, content in expected.items():
        assert (pool.drain / name).read_bytes() == content, name
    assert [name for name in gone if (pool.drain / name).exists()] == []
    assert os.readlink(pool.drain / "run" / "latest") == "app.*.T2"
    assert os.readlink(pool.drain / "link") == "deep/er/one"


def up_with_drain(pool, storage, *words):
    pool.drain = storage.point / "job" / "drain"
    pool.up("--policy", f"images={RANKS}", *words, benefactors=3, memory="64M")


@pytest.mark.parametrize("storage", [("--nodes",)], ids=["nodes"], indirect=True)
@pytest.mark.parametrize("what", ["all", "bytes"])
def test_what_is_safe_outlives_the_power_of_all_hosts(pool, storage, what):
    up_with_drain(pool, storage)
    expected, gone = write_drained(pool)
    kill_all(pool)
    storage.forget(what)
    check_drained(pool, expected, gone)
    told = run(BIN / "stdchk", "verify", "--json", pool.drain, check=False)
    assert told.returncode == 0, told.stdout
    # A new pool accepts the files as drained.
    pool.up("--policy", f"images={RANKS}", benefactors=3, memory="64M")
    assert all_read_back(pool.mount, expected)
    assert pool.stdchk("safe", pool.mount, check=False).returncode == 0
    pool.down()


@pytest.mark.parametrize("storage", [("--nodes",)], ids=["nodes"], indirect=True)
def test_what_is_safe_needs_no_syncs_but_the_benefactors_own(pool, storage):
    """The drain writes no manifests, because the writer of manifests would sync the folders."""
    up_with_drain(pool, storage)
    expected, gone = write_drained(pool, "--no-manifest")
    kill_all(pool)
    storage.forget()
    check_drained(pool, expected, gone)


@pytest.mark.parametrize("storage", [("--nodes",)], ids=["nodes"], indirect=True)
def test_a_file_in_a_folder_that_its_maker_has_not_synced_is_safe(pool, storage):
    up_with_drain(pool, storage)
    drain = ("drain", "--wait", "--no-manifest", pool.mount)
    (pool.mount / "run" / "deep").mkdir(parents=True)
    pool.stdchk(*drain)
    # Imitates a node that made the folder, did not sync it, and then loses its power.
    (pool.drain / "run" / "deep").rmdir()
    (pool.drain / "run").rmdir()
    (pool.drain / "run" / "deep").mkdir(parents=True)
    expected = write_random(pool.mount / "run" / "deep", ["file"], MIB)
    pool.stdchk(*drain)
    assert pool.stdchk("safe", pool.mount, check=False).returncode == 0
    kill_all(pool)
    storage.forget()
    assert all_read_back(pool.drain / "run" / "deep", expected)


@pytest.mark.parametrize("storage", ignored_syncs("--nodes"), indirect=True)
def test_what_is_drained_and_not_synced_is_lost(pool, storage):
    """Proves that the test above can fail."""
    up_with_drain(pool, storage)
    expected, _ = write_drained(pool)
    kill_all(pool)
    storage.forget()
    assert not any(all_read_back(pool.drain, {name: content}) for name, content in expected.items() if content)


def contents(folder, timestep):
    """The first byte of each present image of a set. Each image must be whole: all its bytes are equal."""
    found = []
    for rank in range(RANKS):
        with contextlib.suppress(FileNotFoundError):
            content = image(folder, rank, timestep).read_bytes()
            assert len(content) == 3 * MIB + rank and content == content[:1] * len(content), (rank, timestep)
            found.append(content[0])
    return found


@pytest.mark.parametrize("storage", [("--nodes",)], ids=["nodes"], indirect=True)
@pytest.mark.parametrize("what", ["all", "bytes"])
def test_a_drain_that_loses_its_power_leaves_whole_files_and_a_link_to_a_whole_set(pool, storage, what):
    rng = random.Random(what)
    safe = 0  # content of the newest set that was safe
    for content in (1, 3, 5):
        up_with_drain(pool, storage, "--drain-rate", "64M")
        for timestep in (0, 1):
            for rank in range(RANKS):
                image(pool.mount, rank, timestep).write_bytes(bytes([content + timestep]) * (3 * MIB + rank))
            if timestep == 0:
                pool.stdchk("drain", "--wait", pool.mount)
                wait_until(lambda: leads_to(pool.drain / "latest", "app.*.T0"), "the link")
                safe = content
        time.sleep(rng.random() / 2)
        kill_all(pool)
        storage.forget(what)
        sets = {timestep: contents(pool.drain, timestep) for timestep in (0, 1)}
        assert sets[0] == [safe] * RANKS
        newest = os.readlink(pool.drain / "latest")
        named = sets[int(newest[-1])]
        assert len(named) == RANKS and len(set(named)) == 1, (newest, sets)
