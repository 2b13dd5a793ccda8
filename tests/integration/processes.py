"""Processes of tests: commands that must end, conditions to wait for, running processes."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("STDCHK_BIN", ROOT / "build" / "bin"))
PATIENCE = int(os.environ.get("STDCHK_TEST_PATIENCE", "1"))  # slow programs take this factor longer
CALL_SECONDS = 60 * PATIENCE  # no call in these tests may take longer: a hang is a failure


def run(*command, check=True, seconds=CALL_SECONDS, **options):
    """Runs a command to its end; fails the test if the command hangs or fails."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=seconds, **options
    )
    if check and done.returncode != 0:
        raise AssertionError(
            f"{command} ended with {done.returncode}\nout: {done.stdout}\nerr: {done.stderr}"
        )
    return done


def wait_until(condition, what, seconds=20.0):
    """Waits until `condition` holds; fails the test after `seconds`."""
    end = time.monotonic() + seconds * PATIENCE
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {seconds * PATIENCE} s"
        time.sleep(0.05)


def leads_to(link, target):
    """True when the link exists with this target."""
    try:
        return os.readlink(link) == target
    except FileNotFoundError:
        return False


def programs_for_all(folder):
    """Copies the programs into a folder that other users can read, unlike perhaps the build's."""
    return shutil.copytree(BIN, folder, ignore=lambda _, names: [one for one in names if not one.startswith("stdchk")])


@contextlib.contextmanager
def stopped(*pids):
    """Stops these processes for the duration of the block."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def is_running(pid):
    """Whether any thread of a process is alive. A killed process keeps its locks until its last thread has ended."""
    for stat in pathlib.Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            if stat.read_text().rpartition(")")[2].split()[0] not in "ZX":
                return True
        except OSError:
            continue
    return False


def children_of(pid):
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def change_memory(pid, name, content, wrong=b"wrong"):
    """Writes `wrong` over the first bytes of `content` in the mapped file `name` of a benefactor, as its owner can."""
    for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
        if name not in line:
            continue
        first, last = (int(part, 16) for part in line.split()[0].split("-"))
        with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
            memory.seek(first)
            at = memory.read(last - first).find(content)
            if at >= 0:
                memory.seek(first + at)
                memory.write(wrong)
                return
    raise AssertionError("the content is not there")
