"""Tests the benchmark section on other file systems: the work checks content, and an island ends with all its processes
and mounts. Rows say why stdchk is behind."""

import fnmatch
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"
BIN = pathlib.Path(os.environ.get("STDCHK_BIN", ROOT / "build" / "bin")).resolve()
PATIENCE = float(os.environ.get("STDCHK_TEST_PATIENCE", "1"))
MIB = 1 << 20
sys.path.insert(0, str(BENCH))
import island  # noqa: E402
import peer_systems  # noqa: E402
import peer_work  # noqa: E402
import peers  # noqa: E402
from report import Failure, Report, Series  # noqa: E402

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="root only")


def new_report():
    report = Report({}, "today.", ratios=peers.RATIOS)
    report.section("Peers", "Beside others.")
    return report


@as_root
def test_the_same_work_runs_on_the_systems_that_need_no_packages(tmp_path):
    if not (BIN / "fuse-null").exists():
        pytest.skip("the benches are not built")
    report = new_report()
    peers.measure(report, BIN, tmp_path, 1, 8 * MIB, 20, (peer_systems.OURS, *peer_systems.ALWAYS))
    report.check_complete()
    names = [row.name for row in report.rows]
    assert fnmatch.filter(names, "start-up, against tmpfs*") and not fnmatch.filter(names, "read, *, against do-nothing FUSE*")
    assert not list(pathlib.Path("/dev/shm").glob(f"stdchk-peers-{os.getpid()}-*"))


def test_other_bytes_than_were_written_are_an_error(tmp_path):
    place, memory = peer_work.Folder(str(tmp_path)), peer_work.image_memory(4 * MIB)
    peer_work.stamp(memory, 1)
    peer_work.write_image(place, "one", memoryview(memory), MIB)
    peer_work.read_image(place, "one", memory)
    with open(tmp_path / "one", "r+b") as file:
        file.seek(3 * MIB + 7)
        file.write(bytes([memory[3 * MIB + 7] ^ 1]))
    with pytest.raises(ValueError, match="other bytes"):
        peer_work.read_image(place, "one", memory)
    os.truncate(tmp_path / "one", 2 * MIB)
    with pytest.raises(ValueError, match="has 2097152 bytes"):
        peer_work.read_image(place, "one", memory)


def test_no_page_occurs_twice():
    memory = peer_work.image_memory(4 * MIB)
    pages = set()
    for number in (1, 2):
        peer_work.stamp(memory, number)
        pages |= {memory[at:at + 4096] for at in range(0, len(memory), 4096)}
    assert len(pages) == 2 * 1024


@as_root
def test_an_island_ends_with_its_daemons_and_mounts(tmp_path):
    with island.island() as where:
        where.cover(tmp_path)
        where.run("setsid", "--fork", "sleep", "300")
        assert where.is_mounted(tmp_path) and not os.path.ismount(tmp_path)
        inside = os.readlink(f"/proc/{where.first}/ns/pid")
        assert processes_of(inside)
    assert wait_until(lambda: not processes_of(inside))


@as_root
def test_an_island_ends_when_the_bench_is_killed():
    program = f"import sys; sys.path.insert(0, {str(BENCH)!r}); import island, time; print(island.Island().first, flush=True); time.sleep(300)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as bench:
        inside = os.readlink(f"/proc/{int(bench.stdout.readline())}/ns/pid")
        bench.send_signal(signal.SIGKILL)
    assert wait_until(lambda: not processes_of(inside))


@as_root
def test_a_stopped_program_has_ended_itself(tmp_path):
    with island.island() as where:
        ended = tmp_path / "ended"
        process = where.spawn("bash", "-c", f"trap 'echo so >{ended}; exit' TERM; echo ready; while :; do sleep 0.05; done", log=tmp_path / "log")
        assert wait_until(lambda: "ready" in (tmp_path / "log").read_text())
        where.stop(process)
        assert ended.read_text() == "so\n"


@as_root
def test_a_command_on_an_island_has_a_deadline():
    with island.island() as where, pytest.raises(Failure, match="none after"):
        where.run("sleep", "300", seconds=0.2)


def test_a_system_that_does_not_start_is_named_with_its_output(tmp_path, monkeypatch):
    def one_round(kind, *_):
        if kind is peer_systems.Moose:
            raise Failure("mfsmaster start: exit 1: no metadata")
        return dict.fromkeys(peers.UNITS, 2.0 if kind is peer_systems.OURS else 1.0)
    monkeypatch.setattr(peers, "one_round", one_round)
    monkeypatch.setattr(peer_systems.Moose, "missing", classmethod(lambda _: ""))
    report = new_report()
    peers.measure(report, BIN, tmp_path, 2, MIB, 1, (peer_systems.OURS, peer_systems.Tmpfs, peer_systems.Moose))
    assert "NOT MEASURED: MooseFS: mfsmaster start: exit 1: no metadata" in report.text
    assert not fnmatch.filter([row.name for row in report.rows], "*MooseFS*")


def test_a_row_says_why_ours_is_behind():
    slow, fast = (Series([value], "GB/s") for value in (1.0, 2.0))
    assert peers.reason(peer_systems.Tmpfs, "read, warm", fast, slow) == ""
    assert "in the kernel" in peers.reason(peer_systems.Tmpfs, "read, warm", slow, fast)
    assert "no cause has been measured" in peers.reason(peer_systems.Gluster, "stat", slow, fast)
    assert peers.reason(peer_systems.Gluster, "start-up", slow, fast) == ""
    assert peers.reason(peer_systems.Gluster, "start-up", fast, slow) != ""


def processes_of(namespace):
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/ns/pid"):
        try:
            if os.readlink(path) == namespace:
                found.append(path)
        except OSError:
            pass  # it has ended
    return found


def wait_until(ready):
    until = time.monotonic() + 10 * PATIENCE
    while not ready() and time.monotonic() < until:
        time.sleep(0.05)
    return ready()
