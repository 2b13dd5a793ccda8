"""Tests a host whose link goes down without notice, as when its cable is pulled: a benefactor's during a
write, and a client's."""

import time

import pytest
from processes import PATIENCE, is_running, wait_until
from writers import Writers, go_on

REMEDY = "The manager does not answer; see `stdchk status`"
# time until a silent benefactor is gone (docs/guide/failures.md), and 5 s for this machine
GONE_SECONDS = 15 * PATIENCE
END_SECONDS = 31 * PATIENCE  # a call's limit of 30 s (docs/guide/failures.md), and 1 s for this machine


@pytest.fixture
def hosts(neighbour, pool):
    """A pool of three benefactors here and one on the neighbour, with an image of 16 MiB that has copies
    there."""
    shell, file = pool.folder / "shell", pool.folder / "hosts"
    shell.write_text(f'#!/bin/sh\nhost=$1\nshift\n[ $host = near ] || exec {" ".join(neighbour.prefix)} "$@"\nexec "$@"\n')
    shell.chmod(0o755)
    file.write_text(f"near address={neighbour.near} benefactors=3\nfar address={neighbour.far} benefactors=1\n")
    pool.up("--hosts", file, "--rsh", shell, "--listen", neighbour.near, "--copies", "2", memory="128M", drain=False)
    assert Writers(pool, "auto").run("write", "app.N0.T0", 0, 16) == ("closed", 0)
    wait_until(lambda: figures(pool)["debt_chunks"] == 0, "the second copies")
    return neighbour


def figures(pool):
    return pool.status()["pool"]


def at(pool, address):
    """Returns the benefactor at an address."""
    (one,) = [each for each in figures(pool)["benefactors"] if any(f":{address}:" in other for other in each["addresses"])]
    return one


def last_line(process, seconds):
    """Returns the last line that a process prints. The process must end within `seconds`."""
    said, _ = process.communicate(timeout=seconds)
    return said.splitlines()[-1]


def all_is_well(pool, writers, images):
    """Checks that all wanted copies exist, no rule is broken, and a client with empty caches can read the
    images. `images`: MiB by seed."""
    wait_until(lambda: figures(pool)["debt_chunks"] == 0, "the second copies", 40)
    assert figures(pool)["lost_chunks"] == 0
    pool.stdchk("check", pool.mount)
    for seed, mib in images.items():
        assert writers.run("check", f"app.N0.T{seed}", seed, mib) == ("equal", 0)


def test_a_write_goes_on_when_a_benefactors_link_goes_down(hosts, pool):
    writers, victim = Writers(pool, "auto"), at(pool, hosts.far)
    with writers.paused("app.N0.T1", 1, 48, 0) as writer:
        hosts.set_link("down")
        go_on(writer)
        assert last_line(writer, GONE_SECONDS) == "closed"
    wait_until(lambda: at(pool, hosts.far)["state"] == "gone", "a benefactor that is taken as gone")
    all_is_well(pool, writers, {0: 16, 1: 48})
    assert is_running(victim["pid"])
    hosts.set_link("up")
    wait_until(lambda: at(pool, hosts.far)["state"] == "alive", "the benefactor that is back", 30)
    all_is_well(pool, writers, {0: 16, 1: 48})


def test_what_a_benefactor_has_of_an_image_is_waited_for_while_its_link_is_down(hosts, pool):
    writers = Writers(pool, "auto")
    with writers.paused("app.N0.T1", 1, 32, 16) as writer:  # a part of the image is stored
        hosts.set_link("down")
        go_on(writer)
        time.sleep(7)  # the benefactor is silent, but not yet gone
        assert writer.poll() is None
        hosts.set_link("up")
        assert last_line(writer, GONE_SECONDS) == "closed"
    all_is_well(pool, writers, {0: 16, 1: 32})


def test_a_writer_is_told_when_what_a_benefactor_has_of_its_image_does_not_come_back(hosts, pool):
    writers = Writers(pool, "auto")
    with writers.paused("app.N0.T1", 1, 32, 16) as writer:
        hosts.set_link("down")
        go_on(writer)
        said = last_line(writer, GONE_SECONDS)
    assert said.startswith("failed: close: EIO: ")
    assert "were only on benefactors that are gone" in said
    assert not (pool.mount / "app.N0.T1").exists()
    assert writers.run("write", "app.N0.T1", 1, 32) == ("closed", 0)
    all_is_well(pool, writers, {0: 16, 1: 32})


def test_a_program_whose_link_goes_down_is_told_in_time_and_what_to_look_at(hosts, pool):
    there = Writers(pool, "tcp", hosts.prefix)
    with there.paused("app.N0.T1", 1, 64, 16) as writer:
        hosts.set_link("down")
        go_on(writer)
        said = last_line(writer, END_SECONDS)
    assert said.startswith("failed: close: EIO: ")
    assert REMEDY in said
    asked = pool.stdchk("ls", pool.mount, check=False, prefix=hosts.prefix)
    assert asked.returncode == 2
    assert REMEDY in asked.stderr
    assert not (pool.mount / "app.N0.T1").exists()
    hosts.set_link("up")
    assert there.run("write", "app.N0.T1", 1, 64) == ("closed", 0)
    all_is_well(pool, there, {0: 16, 1: 64})
