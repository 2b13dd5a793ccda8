"""Unmodified MPI programs in containers: saved into the pool, killed, restarted, with the result of an undisturbed run."""

import fcntl
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import sys
import termios
import time
import uuid

import pytest
from boxes import HANGS_UP, Base, Pool, job, why_not
from processes import BIN, CALL_SECONDS, ROOT, is_running, run, wait_until

REASON = why_not()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))


# Connects to a job's coordinator, as an attack by another user would.
CONNECT = """
import socket, sys
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[1])
    print("let in")
except OSError as error:
    print(type(error).__name__)
"""


@pytest.fixture(scope="module")
def base():
    return Base()


@pytest.fixture
def pool(tmp_path):
    with Pool(tmp_path) as made:
        yield made


def ring(library, *arguments):
    return ["--", f"mpiexec.{library}", "-n", "3", f"/opt/stdchk-test/ring-{library}", *arguments]


@pytest.mark.parametrize("library", ["mpich", "openmpi"])
def test_a_job_that_was_saved_and_killed_has_the_result_of_an_undisturbed_run(pool, base, library):
    with job(pool, base, "-n", 3, "--nodes", 2, *ring(library, "150", "8")) as straight:
        assert straight.wait() == 0, straight.err
        assert "MPI is told to use TCP" in straight.err
    with job(pool, base, "-n", 3, "--nodes", 2, *ring(library, "150", "8")) as first:
        first.wait_for("round 20")
        assert first.checkpoint() == f"{first.name}.*.T1"
        first.wait_for("round 40")
        assert first.checkpoint() == f"{first.name}.*.T2"
        first.wait_for("round 60")
        first.kill()
        assert [(one["set"], one["complete"], one["images"]) for one in pool.sets(first.name)] == [
            (f"{first.name}.*.T2", True, 5), (f"{first.name}.*.T1", True, 5)]
        with job(pool, base, first.name, command="restart", name=first.name) as second:
            assert second.wait() == 0, second.err
            assert second.status() is None, "nothing is left to restart, so the record is gone"
    assert second.result() == straight.result()
    assert "150 lines" in second.result()
    assert "round 0" not in second.out, "it went on from the set, not from the beginning"
    rounds = first.lines["out"] + second.lines["out"]
    assert len(rounds) >= 9


def test_a_restart_may_have_other_nodes_and_refuses_what_is_for_folders(pool, base):
    with job(pool, base, "-n", 3, "--nodes", 3, "--spares", 1, *ring("mpich", "200", "4")) as first:
        first.wait_for("round 20")
        first.checkpoint()
        first.kill()
        record = pathlib.Path(f"/tmp/stdchk-{os.geteuid()}/runs/{first.name}/run.json")
        before = record.read_bytes()
        for name, words, says in ((first.name, ("--nodes", 2, "--job"), "exclude each other"),
                                  (first.name, ("--to", "/tmp"), "takes no program, and none of --to"),
                                  (first.name, ("--rank", 1), "takes no program, and none of --to"),
                                  (first.name, ("--timeout", 5), "takes no program, and none of --to"),
                                  (first.name, ("--job",), "--job finds neither SLURM_JOB_ID nor PBS_JOBID"),
                                  (first.name, ("--hosts", "a,b"), "takes a file with a line NAME"),
                                  (first.name, ("--hosts", "/etc/passwd"), "is not a host name"),
                                  (first.name, ("--pool", "/nowhere"), "/nowhere"),
                                  (pool.mount / first.name, ("--nodes", 2), "is no job of stdchk run on this host")):
            done = run(BIN / "stdchk", "restart", name, *words, env=first.environment, check=False)
            assert done.returncode == 2 and says in done.stderr
            assert record.read_bytes() == before, "a refused restart changes nothing"
        with job(pool, base, first.name, "--nodes", 1, command="restart", name=first.name) as second:
            second.wait_for("runs again from set T1", "err")
            assert [len(node["boxes"]) for node in second.status()["nodes"]] == [4], "one node has all containers"
            assert second.wait() == 0, second.err
    assert "200 lines" in second.result()


def test_a_lazy_restart_has_the_result_and_its_next_set_has_all_memory(pool, base):
    with job(pool, base, "-n", 3, "--nodes", 2, *ring("mpich", "200", "32")) as straight:
        assert straight.wait() == 0, straight.err
    with job(pool, base, "-n", 3, "--nodes", 2, *ring("mpich", "200", "32")) as first:
        first.wait_for("round 20")
        first.checkpoint()
        first.kill()
        with job(pool, base, first.name, "--lazy", command="restart", name=first.name) as second:
            second.wait_for("runs again from set T1", "err")
            # A set is refused until all memory is loaded.
            wait_until(lambda: run(BIN / "stdchk", "checkpoint", first.name, env=second.environment,
                                   check=False).returncode == 0, "a set after the lazy restart")
            log = pathlib.Path(f"/tmp/stdchk-{os.geteuid()}/runs/{first.name}/node-0.log").read_text()
            assert "memory was loaded on demand" in log
            second.kill()
            with job(pool, base, first.name, command="restart", name=first.name) as third:
                third.wait_for("runs again from set T", "err")
                assert third.wait() == 0, third.err
    assert third.result() == straight.result() and "200 lines" in third.result()
    assert "round 0" not in (second.out + third.out)


def test_each_restart_by_itself_of_a_lazy_job_loads_memory_on_demand(pool, base):
    words = ring("mpich", "500", "16")
    with job(pool, base, "-n", 3, *words) as straight:
        assert straight.wait() == 0, straight.err
    with job(pool, base, "-n", 3, "--nodes", 3, "--spares", 1, "--lease", 2, "--lazy", *words) as one:
        one.wait_for("round 20")
        one.checkpoint()
        # Node 0 has containers all the time, and loads them anew at each restart.
        log = pathlib.Path(f"/tmp/stdchk-{os.geteuid()}/runs/{one.name}/node-0.log")
        loaded = [0]
        for lost in (1, 2):
            os.kill(one.nodes()[lost], signal.SIGKILL)
            wait_until(lambda count=lost: one.err.count("runs again from set") == count, "the restart", 40)
            # A set is refused until all memory is loaded. The next restart uses this set.
            wait_until(lambda: run(BIN / "stdchk", "checkpoint", one.name, env=one.environment, check=False).returncode == 0,
                       "a set after the lazy restart", 40)
            loaded.append(log.read_text().count("memory was loaded on demand"))
        assert loaded == sorted(set(loaded)), "each restart loads the memory of node 0 on demand"
        assert one.status()["restarts"] == 2
        assert one.wait() == 0, one.err
    assert one.result() == straight.result() and "500 lines" in one.result()


@pytest.mark.skipif(not os.environ.get("STDCHK_TEST_CONTAINER"), reason="a part of scripts/check container: 1 GiB of memory")
def test_a_lazy_restart_whose_memory_fails_goes_back_to_the_set(pool, base):
    words = ring("mpich", "120", "200")
    with job(pool, base, "-n", 3, *words) as straight:
        assert straight.wait() == 0, straight.err
    with job(pool, base, "-n", 3, *words) as first:
        first.wait_for("round 20")
        first.checkpoint()
        first.kill()
        with job(pool, base, first.name, "--lazy", command="restart", name=first.name) as second:
            second.wait_for("runs again from set T1", "err")
            servers = run("pgrep", "-f", f"lazy-pages --images-dir /tmp/stdchk-{os.geteuid()}/runs/{first.name}/", check=False)
            assert servers.stdout, "the memory was loaded before the test could disturb that"
            os.kill(int(servers.stdout.split()[0]), signal.SIGKILL)
            second.wait_for("has ended", "err")
            assert second.wait() == 0, second.err
    assert second.err.count("runs again from set T1") == 2
    assert second.result() == straight.result()


def test_a_lost_node_costs_a_step_back_and_not_the_job(pool, base):
    with job(pool, base, "-n", 3, "--nodes", 3, "--spares", 1, "--lease", 2, *ring("mpich", "200", "4")) as one:
        one.wait_for("round 20")
        one.checkpoint()
        one.wait_for("round 40")
        os.kill(one.nodes()[1], signal.SIGKILL)
        one.wait_for("runs again from set T1", "err")
        status = one.status()
        assert status["restarts"] == 1
        assert one.wait() == 0, one.err
        assert "200 lines" in one.result()


def test_a_node_is_evacuated_while_the_job_goes_on(pool, base):
    with job(pool, base, "-n", 3, "--nodes", 3, "--spares", 1, *ring("mpich", "200", "4")) as one:
        one.wait_for("round 20")
        stranger = run("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-c", CONNECT,
                       f"/tmp/stdchk-{os.geteuid()}/runs/{one.name}/control")
        assert stranger.stdout.strip() == "PermissionError"
        run(BIN / "stdchk", "evacuate", "--job", one.name, "node1", env=one.environment)
        placed = {node["host"]: node["boxes"] for node in one.status()["nodes"]}
        assert placed["node1"] == [] and placed["node2"] != []
        assert one.wait() == 0, one.err
        assert "200 lines" in one.result()
        assert one.err.count("stdchk: set") == 1


def test_a_program_asks_for_a_checkpoint_and_learns_that_it_was_restarted(pool, base):
    with job(pool, base, "-n", 3, *ring("mpich", "200", "4", "30")) as first:
        first.wait_for("ASKED goes-on 1")
        first.wait_for("round 80")
        first.kill()
        with job(pool, base, first.name, command="restart", name=first.name) as second:
            assert second.wait() == 0, second.err
    assert "ASKED restarted 1" in second.out


def test_the_calls_of_c_and_python_ask_for_a_checkpoint_too(pool, base):
    folder = base.root / "opt" / "stdchk-test"
    shutil.copy(ROOT / "container" / "call" / "stdchk_job.h", folder)
    shutil.copy(ROOT / "python" / "stdchk" / "job.py", folder)
    (folder / "asks.c").write_text(
        '#include <stdio.h>\n#include "stdchk_job.h"\nint main(void) { unsigned long long n; '
        'int got = stdchk_job_checkpoint(&n); printf("C: %d %llu\\n", got, n); return got != STDCHK_JOB_GOES_ON; }\n')
    run("chroot", base.root, "gcc", "-Wall", "-Wextra", "-Werror", "-o", "/opt/stdchk-test/asks", "/opt/stdchk-test/asks.c")
    words = "cd /opt/stdchk-test && ./asks && python3 -c 'import job; print(job.checkpoint())'"
    with job(pool, base, "-n", 1, "--", "sh", "-c", words) as one:
        assert one.wait() == 0, one.err
    assert one.lines["out"] == ["C: 1 1", "Outcome.GOES_ON"]
    outside = subprocess.run([sys.executable, "-c", "import job; job.checkpoint('/absent')"], cwd=folder, capture_output=True,
                             text=True, check=False)
    assert "FileNotFoundError" in outside.stderr


def test_all_that_a_program_holds_is_there_after_a_restart(pool, base):
    """Sockets, terminals, shared memory, signals, timers, threads, OpenMP, removed files of the base: container/things.c."""
    folder = base.root / "opt" / "stdchk-test"
    lower = folder / "lower"
    (lower / "folder").mkdir(parents=True, exist_ok=True)
    for name in ("gone", "kept", "folder/old"):
        (lower / name).touch()
    shutil.copy(ROOT / "tests" / "integration" / "container" / "things.c", folder)
    run("chroot", base.root, "gcc", "-O2", "-fopenmp", "-pthread", "-Wall", "-Wextra", "-Werror", "-o",
        "/opt/stdchk-test/things", "/opt/stdchk-test/things.c")
    words = ("-n", 1, "--", "/opt/stdchk-test/things", "200")
    with job(pool, base, *words) as straight:
        assert straight.wait() == 0, f"{straight.out}\n{straight.err}"
    with job(pool, base, *words) as first:
        for mark in ("round 20", "round 40"):
            first.wait_for(mark)
            first.checkpoint()
        first.wait_for("round 60")
        assert "LOST" not in first.out, "a checkpoint changes nothing"
        first.kill()
        with job(pool, base, first.name, command="restart", name=first.name) as second:
            assert second.wait() == 0, f"{second.out}\n{second.err}"
    assert second.result() == straight.result() and "round 0" not in second.out
    assert (lower / "gone").exists() and (lower / "folder" / "old").exists(), "the base did not change"


@pytest.mark.skipif(not os.environ.get("STDCHK_TEST_CONTAINER"), reason="a part of scripts/check container")
@pytest.mark.parametrize("launcher", [
    "mpiexec.mpich", "mpiexec.openmpi --map-by node:OVERSUBSCRIBE --mca btl self,sm,tcp"])
def test_ranks_that_share_a_container_talk_by_shared_memory_and_are_restarted(pool, base, launcher):
    ring_of = "ring-mpich" if "mpich" in launcher else "ring-openmpi"
    words = ("-n", 2, "--nodes", 2, "--", *launcher.split(), "-n", "4", f"/opt/stdchk-test/{ring_of}", "150", "8")
    with job(pool, base, *words) as straight:
        assert straight.wait() == 0, straight.err
    with job(pool, base, *words) as first:
        first.wait_for("round 20")
        first.checkpoint()
        first.wait_for("round 40")
        first.kill()
        with job(pool, base, first.name, command="restart", name=first.name) as second:
            assert second.wait() == 0, second.err
    assert second.result() == straight.result() and "150 lines" in second.result()


def test_an_oci_bundle_is_a_base_file_system(pool, base, tmp_path):
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    (bundle / "rootfs").symlink_to(base.root)
    (bundle / "config.json").write_text(json.dumps({
        "ociVersion": "1.2.0", "root": {"path": "rootfs"}, "process": {"env": ["OF_THE_BUNDLE=seen"]}}))
    with job(pool, base, "-n", 1, "--root", bundle, "--", "sh", "-c", "echo $OF_THE_BUNDLE; cat /etc/debian_version") as one:
        assert one.wait() == 0, one.err
    assert one.lines["out"][0] == "seen" and one.lines["out"][1].startswith(("13", "trixie"))
    (bundle / "config.json").write_text('{"ociVersion": "1.2.0"}')
    with job(pool, base, "-n", 1, "--root", bundle, "--", "true") as one:
        assert one.wait() == 2 and "config.json" in one.err


def test_a_container_s_limits_hold_after_a_restart_too(pool, base):
    grab = "python3 -c 'len(bytearray(300 << 20))' 2>/dev/null; echo grabbed $?"
    words = ("sh", "-c", f"{grab}; /.stdchk/checkpoint; sleep 3; {grab}")
    groups = pathlib.Path("/sys/fs/cgroup")
    before = set(groups.glob("**/stdchk-*"))
    with job(pool, base, "-n", 1, "--nodes", 2, "--lease", 2, "--box-memory", "150M", "--box-cpu", 80, "--", *words) as one:
        one.wait_for("goes-on 1")
        made = set(groups.glob("**/stdchk-*")) - before
        assert made, "the containers are in groups"
        os.kill(one.nodes()[0], signal.SIGKILL)
        one.wait_for("runs again from set T1", "err")
        assert one.wait() == 0, one.err
    assert one.out.count("grabbed 137") == 2 and "grabbed 0" not in one.out
    wait_until(lambda: not any(path.exists() for path in made), "no group stays, also of the killed node")


def test_after_a_restart_a_program_s_next_request_is_a_new_checkpoint(pool, base):
    words = "for i in 1 2 3; do /.stdchk/checkpoint; sleep 1; done; touch /go; sleep 2; /.stdchk/checkpoint"
    with job(pool, base, "-n", 1, "--nodes", 2, "--lease", 2, "--", "sh", "-c", words) as one:
        one.wait_for("goes-on 3")
        os.kill(one.nodes()[0], signal.SIGKILL)
        one.wait_for("runs again from set T3", "err")
        assert one.wait() == 0, one.err
    assert one.out.splitlines()[-1] == "goes-on 4", one.out
    assert "set T4 is complete" in one.err


def test_sets_come_at_intervals_and_the_pool_keeps_the_newest_two(pool, base):
    with job(pool, base, "-n", 3, "--every", "1", *ring("mpich", "300", "4")) as one:
        one.wait_for("set T4 is complete", "err", 90)
        wait_until(lambda: len(pool.sets(one.name)) <= 3, "older sets go")
        assert one.wait() == 0, one.err
    newest = [each for each in pool.sets(one.name) if each["latest"]]
    assert len(newest) == 1 and newest[0]["complete"] and newest[0]["timestep"] >= 4


@pytest.mark.skipif(not os.environ.get("STDCHK_TEST_CONTAINER"), reason="a part of scripts/check container: it waits a minute")
def test_advise_saves_after_a_minute_and_then_as_the_cost_model_says(pool, base):
    words = ("sh", "-c", "sleep 75; echo RESULT")
    with job(pool, base, "-n", 1, "--advise", "--mtbf", "3600", "--", *words) as one:
        one.wait_for("--advise: a set costs", "err", 90)
        assert one.wait() == 0, one.err
    pause, after = re.search(r"a set costs (\d+) ms, so the next set begins after (\d+) s", one.err).groups()
    # Young's formula, and Daly's correction of a few per cent.
    assert 0.8 < int(after) / (2 * int(pause) / 1e3 * 3600) ** 0.5 < 1.1


def test_a_preempted_job_goes_on_in_a_later_pool_from_the_drain_directory(base, tmp_path):
    drain = tmp_path / "pfs"
    first_pool = Pool(tmp_path, "--drain", drain)
    try:
        with job(first_pool, base, "-n", 3, *ring("mpich", "200", "4")) as first:
            first.wait_for("round 40")
            first.signal(signal.SIGTERM)
            assert first.wait() == 128 + signal.SIGTERM
            assert "saved, and ended by SIGTERM" in first.err
        run(BIN / "stdchk", "down", "--drain", first_pool.mount)
    finally:
        first_pool.down()
    second_pool = Pool(tmp_path, "--drain", drain, name="later")
    try:
        with job(second_pool, base, "--restart", second_pool.mount / first.name, name=first.name) as second:
            assert second.wait() == 0, second.err
        assert "round 40" not in second.out and "200 lines" in second.result()
    finally:
        second_pool.down()


class OwnPool:
    """The pool of `run --up`, which the job brings up."""

    def __init__(self, folder, *options):
        self.prefix, self.mount, self.state = (), folder / "own", folder / "own-state"
        self.words = ["--benefactors", 2, "--memory", "512M", "--mount", self.mount, "--state", self.state, *options]
        self.up = "--up=" + " ".join(str(word) for word in self.words)

    def is_up(self):
        return (self.state / "pool.json").exists() or self.mount.is_mount()

    def members(self, role):
        record = json.loads((self.state / "pool.json").read_text(encoding="utf-8"))
        return [member["pid"] for member in record["members"] if member["role"] == role]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        run(BIN / "stdchk", "down", "--pool", self.state, check=False)


def wrapped(folder, lines):
    """An environment in which `stdchk run` calls a `stdchk` that first runs these lines of shell."""
    folder.mkdir()
    program = folder / "stdchk"
    program.write_text(f'#!/bin/sh\nexport STDCHK_BIN={BIN}\n{lines}\nexec {BIN}/stdchk "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return {"STDCHK_BIN": str(folder)}


@pytest.mark.parametrize("drains", [True, False])
def test_one_command_brings_the_pool_up_and_takes_it_down(pool, base, tmp_path, drains):
    drain = ["--drain", tmp_path / "pfs"] if drains else []
    foreign = {"STDCHK_POOL": str(pool.state)}
    with (OwnPool(tmp_path, *drain) as own,
          job(own, base, own.up, "-n", 3, *ring("mpich", "200", "4"), environment=foreign) as first):
        first.wait_for("round 40")
        assert own.is_up()
        first.signal(signal.SIGTERM)
        assert first.wait() == 128 + signal.SIGTERM, first.err
        assert "saved, and ended by SIGTERM" in first.err
        assert own.is_up() != drains, "a pool without a drain directory has the only copy of the set"
        with job(own, base, first.name, command="restart", name=first.name, environment=foreign) as second:
            assert second.wait() == 0, second.err
        assert "round 40" not in second.out and "200 lines" in second.result()
        assert not own.is_up()
        assert pool.mount.is_mount(), "the pool that STDCHK_POOL names is not the job's"
        assert all(line.startswith(("round ", "RESULT ")) for line in first.lines["out"] + second.lines["out"])


def test_a_pool_of_a_job_without_a_set_is_taken_down_and_one_that_cannot_start_is_named(base, tmp_path):
    with OwnPool(tmp_path) as own:
        with job(own, base, own.up, "-n", 1, "--", "sh", "-c", "exit 7") as one:
            assert one.wait() == 7, one.err
        assert not own.is_up()
        with job(own, base, own.up + " --policy keep=many", "-n", 1, "--", "true") as one:
            assert one.wait() == 2
        assert "--up: the pool was not started: --policy" in one.err and not own.is_up()


def test_options_that_do_not_suit_a_pool_of_the_job_s_own_are_refused(pool, base, tmp_path):
    with OwnPool(tmp_path) as own, job(own, base, own.up, "-n", 1, "--", "sleep", "100") as one:
        one.checkpoint()
        one.kill()
        for words, says in ((("run", "--pool", pool.state, own.up, "--", "true"), "--up and --pool exclude each other"),
                            (("run", own.up + " --export", "--", "true"), "--export does not suit"),
                            (("restart", one.name, "--pool", pool.state), "takes no --pool")):
            done = run(BIN / "stdchk", *words, env=one.environment, check=False)
            assert done.returncode == 2 and says in done.stderr, done.stderr
        assert own.is_up() and pool.mount.is_mount()


def test_a_restart_does_not_take_a_later_pool_at_the_same_place(base, tmp_path):
    with OwnPool(tmp_path) as own, job(own, base, own.up, "-n", 1, "--", "sleep", "100") as first:
        first.checkpoint()
        first.signal(signal.SIGTERM)
        assert first.wait() == 128 + signal.SIGTERM, first.err
        assert "stays up, because it may have the only copy" in first.err
        run(BIN / "stdchk", "down", "--pool", own.state)
        run(BIN / "stdchk", "up", *own.words)
        with job(own, base, first.name, command="restart", name=first.name) as second:
            assert second.wait() == 2
        assert "--up: the pool was not started" in second.err
        assert own.is_up(), "another user's work may be in that pool"


def test_a_pool_with_a_dead_mount_is_neither_taken_down_nor_taken_over(base, tmp_path):
    with OwnPool(tmp_path) as own, job(own, base, own.up, "-n", 1, "--", "sleep", "100") as first:
        first.checkpoint()
        benefactors = own.members("benefactor")
        os.kill(own.members("mount")[0], signal.SIGKILL)
        first.signal(signal.SIGINT)
        assert first.wait() == 128 + signal.SIGINT, first.err
        assert "stays up, because it may have the only copy" in first.err
        with job(own, base, first.name, command="restart", name=first.name) as second:
            assert second.wait() == 2
        assert "is up and has lost its mount" in second.err
        assert all(is_running(pid) for pid in benefactors)


END_SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]


@pytest.mark.parametrize("number", END_SIGNALS)
def test_a_signal_while_the_pool_comes_up_takes_it_down_again(base, tmp_path, number):
    begun = tmp_path / "begun"
    slow = wrapped(tmp_path / "slow", f'[ "$1" != up ] || {{ touch {begun}; sleep 2; }}')
    with OwnPool(tmp_path) as own, job(own, base, own.up, "-n", 1, "--", "true", environment=slow) as one:
        wait_until(begun.exists, "the pool comes up")
        one.signal(number)
        assert one.wait() == 128 + number, one.err
        assert not own.is_up()
        assert one.status() is None, "the job has not begun"


def test_a_lost_terminal_saves_the_job_and_takes_its_drained_pool_down(base, tmp_path):
    """The terminal is gone: the kernel sends SIGHUP, and each output fails."""
    name, drain = f"t{uuid.uuid4().hex[:8]}", tmp_path / "pfs"
    environment = {**os.environ, "STDCHK_BIN": str(BIN), "STDCHK_CRIU": str(base.criu), "STDCHK_ROOT": str(base.root)}
    terminal, inside = pty.openpty()
    with OwnPool(tmp_path, "--drain", drain) as own:
        words = [*HANGS_UP, BIN / "stdchk", "run", "--name", name, "--every", "never", own.up, "-n", "1", "--", "sleep", "100"]
        process = subprocess.Popen(words, stdin=inside, stdout=inside, stderr=inside, env=environment, start_new_session=True,
                                   preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(inside)
        try:
            wait_until(lambda: run(BIN / "stdchk", "checkpoint", name, env=environment, check=False).returncode == 0,
                       "the first set", 60)
            os.close(terminal)
            assert process.wait(CALL_SECONDS) == 128 + signal.SIGHUP
        finally:
            process.kill()
        assert not own.is_up()
        assert os.readlink(drain / name / "latest") == f"{name}.*.T2", "the job was saved once more, and the set was drained"
    run(BIN / "stdchk", "jobs", "--forget", name, env=environment)


@pytest.mark.parametrize("number", END_SIGNALS)
def test_a_signal_limits_the_drain_of_the_job_s_pool(base, tmp_path, number):
    begun = tmp_path / "begun"
    # The drain without a limit of time does not end.
    slow = wrapped(tmp_path / "slow", f'case "$*" in *--timeout*) ;; down*) touch {begun}; exec sleep 1000 ;; esac')
    with (OwnPool(tmp_path, "--drain", tmp_path / "pfs") as own,
          job(own, base, own.up, "-n", 1, "--", "true", environment=slow) as one):
        wait_until(begun.exists, "the drain", 40)
        one.signal(number)
        assert one.wait() == 0, one.err
        assert "s more" in one.err and "is lost with it" not in one.err
        assert not own.is_up()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_drain_and_takes_the_pool_down(base, tmp_path, number):
    begun, limited = tmp_path / "begun", tmp_path / "limited"
    # No drain ends. The command without --drain takes the pool down.
    slow = wrapped(tmp_path / "slow", f"""if [ "$1" = down ]; then case "$*" in
        *--timeout*) touch {limited}; exec sleep 1000 ;;
        *--drain*) touch {begun}; exec sleep 1000 ;;
        esac; fi""")
    with (OwnPool(tmp_path, "--drain", tmp_path / "pfs") as own,
          job(own, base, own.up, "-n", 1, "--", "true", environment=slow) as one):
        wait_until(begun.exists, "the drain", 40)
        one.signal(number)
        wait_until(limited.exists, "the limited drain")
        for _ in range(2):
            one.signal(signal.SIGHUP)
            time.sleep(0.5)
        assert one.process.poll() is None, "a lost terminal does not hurry a limited drain"
        one.signal(number)
        assert one.wait() == 2, "not all was drained"
        assert "what it has not drained is lost with it" in one.err
        assert not own.is_up()


def test_ctrl_c_while_a_pool_goes_down_leaves_no_half_of_it(base, tmp_path):
    begun = tmp_path / "begun"
    slow = wrapped(tmp_path / "slow", f'[ "$1" != down ] || {{ touch {begun}; sleep 2; }}')
    with OwnPool(tmp_path) as own, job(own, base, own.up, "-n", 1, "--", "true", environment=slow) as one:
        wait_until(begun.exists, "the end of the pool", 40)
        for number in END_SIGNALS:
            one.signal(number)
        assert one.wait() == 0, one.err
        assert not own.is_up()


def test_a_failed_drain_of_the_job_s_pool_is_the_command_s_failure(base, tmp_path):
    broken = wrapped(tmp_path / "broken", '[ "$1" != down ] || { echo "stdchk: no drain" >&2; exit 2; }')
    with (OwnPool(tmp_path, "--drain", tmp_path / "pfs") as own,
          job(own, base, own.up, "-n", 1, "--", "true", environment=broken) as one):
        assert one.wait() == 2
        assert "no drain" in one.err and "was not taken down" in one.err
        assert own.is_up()
        assert one.status()["state"] == "not running", "the record stays, as the sets do"


def test_a_job_that_may_not_be_restarted_ends_with_its_node(pool, base):
    with job(pool, base, "-n", 1, "--nodes", 2, "--retries", 0, "--", "sleep", "100") as one:
        one.checkpoint()
        os.kill(one.nodes()[1], signal.SIGKILL)
        assert one.wait() == 2
    assert "was restarted 0 times" in one.err


def test_a_crashed_program_ends_the_job_with_its_status(pool, base):
    with job(pool, base, "-n", 1, "--", "sh", "-c", "kill -SEGV $$") as one:
        assert one.wait() == 128 + signal.SIGSEGV
        assert one.status()["state"] == "not running", "an older set may be wanted"


def test_the_program_s_own_status_is_that_of_the_command(pool, base):
    with job(pool, base, "-n", 1, "--", "sh", "-c", "echo said; echo wrong >&2; exit 7") as one:
        assert one.wait() == 7
        assert one.lines["out"] == ["said"]
        assert "wrong" in one.lines["err"]


def test_what_a_program_puts_among_its_commands_stops_neither_the_node_nor_the_job(pool, base):
    program = """
        cd /.stdchk/asks && mkfifo 1-fifo && ln -s /etc/shadow 2-link && truncate -s 1T 3-long && mkdir 4-folder
        i=0; while [ $i -lt 300 ]; do echo "nowhere true" >many-$i; i=$((i + 1)); done
        echo placed; sleep 3; echo still there; exit 7"""
    with job(pool, base, "-n", 1, "--", "sh", "-c", program) as one:
        assert one.wait() == 7, one.err
        assert one.lines["out"] == ["placed", "still there"]
