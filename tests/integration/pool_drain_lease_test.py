"""Tests that only one of two pools drains into a directory, and that the lease of a lost pool ends."""

import os
import signal

import pytest
from conftest import Pool, restart_manager, write_random
from processes import wait_until

LEASE = ".stdchk-lease"


@pytest.fixture(name="other")
def other_fixture(pool, tmp_path):
    """A second pool, with the drain directory of the first."""
    other = Pool(tmp_path)
    other.drain = pool.drain
    yield other
    other.clean()


def manager_log(pool):
    (path,) = (pool.runtime / "stdchk").glob("pool*/manager.log")
    return path.read_text()


def drains(pool, name):
    (pool.mount / name).write_bytes(os.urandom(100_000))
    pool.stdchk("drain", "--wait", "--timeout", 30, pool.mount / name)
    return (pool.drain / name).read_bytes() == (pool.mount / name).read_bytes()


def test_a_second_pool_is_refused_until_the_first_has_ended(pool, other):
    pool.up(benefactors=1, memory="64M")
    assert (pool.drain / LEASE).stat().st_mode & 0o7777 == 0o600
    with pytest.raises(AssertionError) as refused:
        other.up(benefactors=1, memory="64M")
    assert f"the drain directory {pool.drain} is in use by another pool" in str(refused.value)
    assert drains(pool, "one")
    pool.down()
    assert not (pool.drain / LEASE).exists()
    other.up(benefactors=1, memory="64M")
    assert (other.mount / "one").stat().st_size == 100_000
    assert not (other.mount / LEASE).exists()
    assert drains(other, "two")
    other.down()


def test_a_pool_that_was_killed_on_this_host_keeps_nobody_waiting(pool, other):
    pool.up(benefactors=1, memory="64M")
    assert drains(pool, "one")
    pool.kill("manager")
    other.up(benefactors=1, memory="64M")
    assert drains(other, "two")


def test_a_manager_that_was_stopped_drains_nothing_after_another_took_its_place(pool, other):
    pool.up(benefactors=1, memory="64M")
    assert drains(pool, "one")
    (manager,) = pool.pids("manager")
    os.kill(manager, signal.SIGSTOP)
    try:
        other.up(benefactors=1, memory="64M")
    finally:
        os.kill(manager, signal.SIGCONT)
    assert drains(other, "two")
    wait_until(lambda: "drains nothing: the drain directory" in manager_log(pool), "the manager's word", seconds=20)
    write_random(pool.mount, ["three"], 100_000)
    assert pool.stdchk("drain", "--wait", "--timeout", 20, pool.mount, check=False).returncode == 1
    assert not (pool.drain / "three").exists()
    # The images in its memory stay readable, and are drained when the directory is free.
    assert (pool.mount / "one").stat().st_size == 100_000
    other.down()
    pool.stdchk("drain", "--wait", "--timeout", 40, pool.mount)
    assert (pool.drain / "three").stat().st_size == 100_000


def test_a_restarted_manager_takes_its_lease_again(pool):
    pool.up(benefactors=1, memory="64M")
    before = (pool.drain / LEASE).read_text()
    pool.kill("manager")
    restart_manager(pool)
    assert drains(pool, "one")
    after = (pool.drain / LEASE).read_text()
    lines = [dict(line.split(" ", 1) for line in text.splitlines()[1:]) for text in (before, after)]
    assert lines[0]["manager"] == lines[1]["manager"] and lines[0]["process"] != lines[1]["process"]
