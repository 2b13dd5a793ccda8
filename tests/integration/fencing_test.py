"""Tests rule M3 with real client processes. A writer is stopped within its window, or loses its network; it
loses its lease, and wakes up after its space was granted to another. STDCHK_TEST_TRANSPORTS names the
transports (default: shm tcp)."""

import os
import signal
import time

import pytest
from processes import stopped, wait_until
from writers import Writers, go_on

MIB = 1 << 20
FENCE_SECONDS = 30  # lease, the manager's check of it, and the fence; an emulated machine needs longer


def wake_without_manager(pool, process):
    """Gives the writer one second to write into space that it believes is its own, then lets the manager
    answer."""
    with stopped(pool.pids("manager")[0]):
        os.kill(process.pid, signal.SIGCONT)
        time.sleep(1)
    said, _ = process.communicate(timeout=40)
    return said.splitlines()[-1]


def benefactor(pool):
    (one,) = pool.status()["pool"]["benefactors"]
    return one


def names(pool):
    return {entry.name for entry in pool.mount.iterdir()}


def cut_off_at_once(pool, transport):
    """Stops a writer with writes in flight. Its space is granted again meanwhile."""
    pool.up("--naming", "off", "--transport", transport, benefactors=1, memory="64M", drain=False)
    writers = Writers(pool, transport)
    empty_bytes = benefactor(pool)["free_bytes"]
    # The file is larger than the pool, so the writer can never close it.
    with writers.paused("app.N0.T1", 1, 70, 20) as first:
        assert benefactor(pool)["free_bytes"] < empty_bytes - 20 * MIB
        # The stopped benefactor receives nothing, so bytes pile up where the transport needs the receiver.
        with stopped(pool.pids("benefactor")[0]):
            go_on(first)
            time.sleep(0.2)
            os.kill(first.pid, signal.SIGSTOP)
        wait_until(lambda: benefactor(pool)["free_bytes"] == empty_bytes, "the fence", FENCE_SECONDS)
        # The second file takes all but three chunks of the arena, so it reuses the first writer's space.
        assert writers.run("write", "app.N0.T2", 2, 60) == ("closed", 0)
        said = wake_without_manager(pool, first)
        assert first.returncode == 1
        assert "EIO" in said and "lease ran out" in said
    assert writers.run("check", "app.N0.T2", 2, 60) == ("equal", 0)
    assert names(pool) == {"app.N0.T2"}


def kept_until_it_cannot_write(pool, transport):
    """The space of a stopped writer stays reserved. It is granted again after the writer continues and releases
    it."""
    pool.up("--naming", "off", "--transport", transport, benefactors=1, memory="128M", drain=False)
    writers = Writers(pool, transport)
    empty_bytes = benefactor(pool)["free_bytes"]
    with writers.paused("app.N0.T1", 1, 40, 20) as first:
        os.kill(first.pid, signal.SIGSTOP)
        go_on(first)  # the writer continues as soon as it wakes up
        wait_until(lambda: pool.status()["pool"]["sessions"] == 0, "the end of the lease", FENCE_SECONDS)
        assert benefactor(pool)["free_bytes"] < empty_bytes - 20 * MIB
        assert writers.run("write", "app.N0.T2", 2, 40) == ("closed", 0)
        left_bytes = benefactor(pool)["free_bytes"]
        said, status = writers.run("write", "app.N0.T3", 3, 70)
        assert status == 1 and "ENOSPC" in said
        said = wake_without_manager(pool, first)
        assert first.returncode == 1
        assert "EIO" in said and "lease ran out" in said
    wait_until(lambda: benefactor(pool)["free_bytes"] > left_bytes, "the fence", FENCE_SECONDS)
    assert writers.run("write", "app.N0.T3", 3, 70) == ("closed", 0)
    for name, seed, count in (("app.N0.T2", 2, 40), ("app.N0.T3", 3, 70)):
        assert writers.run("check", name, seed, count) == ("equal", 0)
    assert names(pool) == {"app.N0.T2", "app.N0.T3"}


@pytest.mark.parametrize("transport", os.environ.get("STDCHK_TEST_TRANSPORTS", "shm tcp").split())
def test_a_writer_that_wakes_up_changes_nothing_in_space_of_another(pool, transport):
    # docs/internals/transports.md describes the fence of each transport.
    way = kept_until_it_cannot_write if transport == "shm" else cut_off_at_once
    way(pool, transport)


def test_bytes_that_a_lost_network_held_back_change_nothing_in_space_of_another(neighbour, pool):
    # TCP retries lost bytes every second, so they arrive soon after the network is back. Older kernels wait
    # longer.
    neighbour.run("sysctl", "-w", "net.ipv4.tcp_rto_max_ms=1000", check=False)
    pool.up("--naming", "off", "--transport", "tcp", "--listen", neighbour.near, benefactors=1, memory="64M",
            drain=False)
    here, there = Writers(pool, "tcp"), Writers(pool, "tcp", neighbour.prefix)
    empty_bytes = benefactor(pool)["free_bytes"]
    with there.paused("app.N0.T1", 1, 70, 20) as first:
        neighbour.set_link("down")
        go_on(first)  # fills its sockets
        wait_until(lambda: benefactor(pool)["free_bytes"] == empty_bytes, "the fence", FENCE_SECONDS)
        assert here.run("write", "app.N0.T2", 2, 60) == ("closed", 0)
        neighbour.set_link("up")
        said, _ = first.communicate(timeout=60)
        assert first.returncode == 1
        assert "EIO" in said.splitlines()[-1]
    assert here.run("check", "app.N0.T2", 2, 60) == ("equal", 0)
    assert names(pool) == {"app.N0.T2"}
