"""Tests the order of the drain for markers and pointers that programs rename, link or exchange after their temporary
names were drained. Also tests files that were stored by fsync and never closed."""

import os
import subprocess
import sys
import time

import pytest
from pool_directory_sets_test import RULES, load, lose, set_rules, sets_of
from processes import wait_until

MIB = 1 << 20
EXCHANGE = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.renameat2(-100, sys.argv[1].encode(), -100, sys.argv[2].encode(), 2) != 0:
    sys.exit(os.strerror(ctypes.get_errno()))
"""


def name_by(way, source, target):
    """Gives the file `source` the name `target`."""
    if way == "link":
        target.unlink(missing_ok=True)
        os.link(source, target)
        source.unlink()
    elif way == "exchange" and target.exists():
        subprocess.run([sys.executable, "-c", EXCHANGE, source, target], check=True)
        source.unlink()
    else:
        os.replace(source, target)


def drained(pool, *paths):
    wait_until(lambda: all((pool.drain / path).exists() for path in paths), f"{paths} in the drain directory", 40)


def first_checkpoint(pool, run):
    """A checkpoint that is drained with its pointer."""
    (run / "step-0").mkdir()
    (run / "step-0" / ".metadata").write_text("{}")
    (run / "latest").write_text("step-0")
    drained(pool, "run/latest")


def write_shards(directory, count=4, size=2 * MIB):
    for rank in range(count):
        (directory / f"{rank}.distcp").write_bytes(os.urandom(size))


def wait_for_a_part(there, directory, count=4):
    """Waits until the drain directory has some shards, and not all."""
    wait_until(lambda: list((there / directory).glob("*.distcp")), "the first shard", 40)
    assert len(list((there / directory).glob("*.distcp"))) < count, "the drain is too fast for this test"


def check_lost_pool(there, steps, shards=4):
    """Requires that each marker and the pointer in the drain directory vouch for whole sets."""
    def is_whole(directory):
        return len(list(directory.glob("*.distcp"))) == shards

    for marker in there.glob("*/.metadata"):
        assert marker.parent.name in ("step-0", *steps) or not marker.parent.name.startswith("step-")
        if marker.parent.name != "step-0" and marker.parent.name.startswith("step-"):
            assert is_whole(marker.parent), marker
    link = there / "latest"
    if not os.path.lexists(link):
        return  # the program has removed it
    named = os.readlink(link) if link.is_symlink() else link.read_text()
    assert named == "step-0" or (is_whole(there / named) and (there / named / ".metadata").exists()), named


@pytest.mark.parametrize("way", ["rename", "link", "exchange"])
@pytest.mark.parametrize("loses", [True, False], ids=["lost", "drained"])
def test_marker_and_pointer_that_were_drained_under_another_name_wait_for_their_set(pool, way, loses):
    pool.up("--drain-rate", "400K", "--drain-yields", "off", benefactors=2, memory="128M")
    run, there = pool.mount / "run", pool.drain / "run"
    set_rules(pool, run, *RULES)
    first_checkpoint(pool, run)
    (run / "latest.new").write_text("step-1")
    (run / "step-1").mkdir()
    (run / "step-1" / ".metadata.tmp").write_text("{}")
    drained(pool, "run/latest.new", "run/step-1/.metadata.tmp")
    write_shards(run / "step-1")
    name_by(way, run / "step-1" / ".metadata.tmp", run / "step-1" / ".metadata")
    name_by(way, run / "latest.new", run / "latest")
    assert load(run) == "step-1"
    wait_for_a_part(there, "step-1")
    if loses:
        time.sleep(1)  # enough for a change of names
        lose(pool)
        return check_lost_pool(there, ["step-1"])
    assert pool.stdchk("safe", run / "latest", check=False).returncode != 0
    pool.stdchk("drain", "--wait", "--timeout", 50, pool.mount)
    assert load(there) == "step-1"
    assert not (there / "latest.new").exists()
    assert not (there / "step-1" / ".metadata.tmp").exists()
    pool.stdchk("safe", run / "latest")
    pool.stdchk("safe", run / "step-1" / ".metadata")


def test_a_directory_that_gets_its_name_when_it_is_whole_has_no_marker_before_its_files(pool):
    pool.up("--drain-rate", "400K", "--drain-yields", "off", benefactors=2, memory="128M")
    run, there = pool.mount / "run", pool.drain / "run"
    set_rules(pool, run, *RULES)
    first_checkpoint(pool, run)
    (run / "new-1").mkdir()
    (run / "new-1" / ".metadata").write_text("{}")
    drained(pool, "run/new-1/.metadata")
    write_shards(run / "new-1")
    os.rename(run / "new-1", run / "step-1")
    (run / "latest").write_text("step-1")
    wait_for_a_part(there, "step-1")
    time.sleep(1)
    lose(pool)
    check_lost_pool(there, ["step-1"])


@pytest.mark.parametrize("loses", [True, False], ids=["lost", "drained"])
def test_a_symbolic_link_that_is_the_pointer_waits_for_its_set(pool, loses):
    pool.up("--drain-rate", "400K", "--drain-yields", "off", benefactors=2, memory="128M")
    run, there = pool.mount / "run", pool.drain / "run"
    set_rules(pool, run, *RULES)
    (run / "step-0").mkdir()
    (run / "step-0" / ".metadata").write_text("{}")
    os.symlink("step-0", run / "latest")
    drained(pool, "run/latest")
    (run / "step-1").mkdir()
    write_shards(run / "step-1")
    (run / "step-1" / ".metadata").write_text("{}")
    os.symlink("step-1", run / "latest.new")
    os.rename(run / "latest.new", run / "latest")
    assert os.readlink(run / "latest") == "step-1"
    wait_for_a_part(there, "step-1")
    if loses:
        time.sleep(1)
        lose(pool)
        return check_lost_pool(there, ["step-1"])
    pool.stdchk("drain", "--wait", "--timeout", 50, pool.mount)
    assert os.readlink(there / "latest") == "step-1"


SYNCING_WRITER = """
import os, sys, time
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
os.write(file, b"x" * 4096)
os.fsync(file)
if sys.argv[2] == "writes on":
    os.write(file, b"x" * 4096)
print("written", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("then", ["writes on", "waits"])
def test_a_writer_that_is_killed_after_an_fsync_makes_no_complete_set(pool, then):
    pool.up(benefactors=1, memory="64M")
    run, there = pool.mount / "run", pool.drain / "run"
    set_rules(pool, run, "set=directory", "set-names=step-*", "images=2")
    (run / "step-1").mkdir()
    (run / "step-1" / "0").write_text("x")
    writer = subprocess.Popen([sys.executable, "-c", SYNCING_WRITER, run / "step-1" / "1", then],
                              stdout=subprocess.PIPE)
    assert writer.stdout.readline() == b"written\n"
    assert not sets_of(pool, run)["step-1"]["complete"]
    writer.kill()
    writer.wait()
    time.sleep(2)
    assert not sets_of(pool, run)["step-1"]["complete"]
    assert not os.path.lexists(run / "latest")
    pool.stdchk("drain", "--wait", "--timeout", 50, pool.mount)
    assert not (there / "step-1" / "1").exists()
    (run / "step-1" / "1").write_text("all")
    wait_until(lambda: sets_of(pool, run)["step-1"]["complete"], "the set with the file written again")


def test_a_file_that_is_closed_after_an_fsync_counts(pool):
    pool.up(benefactors=1, memory="64M")
    run = pool.mount / "run"
    set_rules(pool, run, "set=directory", "set-names=step-*", "images=1")
    (run / "step-1").mkdir()
    with open(run / "step-1" / "0", "w") as file:
        file.write("x")
        file.flush()
        os.fsync(file.fileno())
    wait_until(lambda: sets_of(pool, run)["step-1"]["complete"], "the set")
    pool.stdchk("drain", "--wait", "--timeout", 50, pool.mount)
    assert (pool.drain / "run" / "step-1" / "0").read_text() == "x"
