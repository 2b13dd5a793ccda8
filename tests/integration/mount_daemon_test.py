"""Tests how a mount starts and ends: bad mount points, unmounting from outside, daemons that die.

Runs the mount over a pool in the memory of a test program (STDCHK_FUSE_OVER_MEMORY names it).
"""

import errno
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import pytest

PROGRAM = os.environ.get("STDCHK_FUSE_OVER_MEMORY")
pytestmark = [
    pytest.mark.skipif(not PROGRAM, reason="STDCHK_FUSE_OVER_MEMORY is not set"),
    pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="there is no /dev/fuse here"),
]


@pytest.fixture
def point():
    path = tempfile.mkdtemp(prefix="stdchk-daemon-test-")
    yield path
    subprocess.run(["fusermount3", "-uzq", path], check=False, capture_output=True)
    if os.geteuid() == 0:
        subprocess.run(["umount", "-l", path], check=False, capture_output=True)
    shutil.rmtree(path, ignore_errors=True)


def start(*points):
    daemon = subprocess.Popen([PROGRAM, *points], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert daemon.stdout.readline() == b"ready\n", daemon.stderr.read()
    return daemon


def refused(point):
    done = subprocess.run([PROGRAM, point], capture_output=True, timeout=20, check=False)
    assert done.returncode != 0
    return done.stderr.decode()


def test_a_mount_point_that_is_not_there_is_named_with_a_remedy(point):
    assert f"mkdir {point}/none" in refused(point + "/none")


def test_a_mount_point_that_is_a_file_is_refused(point):
    with open(point + "/f", "wb"):
        pass
    assert "is not a directory" in refused(point + "/f")


def test_a_mount_point_that_is_not_empty_is_refused(point):
    with open(point + "/f", "wb"):
        pass
    assert "is not empty" in refused(point)


def test_a_mount_point_in_use_is_refused_and_left_alone(point):
    daemon = start(point)
    assert f"fusermount3 -u {point}" in refused(point)
    assert os.path.ismount(point)
    daemon.terminate()
    assert daemon.wait(timeout=10) == 0


def test_a_dead_mount_is_replaced(point):
    daemon = start(point)
    daemon.kill()
    daemon.wait(timeout=10)
    with pytest.raises(OSError) as dead:
        os.statvfs(point)
    assert dead.value.errno in (errno.ENOTCONN, errno.ECONNABORTED)
    daemon = start(point)
    with open(point + "/f", "wb") as file:
        file.write(b"alive")
    daemon.terminate()
    assert daemon.wait(timeout=10) == 0
    assert not os.path.ismount(point)


def test_an_unmount_from_outside_ends_the_daemon(point):
    daemon = start(point)
    command = ["umount", point] if os.geteuid() == 0 else ["fusermount3", "-u", point]
    subprocess.run(command, check=True, timeout=10)
    assert daemon.wait(timeout=10) == 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_daemon_though_a_file_is_open(point, how):
    daemon = start(point)
    file = open(point + "/f", "wb", buffering=0)
    file.write(b"x" * 100000)
    daemon.send_signal(how)
    assert daemon.wait(timeout=10) == 0
    assert not os.path.ismount(point)
    with pytest.raises(OSError):
        file.write(b"more")
    with pytest.raises(OSError):
        os.fsync(file.fileno())
    try:
        file.close()
    except OSError:
        pass


def test_a_killed_daemon_hangs_no_writer(point):
    daemon = start(point)
    outcome = []

    def write():
        try:
            with open(point + "/f", "wb", buffering=0) as file:
                for _ in range(10**6):
                    file.write(b"x" * 65536)
                    file.seek(0)
            outcome.append("no error")
        except OSError as error:
            outcome.append(error.errno)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    time.sleep(0.3)
    daemon.kill()
    daemon.wait(timeout=10)
    writer.join(timeout=10)
    assert not writer.is_alive() and outcome and outcome[0] != "no error"


def test_many_threads_at_once_are_served(point):
    daemon = start(point)
    problems = []

    def work(number):
        try:
            for i in range(30):
                path = f"{point}/t{number}-{i % 3}"
                with open(path, "wb", buffering=0) as file:
                    file.write(bytes([number]) * (i * 5000 + 1))
                with open(path, "rb") as file:
                    if file.read() != bytes([number]) * (i * 5000 + 1):
                        problems.append(f"{path} differs")
                if i % 5 == 4:
                    os.rename(path, path + "r")
                    os.unlink(path + "r")
        except OSError as error:
            problems.append(str(error))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not problems
    daemon.terminate()
    assert daemon.wait(timeout=10) == 0
