"""Kills manager, mount or writer before and within each step of a writer.

After each kill, every file has its state from before the step or from after the step. No call hangs.
"""

import os
import random
import select
import signal
import subprocess
import sys
import time

import pytest
from conftest import drop_caches
from processes import children_of, is_running, run, wait_until

SIZE = 6 * (1 << 20) + 17
IMAGES = ("app.N0.T1", "app.N0.T2")
FILES = ("old", "new")  # fsync commits files that are no images
STEPS = ("open", "write", "write the rest", "fsync", "close", "rename", "unlink")
OF_AN_OPEN_FILE = STEPS[:5]
# delays of the kills after a step's start, in any order
MIDDLES_SECONDS = (0, 0, 0, 0.0005, 0.001, 0.002, 0.004)
STRUCK_LEAST = 3  # at least this many kills must hit an unfinished step
STATED_SECONDS = 30  # docs/guide/failures.md: the longest wait of a call without progress

# Takes a step for each line of input, and prints its result. Replaces the file `old` as careful programs do.
WRITER = f"""
import os, sys
old, new, other, content = sys.argv[1:]
content = open(content, "rb").read()
fd = None
def take(step):
    global fd
    if step == "open":
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    elif step == "write":
        assert os.pwrite(fd, content[:{SIZE // 2}], 0) == {SIZE // 2}
    elif step == "write the rest":
        rest = content[{SIZE // 2}:]
        assert os.pwrite(fd, rest, {SIZE // 2}) == len(rest)
    elif step == "fsync":
        os.fsync(fd)
    elif step == "close":
        os.close(fd)
    elif step == "rename":
        os.rename(new, old)
    elif step == "unlink":
        os.unlink(other)
for line in sys.stdin:
    try:
        take(line.strip())
        print("ok", flush=True)
    except OSError as error:
        print("errno", error.errno, flush=True)
        break
"""


class Case:
    """Starts a writer in a separate folder. Knows the contents that the folder may have afterwards."""

    def __init__(self, pool, mount, name, files=IMAGES):
        self.folder = mount / name
        self.folder.mkdir()
        self.content = os.urandom(SIZE)
        source = pool.folder / "content"
        source.write_bytes(self.content)
        old, new = files
        before = {old: os.urandom(1000), "other": os.urandom(100)}
        for each, content in before.items():
            (self.folder / each).write_bytes(content)
        closed = before | {new: self.content}
        renamed = {old: self.content, "other": before["other"]}
        self.after = dict.fromkeys(OF_AN_OPEN_FILE, before) | {
            "close": closed, "rename": renamed, "unlink": {old: self.content}}
        if files == FILES:
            self.after["fsync"] = closed
        self.now = before
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER, *(self.folder / each for each in (old, new, "other")), source],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def begin(self, step):
        self.process.stdin.write(step + "\n")
        self.process.stdin.flush()

    def result(self, step):
        """Returns the result of the begun step. After "ok" the folder's content is known."""
        answer = self.process.stdout.readline().strip()
        if answer == "ok":
            self.now = self.after[step]
        return answer

    def take(self, step):
        self.begin(step)
        return self.result(step)

    def end(self):
        self.process.kill()
        self.process.communicate(timeout=60)

    def holds_one_of(self, states, folder):
        """Waits until another mount shows one of the allowed contents. Files of a dead writer vanish with its lease."""
        def read():
            try:
                return {path.name: path.read_bytes() for path in folder.iterdir()}
            except OSError:
                return None
        drop_caches()
        wait_until(lambda: read() in states, f"a right state of the folder {folder.name}")


def middles():
    return dict(zip(STEPS, random.sample(MIDDLES_SECONDS, len(STEPS)), strict=True))


def strike(case, step, seconds, pid):
    """Begins the step, and kills a process `seconds` later, or before the step. Returns whether the step was
    unfinished."""
    if seconds is not None:
        case.begin(step)
        if seconds > 0:
            time.sleep(seconds)
    over, _, _ = select.select([case.process.stdout], [], [], 0)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_running(pid), f"the end of pid {pid}")
    if seconds is None:
        case.begin(step)
    return not over


@pytest.mark.parametrize("middle", [False, True], ids=["before", "in the middle of"])
def test_a_writer_goes_on_when_the_manager_is_killed(pool, middle):
    pool.up(benefactors=2, memory="96M")
    seen = pool.mount_by_hand("seen")
    moments, struck = middles() if middle else {}, 0
    for step in STEPS:
        case = Case(pool, pool.mount, step)
        for each in STEPS[:STEPS.index(step)]:
            assert case.take(each) == "ok"
        struck += strike(case, step, moments.get(step), pool.pids("manager")[0])
        pool.stdchk("recover", pool.mount)
        began = time.monotonic()
        assert case.result(step) == "ok"
        for each in STEPS[STEPS.index(step) + 1:]:
            assert case.take(each) == "ok"
        assert time.monotonic() - began < STATED_SECONDS
        case.end()
        case.holds_one_of([case.now], seen / step)
    assert struck >= STRUCK_LEAST
    pool.stdchk("check", pool.mount)
    pool.down("--drain")
    assert (pool.drain / "unlink" / IMAGES[0]).read_bytes() == case.content


@pytest.mark.parametrize("middle", [False, True], ids=["before", "in the middle of"])
def test_what_is_committed_stays_when_a_mount_is_killed(pool, middle):
    pool.up(benefactors=2, memory="96M")
    moments, struck = middles() if middle else {}, 0
    for step in STEPS:
        mount = pool.mount_by_hand(f"killed-{step.replace(' ', '-')}")
        guard = pool.hand_processes[-1].pid
        (killed,) = children_of(guard)
        case = Case(pool, mount, step)
        for each in STEPS[:STEPS.index(step)]:
            assert case.take(each) == "ok"
        before = case.now
        struck += strike(case, step, moments.get(step), killed)
        answer = case.result(step)
        case.end()
        if answer == "ok":
            before = case.now
        case.holds_one_of([before, case.after[step]] if answer != "ok" else [before], pool.mount / step)
        # The guard has mounted again.
        wait_until(lambda: killed not in children_of(guard) and os.path.ismount(mount), "the mount's return")
        case.holds_one_of([case.now, case.after[step]], mount / step)
        run("umount", mount)
    assert struck >= STRUCK_LEAST
    pool.stdchk("check", pool.mount)
    pool.down()


@pytest.mark.parametrize("files", [IMAGES, FILES], ids=["images", "files"])
@pytest.mark.parametrize("middle", [False, True], ids=["before", "in the middle of"])
def test_what_is_committed_stays_when_a_writer_is_killed(pool, middle, files):
    pool.up(benefactors=2, memory="96M")
    seen = pool.mount_by_hand("seen")
    moments, struck = middles() if middle else {}, 0
    for step in STEPS:
        case = Case(pool, pool.mount, step, files)
        for each in STEPS[:STEPS.index(step)]:
            assert case.take(each) == "ok"
        before = case.now
        if middle:
            struck += strike(case, step, moments[step], case.process.pid)
        case.end()
        case.holds_one_of([before, case.after[step]] if middle else [before], seen / step)
    assert struck >= STRUCK_LEAST or not middle
    pool.stdchk("check", pool.mount)
    pool.down()
