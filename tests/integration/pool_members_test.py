"""Tests where new images go when benefactors join or fall silent in a used pool."""

import errno
import os
import time

import pytest
from conftest import drop_caches
from processes import stopped, wait_until

MIB = 1 << 20
SILENT_SECONDS = 5  # docs/guide/failures.md: a benefactor that is silent for this time gets no new chunks
READ_SECONDS = 31  # a call's limit of 30 s (docs/guide/failures.md), and 1 s for this machine


def states(pool):
    return {one["pid"]: one["state"] for one in pool.status()["pool"]["benefactors"]}


def places(pool, *names):
    """The pids of the benefactors that hold chunks of these images."""
    pids = {one["id"]: one["pid"] for one in pool.status()["pool"]["benefactors"]}
    found = {entry["path"]: entry["benefactors"] for entry in pool.list()}
    return {pids[place["benefactor"]] for name in names for place in found[name] if place["bytes"] > 0}


def write_images(pool, timestep, count=3, size=8 * MIB):
    images = {f"app.N{number}.T{timestep}": os.urandom(size) for number in range(count)}
    for name, content in images.items():
        (pool.mount / name).write_bytes(content)
    return images


def assert_equal(pool, images):
    for name, content in images.items():
        assert (pool.mount / name).read_bytes() == content


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_benefactor_that_is_stopped_gets_nothing_new_until_it_goes_on(pool, transport):
    pool.up("--transport", transport, "--naming", "off", benefactors=3, drain=False)
    before = write_images(pool, 1)
    pids = set(pool.pids("benefactor"))
    assert places(pool, *before) == pids
    silent = pool.pids("benefactor")[1]
    with stopped(silent):
        wait_until(lambda: states(pool)[silent] != "alive", "the manager's notice", SILENT_SECONDS + 2)
        began = time.monotonic()
        meanwhile = write_images(pool, 2)
        assert time.monotonic() - began < 10
        assert places(pool, *meanwhile) == pids - {silent}
    wait_until(lambda: states(pool)[silent] == "alive", "its return", SILENT_SECONDS + 2)
    after = write_images(pool, 3)
    assert places(pool, *after) == pids
    assert_equal(pool, before | meanwhile | after)


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("copies", ["1", "2", "ec(2,1)"])
def test_what_a_stopped_benefactor_has_is_read_in_time(pool, transport, copies):
    """Reads use another copy or the parity. Without either they answer EIO until the benefactor continues.
    The memory of a stopped process on this host stays readable by shm."""
    pool.up("--transport", transport, "--naming", "off", "--copies", copies, "--close", "redundant", benefactors=3, drain=False)
    images = write_images(pool, 1)
    drop_caches()
    with stopped(pool.pids("benefactor")[1]):
        for name, content in images.items():
            began = time.monotonic()
            if copies == "1" and transport != "shm":
                with pytest.raises(OSError) as raised:
                    (pool.mount / name).read_bytes()
                assert raised.value.errno == errno.EIO
            else:
                assert (pool.mount / name).read_bytes() == content
            took = time.monotonic() - began
            print(f"{name}: {took:.1f} s")
            assert took < READ_SECONDS

    def are_back():
        try:
            return all((pool.mount / name).read_bytes() == content for name, content in images.items())
        except OSError:
            return False
    wait_until(are_back, "what it has")


def test_a_benefactor_started_by_hand_joins_and_gets_chunks(pool):
    pool.up("--naming", "off", benefactors=1, memory="64M", drain=False)
    (first,) = pool.pids("benefactor")
    late = pool.benefactor_by_hand("late", "--memory", "64M")
    wait_until(lambda: states(pool) == {first: "alive", late.pid: "alive"}, "the new benefactor")
    assert os.statvfs(pool.mount).f_bavail * os.statvfs(pool.mount).f_frsize > 100 * MIB
    images = write_images(pool, 1, count=5, size=16 * MIB)  # more than either benefactor holds
    assert places(pool, *images) == {first, late.pid}
    assert_equal(pool, images)
    # A benefactor ends on SIGTERM; new images go to the remaining ones.
    for name in images:
        (pool.mount / name).unlink()
    late.terminate()
    assert late.wait(20) == 0
    wait_until(lambda: states(pool).get(late.pid, "gone") != "alive", "its end")
    small = write_images(pool, 2, count=1)
    assert places(pool, *small) == {first}
    assert_equal(pool, small)
