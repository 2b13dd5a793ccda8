"""A link of a verbs device that goes down in the middle of a write. For scripts/rdma-vm: it takes rnic0 down,
the interface below rxe0, and makes the device anew afterwards."""

import json
import time

import pytest
from conftest import BIN, run
from writers import Writers, go_on

# Another host as far as shared memory goes: the transport between hosts is what is asked for.
ELSEWHERE = ("unshare", "--pid", "--fork")
SECONDS_MOST = 60  # deadline of a transfer, then of a connection, then the rest of the image; emulated


@pytest.fixture
def link():
    """Asked for before the pool, so that it comes after the pool's end: who tries to connect while the link is down
    leaves soft-RoCE's queue pair for connection requests in the error state, so the device is made anew."""
    yield
    run("ip", "link", "set", "rnic0", "up")
    run("rdma", "link", "delete", "rxe0")
    run("rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "rnic0")


def transports_used(pool):
    """From another host, as `stdchk doctor` finds it."""
    done = run(*ELSEWHERE, BIN / "stdchk", "doctor", "--json", pool.mount, check=False, env=pool.environment)
    found = [finding["figures"] for finding in json.loads(done.stdout) if finding["what"].startswith("benefactor ")]
    return {rail["transport"] for figures in found for rail in figures["rails"] if rail["used"]}


def last_line(process):
    said, _ = process.communicate(timeout=SECONDS_MOST)
    return said.splitlines()[-1]


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
    assert transports_used(pool) == {"ofi:tcp"}


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
