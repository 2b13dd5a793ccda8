"""Tests that a killed or stopped mount comes back by itself, and that no caller waits for long."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from processes import children_of, is_running, run, wait_until

MIB = 1 << 20
REQUEST_TIMEOUT = pathlib.Path("/proc/sys/fs/fuse/default_request_timeout")


def child_of(guard):
    (pid,) = children_of(guard)
    return pid


def state_of(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def answers(path, content):
    try:
        return path.read_bytes() == content
    except OSError:
        return False


def write_image(pool):
    content = os.urandom(2 * MIB)
    (pool.mount / "app.N0.T1").write_bytes(content)
    return content


def test_a_killed_mount_comes_back_by_itself(pool):
    pool.up(benefactors=2, drain=False)
    content = write_image(pool)
    (guard,) = pool.pids("mount")
    half = open(pool.mount / "app.N0.T2", "wb", 0)
    half.write(content)
    for _ in range(2):
        served_by = child_of(guard)
        os.kill(served_by, signal.SIGKILL)
        wait_until(lambda: answers(pool.mount / "app.N0.T1", content), "the mount", seconds=15)
        assert child_of(guard) != served_by and not is_running(served_by)
    with pytest.raises(OSError):
        half.write(b"more")
        os.fsync(half.fileno())
    try:
        half.close()
    except OSError:
        pass
    assert os.listdir(pool.mount) == ["app.N0.T1"]
    (pool.mount / "app.N0.T3").write_bytes(content)
    pool.down()
    assert not is_running(guard)
    assert not os.path.ismount(pool.mount)


def test_who_waits_for_a_stopped_mount_gets_an_error_in_time(pool):
    pool.environment["STDCHK_WATCHDOG"] = "3"
    pool.up(benefactors=2, drain=False)
    content = write_image(pool)
    (guard,) = pool.pids("mount")
    stopped = child_of(guard)
    os.kill(stopped, signal.SIGSTOP)
    wait_until(lambda: state_of(stopped) == "T", "the stop")
    began = time.monotonic()
    # No cache has these names.
    waiting = [subprocess.Popen(["stat", pool.mount / f"nothing.{i}"], stderr=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL) for i in range(3)]
    assert all(each.wait(15) != 0 for each in waiting)
    assert 1 < time.monotonic() - began < 8
    wait_until(lambda: answers(pool.mount / "app.N0.T1", content), "the mount", seconds=15)
    assert not is_running(stopped)
    pool.down()
    assert not os.path.ismount(pool.mount)


@pytest.mark.skipif(not os.access(REQUEST_TIMEOUT, os.W_OK), reason=f"{REQUEST_TIMEOUT} cannot be written")
def test_who_waits_for_a_stopped_mount_and_its_stopped_guard_is_let_go_by_the_kernel(pool):
    pool.up(benefactors=2, drain=False)
    content = write_image(pool)
    before = REQUEST_TIMEOUT.read_text()
    REQUEST_TIMEOUT.write_text("30")
    try:
        point = pool.mount_by_hand("bounded")
        (finding,) = [each for each in json.loads(pool.stdchk("doctor", "--json", check=False).stdout)
                      if each["what"] == "FUSE requests"]
    finally:
        REQUEST_TIMEOUT.write_text(before)
    assert finding["state"] == "note" and "30 s" in finding["found"]
    guard = pool.hand_processes[-1].pid
    for pid in (guard, served_by := child_of(guard)):
        os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: state_of(served_by) == "T", "the stop")
    began = time.monotonic()
    waiting = subprocess.Popen(["stat", point / "nothing"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    assert waiting.wait(60) != 0
    assert 20 < time.monotonic() - began < 55
    for pid in (guard, served_by):
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: answers(point / "app.N0.T1", content), "the mount", seconds=30)
    pool.down()


def test_a_stopped_mount_is_taken_down(pool):
    pool.up(benefactors=1, drain=False)
    write_image(pool)
    served_by = child_of(pool.pids("mount")[0])
    os.kill(served_by, signal.SIGSTOP)
    pool.down()
    assert not is_running(served_by)
    assert not os.path.ismount(pool.mount)


def test_a_stop_that_is_shorter_changes_nothing(pool):
    pool.environment["STDCHK_WATCHDOG"] = "4"
    pool.up(benefactors=1, drain=False)
    content = write_image(pool)
    served_by = child_of(pool.pids("mount")[0])
    for _ in range(2):
        os.kill(served_by, signal.SIGSTOP)
        time.sleep(2)
        os.kill(served_by, signal.SIGCONT)
        assert answers(pool.mount / "app.N0.T1", content)
    assert child_of(pool.pids("mount")[0]) == served_by


def test_without_its_guard_a_mount_ends_and_leaves_nothing_dead(pool):
    pool.up(benefactors=1, drain=False)
    write_image(pool)
    served_by = child_of(pool.pids("mount")[0])
    pool.kill("mount")
    wait_until(lambda: not is_running(served_by), "the end of the process that served")
    assert not os.path.ismount(pool.mount)
    assert os.listdir(pool.mount) == []


def test_a_mount_that_cannot_come_back_is_taken_away(pool):
    pool.up(benefactors=1, drain=False)
    (guard,) = pool.pids("mount")
    pool.kill("manager")
    os.kill(child_of(guard), signal.SIGKILL)
    wait_until(lambda: not is_running(guard), "the guard's end", seconds=60)
    assert not os.path.ismount(pool.mount)
    assert os.listdir(pool.mount) == []


def test_without_a_watchdog_there_is_one_process(pool):
    pool.up(benefactors=1, drain=False)
    point = pool.mount_by_hand("alone", "--watchdog", "0")
    alone = pool.hand_processes[-1].pid
    assert not children_of(alone)
    run("umount", point)
    assert pool.hand_processes[-1].wait(10) == 0


RENAMER = """
import errno, os, sys
one, two = sys.argv[1:]
while True:
    try:
        os.rename(one, two)
        one, two = two, one
    except OSError as error:
        sys.exit(0 if error.errno in (errno.ENOTCONN, errno.ECONNABORTED) else f"errno {error.errno}")
"""


def test_nobody_waits_for_a_mount_that_is_killed_while_it_tells_of_names(pool):
    """The kernel holds a directory's lock while a rename waits for the mount. A thread of the mount that
    sends a name to the kernel waits for that lock and cannot be killed."""
    pool.up(benefactors=2, drain=False)
    for number in range(4):
        (pool.mount / f"a{number}").touch()
    other = subprocess.Popen([sys.executable, "-c", RENAMER, pool.mount / "a0", pool.mount / "b0"], stderr=subprocess.PIPE)
    for turn in range(6):
        mount = pool.mount_by_hand(f"killed-{turn}")
        os.listdir(mount)
        renamers = [subprocess.Popen([sys.executable, "-c", RENAMER, mount / f"a{n}", mount / f"b{n}"],
                                     stderr=subprocess.PIPE) for n in (1, 2, 3)]
        time.sleep(0.5)
        os.kill(child_of(pool.hand_processes[-1].pid), signal.SIGKILL)
        for process in renamers:
            _, said = process.communicate(timeout=45)
            assert process.returncode == 0, said
        # The next turn needs the files under their first names.
        wait_until(lambda at=mount: answers(at / "a1", b"") or answers(at / "b1", b""), "the mount's return")
        for number in (1, 2, 3):
            if (pool.mount / f"b{number}").exists():
                (pool.mount / f"b{number}").rename(pool.mount / f"a{number}")
        run("umount", mount)
    other.kill()
    other.communicate(timeout=20)
    pool.down()
