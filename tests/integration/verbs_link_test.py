"""Tests pools on verbs devices: a link that fails during a write, two devices, memory that must not be
locked. For scripts/rdma-vm: takes down rnic0, the interface below rxe0, and makes the device anew afterwards.
"""

import json
import os
import time

import pytest
from conftest import drop_caches
from processes import BIN, run
from writers import WRITER, Writers, go_on

# Runs a command as on another host, without shared memory: the transport between hosts is under test.
ELSEWHERE = ("unshare", "--pid", "--fork")
# deadlines of a transfer and of a connection, then the rest of the image, on an emulated machine
SECONDS_MOST = 60


@pytest.fixture
def link():
    """Requested before the pool, so that its clean-up follows the pool's end. A connection attempt while the
    link is down leaves soft-RoCE's queue pair for requests in the error state, so the device is made anew."""
    yield
    run("ip", "link", "set", "rnic0", "up")
    run("rdma", "link", "delete", "rxe0")
    run("rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "rnic0")


@pytest.fixture
def second_link():
    run("ip", "link", "add", "rnic1", "type", "dummy")
    run("ip", "link", "set", "rnic1", "mtu", "9000", "up")
    run("ip", "address", "add", "10.77.1.1/24", "dev", "rnic1")
    run("rdma", "link", "add", "rxe1", "type", "rxe", "netdev", "rnic1")
    yield
    run("rdma", "link", "delete", "rxe1")
    run("ip", "link", "delete", "rnic1")


def examined(pool):
    """The findings of `stdchk doctor` on another host: {what: finding}."""
    done = run(*ELSEWHERE, BIN / "stdchk", "doctor", "--json", pool.mount, check=False, env=pool.environment)
    return {finding["what"]: finding for finding in json.loads(done.stdout)}


def of_benefactors(found):
    return [finding["figures"] for what, finding in found.items() if what.startswith("benefactor ")]


def rails_used(pool):
    return [rail for figures in of_benefactors(examined(pool)) for rail in figures["rails"] if rail["used"]]


def transports_used(pool):
    return {rail["transport"] for rail in rails_used(pool)}


def last_line(process):
    said, _ = process.communicate(timeout=SECONDS_MOST)
    return said.splitlines()[-1]


def test_the_doctor_tells_of_devices_what_is_chosen_and_how_fast_it_is(link, pool):
    pool.up("--naming", "off", "--listen", "10.77.0.1", benefactors=2, memory="128M", drain=False)
    found = examined(pool)
    port = found["RDMA rxe0 port 1"]
    assert port["state"] == "good"
    assert (port["figures"] | {"firmware": "", "region_bytes_max": 0}) == {
        "device": "rxe0", "port": 1, "kind": "RoCE", "state": "active", "mtu_bytes": 4096, "gid": "::ffff:10.77.0.1",
        "addresses": ["10.77.0.1"], "firmware": "", "region_bytes_max": 0}
    assert found["locked memory"]["found"] == "not limited"
    for kind, provider in (("verbs", "libibverbs.so.1."), ("ofi:verbs", "provider verbs"), ("tcp", "OpenSSL 3.")):
        assert found[f"transport {kind}"]["figures"]["works"]
        assert provider in found[f"transport {kind}"]["figures"]["provider"]
    assert found["transport auto"]["figures"] == {"same_host": "shm", "other_hosts": "verbs"}
    assert "a device has an active port" in found["transport auto"]["found"]
    figures = of_benefactors(found)
    assert len(figures) == 2
    for each in figures:
        assert [rail["transport"] for rail in each["rails"] if rail["used"]] == ["verbs"]
        assert each["write_bytes_per_s"] > 0 and 0 < each["write_4k_us_median"] <= each["write_4k_us_p99"]
    run("ip", "link", "set", "rnic0", "down")
    found = examined(pool)
    assert found["RDMA rxe0 port 1"]["state"] == "note" and found["RDMA rxe0 port 1"]["figures"]["state"] == "down"
    assert "ip link set INTERFACE up" in found["RDMA rxe0 port 1"]["remedy"]
    assert found["transport auto"]["figures"]["other_hosts"] == "tcp"


@pytest.mark.parametrize("transport", ["verbs", "ofi:verbs"])
def test_an_image_comes_back_through_the_mount(pool, transport):
    pool.up("--transport", transport, benefactors=2, memory="128M", drain=False)
    content = os.urandom(40 << 20)
    (pool.mount / "app.N0.T1").write_bytes(content)
    drop_caches()
    assert (pool.mount / "app.N0.T1").read_bytes() == content
    for figures in of_benefactors(examined(pool)):
        assert [rail["transport"] for rail in figures["rails"] if rail["used"]] == [transport]


def test_a_write_goes_on_over_tcp_when_the_link_of_the_device_goes_down(link, pool):
    pool.up("--naming", "off", "--listen", "10.77.0.1", benefactors=2, memory="128M", drain=False)
    assert transports_used(pool) == {"verbs"}
    writers = Writers(pool, "auto", ELSEWHERE)
    with writers.paused("app.N0.T1", 1, 60, 8) as writer:
        go_on(writer)
        time.sleep(0.3)
        run("ip", "link", "set", "rnic0", "down")
        assert last_line(writer) == "closed"
    assert writers.run("check", "app.N0.T1", 1, 60) == ("equal", 0)
    assert transports_used(pool) == {"tcp"}


def test_a_write_that_has_verbs_only_ends_with_an_error_when_the_link_goes_down(link, pool):
    pool.up("--naming", "off", "--transport", "verbs", benefactors=1, memory="128M", drain=False)
    writers = Writers(pool, "verbs")
    with writers.paused("app.N0.T1", 1, 60, 8) as writer:
        go_on(writer)
        time.sleep(0.3)
        run("ip", "link", "set", "rnic0", "down")
        said = last_line(writer)
        assert writer.returncode == 1
        assert "EIO" in said or "ETIMEDOUT" in said or "ENOSPC" in said
    assert list(pool.mount.iterdir()) == []


def test_two_devices_carry_the_bytes_and_one_goes_on_alone(link, second_link, pool):
    pool.up("--naming", "off", "--listen", "10.77.0.1,10.77.1.1", benefactors=1, memory="256M", drain=False)
    rails = rails_used(pool)
    assert {rail["transport"] for rail in rails} == {"verbs"}
    assert sorted(rail["address"].split(":")[1] for rail in rails) == ["10.77.0.1", "10.77.1.1"]
    writers = Writers(pool, "auto", ELSEWHERE)
    with writers.paused("app.N0.T1", 1, 60, 8) as writer:
        go_on(writer)
        time.sleep(0.3)
        run("ip", "link", "set", "rnic1", "down")
        assert last_line(writer) == "closed"
    assert writers.run("check", "app.N0.T1", 1, 60) == ("equal", 0)
    assert [rail["address"].split(":")[:2] for rail in rails_used(pool)] == [["verbs", "10.77.0.1"]]


def test_who_must_not_lock_memory_is_told_and_takes_tcp(pool):
    pool.up("--naming", "off", "--listen", "10.77.0.1", benefactors=1, memory="128M", drain=False)
    unlocked = ("prlimit", "--memlock=65536", "setpriv", "--bounding-set", "-ipc_lock")
    done = run(*ELSEWHERE, *unlocked, WRITER, "auto", "write", "app.N0.T1", 1, 16,
               env=Writers(pool, "auto").environment)
    assert done.stdout.splitlines()[-1] == "closed"
    (told,) = [line for line in done.stderr.splitlines() if "transport verbs is not used" in line]
    assert "ulimit -l" in told
