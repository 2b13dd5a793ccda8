"""Tests the report card: the figures of a pool while it runs and at its end."""

import json
import os
import time

from processes import wait_until

MIB = 1 << 20


def write(path, content):
    path.write_bytes(content)


def report(pool):
    return json.loads(pool.stdchk("report", "--json", pool.mount).stdout)


def test_two_mounts_write_sets_and_every_byte_is_on_the_card(pool):
    card = pool.folder / "card"
    pool.up("--naming", "on", "--report", card)
    second = pool.mount_by_hand("second")
    assert report(pool)["images"] == 0
    equal = os.urandom(3 * MIB)
    write(pool.mount / "app.N0.T1", equal)
    write(second / "app.N1.T1", equal)
    pool.stdchk("drain", "--wait", pool.mount)
    write(pool.mount / "app.N0.T2", os.urandom(4 * MIB))
    write(second / "app.N1.T2", os.urandom(2 * MIB))
    pool.stdchk("drain", "--wait", pool.mount)
    # Both mounts report within a second.
    wait_until(lambda: report(pool)["closed_bytes"] == 12 * MIB, "what the mounts tell", 10)
    figures = report(pool)
    assert figures["images"] == 4
    assert figures["written_bytes"] == 12 * MIB
    assert figures["stored_bytes"] == 9 * MIB
    assert figures["saved_bytes"] == 3 * MIB
    assert figures["committed_bytes"] == 12 * MIB
    assert figures["named_bytes"] == 12 * MIB
    assert figures["equal_bytes"] == 3 * MIB
    assert figures["drained_images"] == 4
    assert figures["drained_bytes"] == 12 * MIB
    assert figures["drain_pending_files"] == 0
    assert figures["sets_followed"] == 1
    assert figures["sets_overtaken"] == 0
    assert figures["space_waits"] == 0
    assert 0 < figures["at_risk_seconds"] < 60
    assert 0 < figures["fullest"] < 1
    ot = figures["closed_bytes"] / figures["open_to_close_seconds"]
    assert abs(figures["ot_bytes_per_second"] / ot - 1) < 0.001
    at = figures["committed_bytes"] / figures["open_to_commit_seconds"]
    assert abs(figures["at_bytes_per_second"] / at - 1) < 0.001
    assert figures["open_to_commit_seconds"] <= figures["open_to_close_seconds"]
    assert 0 < figures["longest_call_seconds"] <= figures["open_to_close_seconds"]
    assert figures["advice"] == []
    text = pool.stdchk("report", pool.mount).stdout
    assert "images      4\n" in text
    # A shell's redirection commits an empty file first, which does not count as an image.
    pool.stdchk("status", pool.mount)
    assert os.system(f"head -c {MIB} /dev/urandom >{pool.mount}/app.N0.T3") == 0
    assert report(pool)["images"] == 5
    said = pool.down("--drain").stdout
    assert f"Report card of the pool at {pool.mount}, since " in said
    assert "  images      5\n" in said
    assert "  written     13.0 MiB\n" in said
    assert "  saved       3.0 MiB that the pool had already, 23 %\n" in said
    assert "  drained     5 images, 13.0 MiB\n" in said
    assert "  not drained 0 files, 0 B\n" in said
    assert said.endswith(f"The pool at {pool.mount} is down.\n")
    assert card.read_text() in said and "  images      5\n" in card.read_text()


def test_the_last_second_of_a_mount_is_on_the_card_of_down_and_the_advice_follows(pool):
    pool.up("--drain-rate", "64K", "--drain-yields", "off")
    write(pool.mount / "app.N0.T1", os.urandom(2 * MIB))
    time.sleep(5.5)  # sets that follow each other faster are not counted
    write(pool.mount / "app.N0.T2", os.urandom(2 * MIB))
    said = pool.down().stdout
    assert "  overtaken   1 of 1 sets" in said
    assert "  OT          -" not in said and "  AT          -" not in said
    assert "did not get to the drain directory: `stdchk down --drain` waits for them.\n" in said
    assert "The drain took longer than the time between two sets, 1 of 1 times: raise --drain-rate" in said


def test_a_full_pool_asks_for_memory(pool):
    pool.up("--drain-rate", "2M", "--drain-yields", "off", "--chunk-size", "64K", benefactors=1, memory="16M")
    for step in range(11):
        write(pool.mount / f"app.N0.T{step}", os.urandom(2 * MIB))
    figures = report(pool)
    assert figures["space_waits"] > 0
    assert figures["space_wait_seconds"] >= 1
    assert figures["fullest"] > 0.75
    assert any("lend more memory (--memory), or add a benefactor, or drain faster" in sentence
               for sentence in figures["advice"])


def test_a_pool_that_was_not_used_goes_without_a_card(pool):
    pool.up()
    assert pool.stdchk("report", pool.mount).stdout.startswith("Report card")
    assert "Report card" not in pool.down().stdout


def test_without_a_manager_there_is_no_card_and_down_does_the_rest(pool):
    pool.up()
    write(pool.mount / "file", b"bytes")
    pool.kill("manager")
    done = pool.stdchk("report", pool.mount, check=False)
    assert done.returncode == 2 and "manager" in done.stderr
    said = pool.down().stdout
    assert "is down" in said and "Report card" not in said


def read_new(path):
    """Reads from the mount, without the kernel's page cache."""
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return len(file.read())


def test_what_readers_got_is_told_by_where_it_came_from(pool):
    def reads():
        return pool.status()["pool"]["read_bytes"]

    pool.up(benefactors=2, memory="64M")
    write(pool.mount / "app.N0.T1", os.urandom(4 * MIB))
    assert reads() == {"pool": 0, "cache": 0, "drain": 0}
    assert read_new(pool.mount / "app.N0.T1") == 4 * MIB
    wait_until(lambda: reads() == {"pool": 4 * MIB, "cache": 0, "drain": 0}, "what the mount tells")
    assert read_new(pool.mount / "app.N0.T1") == 4 * MIB
    wait_until(lambda: reads() == {"pool": 4 * MIB, "cache": 4 * MIB, "drain": 0}, "what the mount tells")
    with open(pool.mount / "app.N0.T1", "rb"), open(pool.mount / "app.N0.T1", "rb"):
        wait_until(lambda: pool.status()["pool"]["readers"] == 2, "two readers")
        assert " 2 readers, " in pool.stdchk("top", "--count", "1", "--interval", "1", pool.mount).stdout
    wait_until(lambda: pool.status()["pool"]["readers"] == 0, "no reader")
    lines = pool.stdchk("top", "--count", "1", "--interval", "1", pool.mount).stdout.splitlines()
    assert any(line.startswith("read ") and line.endswith("; 8.0 MiB in all") for line in lines)
    said = pool.down("--drain").stdout
    assert "  read        4.0 MiB from the pool, 4.0 MiB from caches, 0 B from the drain directory\n" in said
    # In the next pool, only the drain directory holds the image.
    pool.up(benefactors=1, memory="64M")
    assert read_new(pool.mount / "app.N0.T1") == 4 * MIB
    wait_until(lambda: reads() == {"pool": 0, "cache": 0, "drain": 4 * MIB}, "what the mount tells")
    assert "read        0 B from the pool, 0 B from caches, 4.0 MiB from the drain directory" in pool.stdchk(
        "status", pool.mount).stdout
