"""Tests the fault trials: the writer remembers correctly, the reader sees every difference, and a fault that
did not happen is noticed."""

import os
import pathlib
import random
import signal
import subprocess
import sys

import pytest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))
import faults  # noqa: E402
from report import Failure  # noqa: E402
from verifying import Creator, Writer, lost  # noqa: E402


@pytest.fixture
def folder(tmp_path):
    one = tmp_path / "images"
    one.mkdir()
    return one


@pytest.fixture
def writer(folder):
    one = Writer(folder, 1)
    yield one
    one.kill()


def test_the_writer_keeps_what_it_was_told_to_hold_and_the_newest(folder, writer):
    writer.goes_on(3)
    writer.hold()
    writer.goes_on(20)
    images = writer.end()
    names = {path.name for path in folder.iterdir()}
    # the last image may be unfinished
    assert set(images) <= names and len(names - set(images)) <= 1
    assert f"app.N0.T{writer.closed - 1}" in images
    assert len(images) >= Writer.KEEP + 3 and len(images) < writer.closed
    assert writer.failures == [] and writer.longest["seconds"] > 0
    assert lost(folder, images) == {}


def test_the_reader_sees_one_changed_byte_a_cut_file_and_an_absent_one(folder, writer):
    writer.goes_on(4)
    images = writer.end()
    changed, cut, absent, *_ = sorted(images)
    with open(folder / changed, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        byte = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([byte[0] ^ 1]))
    os.truncate(folder / cut, images[cut]["bytes"] - 1)
    (folder / absent).unlink()
    answers = lost(folder, images)
    assert set(answers) == {changed, cut, absent}
    assert "other bytes" in answers[changed] and "No such file" in answers[absent]


def test_an_image_that_failed_is_begun_again_under_its_name(folder, writer):
    writer.goes_on()
    away = folder.with_name("away")
    folder.rename(away)
    with writer.lock:
        assert writer.lock.wait_for(lambda: writer.failures, 20)
    away.rename(folder)
    writer.goes_on()
    images = writer.end()
    assert {failure["name"] for failure in writer.failures} <= {f"app.N0.T{i}" for i in range(writer.closed)}
    assert writer.failures[0]["call"] == "open" and writer.failures[0]["errno"] == "ENOENT"
    assert lost(folder, images) == {}


def test_a_writer_that_does_not_go_on_is_a_failure(folder, writer):
    writer.goes_on()
    os.kill(writer.process.pid, signal.SIGSTOP)
    with pytest.raises(Failure, match="has not closed"):
        writer.goes_on(1000, seconds=0.2)
    with pytest.raises(Failure, match="hangs"):
        writer.end(seconds=0.2)


def test_the_first_file_is_waited_for(tmp_path):
    creator = Creator(tmp_path / "later")
    creator.begin()
    (tmp_path / "later").mkdir()
    assert creator.answered(20) > 0


def test_a_process_that_was_woken_too_early_was_not_stopped():
    sleeper = subprocess.Popen(["sleep", "100"])
    try:
        with faults.stopped(sleeper.pid):
            assert faults.process_state(sleeper.pid) == "T"
        with pytest.raises(Failure, match="not stopped"), faults.stopped(sleeper.pid):
            os.kill(sleeper.pid, signal.SIGCONT)
            faults.wait_until(lambda: faults.process_state(sleeper.pid) != "T", "it runs")
        faults.kill(sleeper.pid)
        assert faults.process_state(sleeper.pid) == "X"
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_trial_without_an_image_of_before_its_fault_is_a_failure(folder):
    class Pool:
        pass

    def nothing(_, trial):
        trial.struck = 0.0  # before any image
    trial = faults.Trial(Pool(), folder / "trial", 1)
    with pytest.raises(Failure, match="no image from before the fault"):
        trial.run(faults.Fault("nothing", nothing, 1))


MEMORY = """
import mmap, sys
memory = mmap.mmap(-1, 8 << 20)
print("ready", flush=True)
sys.stdin.readline()
parts = [memory.read(1 << 18) for _ in range(32)]
print(*(sum(byte.bit_count() for byte in part) for part in parts))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may write into another process")
def test_bits_are_flipped_one_in_each_part_of_the_largest_memory():
    process = subprocess.Popen([sys.executable, "-c", MEMORY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        faults.flip_bits(process.pid, random.Random(1))
        assert process.communicate("\n", timeout=20)[0].split() == ["1"] * 32
    finally:
        process.kill()
        process.wait()


def test_a_run_fails_where_a_fault_loses_something_or_stalls_a_call():
    for fault in faults.FAULTS:
        aims = fault.aims()
        assert aims[f"{fault.name}: lost"].most == 0
        assert 0 < aims[f"{fault.name}: longest call"].most <= 35
        assert all(aim.must for aim in aims.values())
