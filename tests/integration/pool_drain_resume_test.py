"""Tests that all benefactors drain an image together. After a crash, the drain continues and does not rewrite
verified bytes."""

import os
import re
import signal
import time
import urllib.request

import pytest
from conftest import restart_manager
from processes import wait_until

MIB = 1 << 20


def metrics_of(pool, pid):
    return next(member["metrics"] for member in pool.status()["members"] if member["pid"] == pid)


def drained_bytes(address):
    """The bytes that a benefactor has written and verified."""
    page = urllib.request.urlopen(f"http://{address}/metrics", timeout=10).read().decode()
    return float(re.search(r"^stdchk_benefactor_drained_bytes_total(?:{.*})? (.*)$", page, re.MULTILINE)[1])


def has_all_copies(pool):
    return pool.status()["pool"]["debt_chunks"] == 0


def test_all_benefactors_drain_one_image_at_once(pool):
    pool.up("--drain-rate", "16M", "--drain-yields", "off", "--metrics", "127.0.0.1:0", benefactors=4, memory="64M")
    image, data = pool.mount / "app.N0.T1", os.urandom(96 * MIB)
    image.write_bytes(data)
    addresses = [metrics_of(pool, pid) for pid in pool.pids("benefactor")]
    began, done = time.monotonic(), {}  # when each benefactor, by its address, had drained its first part

    def all_have_a_part():
        for address in set(addresses) - set(done):
            if drained_bytes(address) > 0:
                done[address] = time.monotonic() - began
        return len(done) == len(addresses)

    wait_until(all_have_a_part, "a part of each")
    # Benefactors that drain one after the other would begin 1.5 s apart: a quarter of the image takes so long.
    assert max(done.values()) - min(done.values()) < 1.5
    pool.stdchk("drain", "--wait", "--timeout", 50, pool.mount)
    assert (pool.drain / "app.N0.T1").read_bytes() == data
    parts = list(map(drained_bytes, addresses))
    assert sum(parts) == len(data)
    assert max(parts) < len(data) / 2


def test_pieces_verified_before_a_benefactor_died_are_not_written_again(pool):
    pool.up("--copies", 2, "--drain-rate", "8M", "--drain-yields", "off", "--metrics", "127.0.0.1:0", benefactors=2,
            memory="96M")
    image, data = pool.mount / "app.N0.T1", os.urandom(48 * MIB)
    image.write_bytes(data)
    wait_until(lambda: has_all_copies(pool), "the copies")
    lives, dies = pool.pids("benefactor")
    address = metrics_of(pool, lives)
    # bytes that the benefactor drained before, perhaps not yet reported on a slow machine
    by_the_dead = drained_bytes(metrics_of(pool, dies))
    os.kill(dies, signal.SIGSTOP)  # this benefactor leaves its request unanswered
    wait_until(lambda: drained_bytes(address) > 0, "the part of the other one", seconds=40)
    assert drained_bytes(address) < len(data)
    os.kill(dies, signal.SIGKILL)
    pool.stdchk("drain", "--wait", "--timeout", 50, pool.mount)
    assert (pool.drain / "app.N0.T1").read_bytes() == data
    assert drained_bytes(address) in (len(data), len(data) - by_the_dead)


@pytest.mark.parametrize("role", ["manager", "benefactor"])
def test_images_drained_before_a_crash_are_left_as_they_are(pool, role):
    pool.up("--copies", 2, "--drain-yields", "off", "--drain-rate", "700K", benefactors=2, memory="64M")
    files = {f"app.N{number}.T1": os.urandom(MIB) for number in range(10)}
    for name, data in files.items():
        (pool.mount / name).write_bytes(data)
    wait_until(lambda: has_all_copies(pool), "the copies")

    def drained():
        return [entry["path"] for entry in pool.list() if entry["drain"] == "drained"]

    wait_until(lambda: drained(), "some images in the drain directory")
    before = {name: os.stat(pool.drain / name) for name in drained()}
    pool.kill(role)
    assert len(before) < len(files)
    if role == "manager":
        restart_manager(pool)
    pool.stdchk("drain", "--wait", "--timeout", 50, pool.mount)
    assert all((pool.drain / name).read_bytes() == data for name, data in files.items())
    for name, was in before.items():
        now = os.stat(pool.drain / name)
        assert (now.st_ino, now.st_ctime_ns) == (was.st_ino, was.st_ctime_ns), name
    wait_until(lambda: not list((pool.drain / ".stdchk-drain").iterdir()), "the end of the temporary files", seconds=45)
