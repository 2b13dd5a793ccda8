"""Tests that benefactors return memory when others need it. Uses real control groups if possible, else files
that imitate a kernel's."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest
from conftest import drop_caches, write_random
from processes import ROOT, run, wait_until

MIB = 1024 * 1024
CGROUPS = pathlib.Path("/sys/fs/cgroup")


class Group:
    """A control group with a memory limit, of the version that this machine has."""

    def __init__(self, limit):
        self.two = (CGROUPS / "cgroup.controllers").exists()
        self.folder = (CGROUPS if self.two else CGROUPS / "memory") / f"stdchk-test-{os.getpid()}"
        self.folder.mkdir()
        (self.folder / ("memory.max" if self.two else "memory.limit_in_bytes")).write_text(str(limit))

    def enter(self):
        """Moves the calling process into the group; for use in a new process."""
        (self.folder / "cgroup.procs").write_text("0")

    def used(self):
        name = "memory.current" if self.two else "memory.usage_in_bytes"
        return int((self.folder / name).read_text())

    def oom_kills(self):
        text = (self.folder / ("memory.events" if self.two else "memory.oom_control")).read_text()
        return int(dict(line.split() for line in text.splitlines())["oom_kill"])

    def remove(self):
        wait_until(lambda: not (self.folder / "cgroup.procs").read_text(), "the end of what is in it")
        self.folder.rmdir()


@pytest.fixture
def group():
    try:
        one = Group(600 * MIB)
    except OSError as error:
        pytest.skip(f"no control group with a memory limit can be made here: {error}")
    yield one
    one.remove()


class Machine:
    """The files of another machine's kernel, for --kernel-files."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "proc" / "pressure").mkdir(parents=True)
        (folder / "sys" / "fs" / "cgroup").mkdir(parents=True)
        self.available(8192)

    def available(self, mib):
        text = f"MemTotal: {16 * 1024 * 1024} kB\nMemAvailable: {mib * 1024} kB\n"
        new = self.folder / "proc" / "meminfo.new"
        new.write_text(text)
        new.rename(self.folder / "proc" / "meminfo")


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path / "kernel")


class Lender:
    """A benefactor started by hand, beside the benefactors of `stdchk up`."""

    def __init__(self, pool, name, *arguments, enter=None, prefix=()):
        self.log = pool.folder / f"{name}.log"
        self.process = pool.benefactor_by_hand(name, *arguments, enter=enter, prefix=prefix)

    def runs(self):
        return self.process.poll() is None

    def text(self):
        return self.log.read_text()


def lending(pool):
    return [one for one in pool.status()["pool"]["benefactors"] if one["state"] == "alive"]


def read_back(pool, images):
    """Reads the images through a mount with empty caches."""
    drop_caches()
    fresh = pool.mount_by_hand(f"fresh{time.monotonic_ns()}")
    for name, data in images.items():
        assert (fresh / name).read_bytes() == data, name
    assert pool.status()["pool"]["lost_chunks"] == 0


def test_a_benefactor_leaves_before_the_oom_killer_comes_to_its_group(pool, group):
    pool.up(benefactors=2, memory="256M", drain=False)
    lender = Lender(pool, "grouped", "--memory", "200M", "--pressure-reserve", "150M", enter=group.enter)
    wait_until(lambda: len(lending(pool)) == 3, "the third benefactor")
    images = write_random(pool.mount, [f"f{i}" for i in range(6)], 16 * MIB)
    before = pool.status()["pool"]["copies_made"]
    hog = subprocess.Popen([sys.executable, pathlib.Path(__file__).parent / "memory_hog.py", "8", "50", "0.25"],
                           preexec_fn=group.enter, stdout=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: not lender.runs(), "its end", seconds=40)
        print(f"{group.used() >> 20} MiB are in use after its end")
        # The job now uses memory that it could not have had beside the benefactor.
        for line in hog.stdout:
            if int(line) == 400:
                break
        assert hog.poll() is None
        assert group.oom_kills() == 0
    finally:
        hog.kill()
        hog.wait()
    assert lender.process.returncode == 0
    assert "the control group" in lender.text()
    assert "ends before all" not in lender.text()
    assert pool.status()["pool"]["copies_made"] > before
    read_back(pool, images)


def test_a_benefactor_leaves_when_its_machine_runs_short_and_not_for_a_spike(pool, machine):
    pool.up(benefactors=2, memory="128M", drain=False)
    lender = Lender(pool, "watched", "--memory", "128M", "--kernel-files", machine.folder)
    assert "PSI" in lender.text()
    wait_until(lambda: len(lending(pool)) == 3, "the third benefactor")
    images = write_random(pool.mount, [f"f{i}" for i in range(6)], 8 * MIB)
    machine.available(400)
    time.sleep(1.5)
    machine.available(4096)
    time.sleep(3)
    assert lender.runs()
    machine.available(400)
    start = time.monotonic()
    wait_until(lambda: not lender.runs(), "its end", seconds=30)
    print(f"gone after {time.monotonic() - start:.1f} s")
    assert lender.process.returncode == 0
    assert "leaves, because this machine has 400.0 MiB available" in lender.text()
    read_back(pool, images)


def test_those_of_one_host_leave_one_after_the_other(pool, machine):
    pool.up(benefactors=1, memory="256M", drain=False)
    both = [Lender(pool, name, "--memory", "128M", "--kernel-files", machine.folder, "--leave-time", "60")
            for name in ("first", "second")]
    wait_until(lambda: len(lending(pool)) == 3, "the others")
    images = write_random(pool.mount, [f"f{i}" for i in range(6)], 8 * MIB)
    machine.available(400)
    wait_until(lambda: not all(one.runs() for one in both), "the end of one", seconds=30)
    machine.available(4096)  # then enough memory is free
    time.sleep(6)
    assert sum(one.runs() for one in both) == 1
    machine.available(400)
    wait_until(lambda: not any(one.runs() for one in both), "the end of the other one", seconds=30)
    read_back(pool, images)


def test_without_a_manager_a_benefactor_stays_until_memory_is_nearly_gone(pool, machine):
    pool.up(benefactors=1, memory="64M", drain=False)
    lender = Lender(pool, "alone", "--memory", "64M", "--kernel-files", machine.folder)
    pool.kill("manager")
    machine.available(400)
    time.sleep(6)
    assert lender.runs()
    machine.available(200)
    wait_until(lambda: not lender.runs(), "its end", seconds=10)
    assert "200.0 MiB left before the OOM killer comes" in lender.text()


def test_who_does_not_want_to_leave_stays(pool, machine):
    pool.up("--pressure", "off", benefactors=1, memory="64M", drain=False)
    lender = Lender(pool, "stays", "--memory", "64M", "--kernel-files", machine.folder, "--pressure", "off")
    machine.available(10)
    time.sleep(5)
    assert lender.runs()
    command = pathlib.Path(f"/proc/{pool.pids('benefactor')[0]}/cmdline").read_text().split("\0")
    assert command[command.index("--pressure") + 1] == "off"


def test_the_kernel_ends_a_benefactor_before_others(pool):
    pool.up(benefactors=1, memory="64M", drain=False)
    files = pathlib.Path("/proc") / str(pool.pids("benefactor")[0])
    assert (files / "oom_score_adj").read_text() == "800\n"
    disk = pool.folder / "disk"
    on_disk = Lender(pool, "disk", "--memory", "64M", "--disk", disk)
    assert pathlib.Path(f"/proc/{on_disk.process.pid}/oom_score_adj").read_text() == \
        pathlib.Path("/proc/self/oom_score_adj").read_text()
    assert "memory pressure is not watched" in on_disk.text()


def test_a_desktop_lends_while_nobody_uses_it(pool, tmp_path):
    pool.up(benefactors=2, memory="128M", drain=False)
    idle = tmp_path / "idle"
    idle.touch()
    lender = Lender(pool, "desktop", "--memory", "128M",
                    prefix=(ROOT / "scripts" / "while-idle", "--test", f"test -e '{idle}'"))
    wait_until(lambda: len(lending(pool)) == 3, "the third benefactor")
    images = write_random(pool.mount, [f"f{i}" for i in range(6)], 8 * MIB)
    idle.unlink()
    wait_until(lambda: lender.text().rstrip().endswith("ends"), "its end")
    assert "ends before all" not in lender.text()
    read_back(pool, images)
    assert lender.runs()  # the script waits for its next turn
    lender.process.send_signal(signal.SIGTERM)
    assert lender.process.wait(10) == 0


def test_a_terminal_that_was_just_used_is_not_idle(tmp_path):
    """Tests the script's own check with a terminal of this test."""
    if shutil.which("loginctl") and run("loginctl", "list-sessions", "--no-legend", check=False).stdout:
        pytest.skip("a desktop of this machine may be idle or not")
    used = [path.stat().st_atime for path in [*pathlib.Path("/dev").glob("tty[1-9]*"),
                                              *pathlib.Path("/dev/pts").glob("[0-9]*")]]
    if any(time.time() - when < 30 for when in used):
        pytest.skip("somebody uses a terminal of this machine")
    master, terminal = os.openpty()
    started = tmp_path / "started"
    script = subprocess.Popen([ROOT / "scripts" / "while-idle", "--for", "5", "touch", started])
    try:
        os.utime(os.ttyname(terminal))
        time.sleep(2)
        assert not started.exists()
        wait_until(started.exists, "the desktop is idle", seconds=20)
    finally:
        script.terminate()
        script.wait(10)
        os.close(master)
        os.close(terminal)
