"""Tests the loss of a manager: no metadata is lost, with any number of files, and running reads go on."""

import json
import os
import pathlib
import threading
import time

from conftest import drop_caches, restart_manager, write_random
from processes import wait_until

SMALL_FILES = 5000
SMALL_BYTES = 2000
READERS = 8
READ_BYTES = 300_000
TAKEN_OVER_SECONDS = 60  # 15 s are stated (docs/guide/failures.md); the rest is for a busy machine


def figures(pool):
    """The figures of the pool; None while no manager answers."""
    return pool.status().get("pool")


def has_epoch_of_standby(pool):
    told = figures(pool)
    return told is not None and told["epoch"] >= 256


def metadata_finding(pool):
    """The line of `stdchk doctor` about the metadata."""
    findings = json.loads(pool.stdchk("doctor", "--json", pool.mount, check=False).stdout)
    (metadata,) = [each for each in findings if each["what"] == "metadata"]
    return metadata


def test_a_standby_takes_over_thousands_of_small_files_with_the_default_memory(pool):
    started = pool.up("--standby", benefactors=3, drain=False)
    assert "standby" not in started.stderr
    folder = pool.mount / "small"
    expected = write_random(folder, [f"f{i}" for i in range(SMALL_FILES)], SMALL_BYTES)
    # All three benefactors keep the metadata, which exceeds the limit of the initial log memory (1/128).
    wait_until(lambda: figures(pool)["log_copies"] == 3, "three copies of the metadata")
    before = figures(pool)
    assert before["log_bytes"] > 1 << 20
    assert before["log_advice"] == [] and before["log_full"] == 0
    assert before["standby_keepers"] == before["standby_reached"] == 3
    metadata = metadata_finding(pool)
    assert metadata["state"] == "good" and metadata["figures"]["log_copies"] == 3
    pool.kill("manager")
    wait_until(lambda: has_epoch_of_standby(pool), "the standby", TAKEN_OVER_SECONDS)
    drop_caches()
    assert sorted(os.listdir(folder)) == sorted(expected)
    for name, content in expected.items():
        assert (folder / name).read_bytes() == content, name
    pool.stdchk("check", pool.mount)
    pool.down()


def test_what_keeps_a_standby_from_taking_over_is_said_before_it_should(pool):
    started = pool.up("--standby", benefactors=2, memory="64M", drain=False)
    assert "2 of the 3 benefactors that a standby needs keep the metadata: start another" in started.stderr
    text = pool.stdchk("status", pool.mount).stdout
    assert "warning     2 of the 3 benefactors that a standby needs" in text
    assert 'stdchk_metadata_warnings{pool=' in pool.stdchk("status", "--prometheus", pool.mount).stdout
    assert figures(pool)["standby_keepers"] == 2
    warned = metadata_finding(pool)
    assert warned["state"] != "good" and "2 of the 3 benefactors that a standby needs" in warned["remedy"]
    pool.benefactor_by_hand("third", "--memory", "64M")
    wait_until(lambda: figures(pool)["log_copies"] == 3, "three copies of the metadata")
    wait_until(lambda: figures(pool)["log_advice"] == [], "no warning any more")
    assert metadata_finding(pool)["state"] == "good"
    pool.down()


def test_a_log_that_was_given_too_little_memory_is_named(pool):
    pool.up("--standby", "--log-memory", "256K", benefactors=3, memory="64M", drain=False)
    wait_until(lambda: figures(pool)["log_copies"] == 3, "three copies of the metadata")
    folder = pool.mount / "small"
    folder.mkdir()
    warned = None
    for number in range(SMALL_FILES):
        (folder / f"f{number}").write_bytes(b"content of a small file")
        if number % 5:
            continue
        now = figures(pool)
        if now["log_copies"] == 3 and any("before it is full" in sentence for sentence in now["log_advice"]):
            warned = now
        if now["log_full"] > 0:
            break
    assert warned is not None and warned["log_bytes_needed"] <= warned["log_bytes_max"]
    assert any("--log-memory" in sentence for sentence in figures(pool)["log_advice"])
    assert "warning     The metadata needs" in pool.stdchk("status", pool.mount).stdout
    pool.down()


class Reader(threading.Thread):
    """Reads one file after the other in a thread, each without the kernel's cached pages."""

    def __init__(self, folder, expected, ends):
        super().__init__(daemon=True)
        self.folder, self.expected, self.ends = folder, expected, ends
        self.failures = []
        self.read = 0
        self.start()

    def run(self):
        names = sorted(self.expected)
        while not self.ends.is_set():
            name = names[self.read % len(names)]
            try:
                fd = os.open(self.folder / name, os.O_RDONLY)
                try:
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                    content = os.pread(fd, READ_BYTES, 0)
                    content += os.pread(fd, READ_BYTES, len(content))
                finally:
                    os.close(fd)
            except OSError as error:
                self.failures.append((name, error))
                continue
            if content != self.expected[name]:
                self.failures.append((name, "other bytes"))
            self.read += 1


def test_readers_go_on_while_the_manager_is_killed_again_and_again(pool):
    pool.up("--policy", "copies=2", benefactors=3, memory="128M", drain=False)
    expected = write_random(pool.mount / "app", [f"app.N{i}.T0" for i in range(16)], READ_BYTES)
    ends = threading.Event()
    readers = [Reader(pool.mount / "app", expected, ends) for _ in range(READERS)]
    lost = []
    for turn in range(4):
        time.sleep(3)
        if turn == 0:
            pool.kill("manager")
        else:
            pool.hand_processes[-1].kill()
            pool.hand_processes[-1].wait()
            pathlib.Path(pool.record["directory"], "manager.again").unlink()
        time.sleep(turn % 2)
        restart_manager(pool)
        before = [reader.read for reader in readers]
        wait_until(lambda: all(reader.read > count + 2 for reader, count in zip(readers, before)),
                   "readers that go on", 60)
        lost.append(figures(pool)["lost_chunks"])
    ends.set()
    for reader in readers:
        reader.join(60)
        assert not reader.is_alive()
    assert [failure for reader in readers for failure in reader.failures] == []
    assert lost == [0, 0, 0, 0]
    print(sum(reader.read for reader in readers), "files read")
    pool.down()
