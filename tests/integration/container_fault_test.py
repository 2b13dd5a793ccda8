"""Injects faults into jobs in containers, at a named step of a checkpoint or a restart. Each job must end with the result
of an undisturbed run. The newest set in the pool must be complete at any time.

Every step runs a program of the system (ss, nft, criu, tar). PATH finds scripts of these names first. If a test has
written a plan for a step, the first script that reaches the step reports it. The script waits until the test has injected
the fault.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import uuid

import file_systems
import pytest
from boxes import Base, Job, Pool, why_not
from processes import BIN, CALL_SECONDS, children_of, is_running, run, wait_until

REASON = why_not()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))
ALL = bool(os.environ.get("STDCHK_TEST_CONTAINER"))  # scripts/check container: every row of the table

HOOK = """#!/bin/sh
# Which step is this?
step=
case $(basename "$0") in
  ss) step=settle ;;
  nft) input=$(cat); case $input in *"policy drop"*) step=lock ;; *) step=open ;; esac ;;
  criu) case $1 in dump) step=save ;; restore) step=load ;; esac ;;
  tar) case "$*" in *--create*--blocking-factor*) step=store ;; esac ;;
esac
if [ -n "$step" ] && mv %DIR%/plan-$step %DIR%/taken-$step 2>/dev/null; then
  case $(cat %DIR%/taken-$step) in
    fail) echo "broken by a test" >&2; exit 1 ;;
    hang) exec sleep 1000 ;;
  esac
  touch %DIR%/reached
  for i in $(seq 1200); do [ -e %DIR%/go ] && break; sleep 0.05; done
fi
real=%REAL%
if [ "$(basename "$0")" = nft ]; then printf '%s\\n' "$input" | "$real" "$@"; else exec "$real" "$@"; fi
"""


class Hooks:
    """The folder of the scripts. `expect` writes a plan for a step. `strike` waits for the step and injects the fault."""

    def __init__(self, folder, base):
        self.folder = folder / "hooks"
        self.folder.mkdir()
        for name in ("ss", "nft", "criu", "tar"):
            real = base.criu if name == "criu" else shutil.which(name)
            script = self.folder / name
            script.write_text(HOOK.replace("%DIR%", str(self.folder)).replace("%REAL%", str(real)))
            script.chmod(0o755)
        self.environment = {"PATH": f"{self.folder}:{os.environ['PATH']}", "STDCHK_CRIU": str(self.folder / "criu")}

    def expect(self, step, what="wait"):
        plan = self.folder / f".plan-{step}"
        plan.write_text(what)
        plan.rename(self.folder / f"plan-{step}")

    def reached(self):
        wait_until((self.folder / "reached").exists, "the step", 30)

    def go_on(self):
        (self.folder / "go").touch()

    def taken(self, step):
        return (self.folder / f"taken-{step}").exists()


class Scene:
    """A job with one complete set, on two nodes and a spare node. A test disturbs its next set or restart."""

    def __init__(self, folder, base, rounds=160):
        self.base = base
        self.pool = Pool(folder)
        self.hooks = Hooks(folder, base)
        self.job = Job(self.pool, base, f"t{uuid.uuid4().hex[:8]}", "-n", 3, "--nodes", 3, "--spares", 1, "--lease", 2,
                       "--", "mpiexec.mpich", "-n", "3", "/opt/stdchk-test/ring-mpich", str(rounds), "4",
                       environment=self.hooks.environment)

    def begin(self):
        self.job.wait_for("round 20")
        self.job.checkpoint()

    def daemon(self, number):
        """Process 1 of a node, which has its containers as children."""
        return next(pid for pid in children_of(self.job.nodes()[number])
                    if len(re.search(r"NSpid:(.*)", pathlib.Path(f"/proc/{pid}/status").read_text())[1].split()) == 2)

    def want_checkpoint(self):
        run(BIN / "stdchk", "checkpoint", "--timeout", "1", self.job.name, env=self.job.environment, check=False)

    def restart(self):
        """Restarts the job by the command `restart`, after its coordinator was killed."""
        self.job.process.wait(10)
        wait_until(lambda: not any(is_running(pid) for pid in self.orphans), "the nodes end with their lease")
        self.job = Job(self.pool, self.base, self.job.name, self.job.name, command="restart",
                       environment=self.hooks.environment)

    def kill_node(self):
        os.kill(self.job.nodes()[1], signal.SIGKILL)
        self.hooks.go_on()

    def stop_node(self, number=1):
        """Stops a node for longer than its lease. When the node wakes up, its containers must end."""
        pid = self.daemon(number)
        os.kill(pid, signal.SIGSTOP)
        self.hooks.go_on()
        self.job.wait_for("runs again from set", "err", 60)
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: not is_running(pid), "the node ends itself when it wakes up")

    def kill_coordinator(self):
        self.orphans = [self.daemon(number) for number in range(3)]
        self.job.process.kill()
        self.hooks.go_on()
        self.restart()

    def stop_coordinator(self, nodes=None):
        """Stops the coordinator for longer than the lease of the nodes. No node is left when it runs again, so the job ends."""
        self.orphans = nodes or [self.daemon(number) for number in range(3)]
        os.kill(self.job.process.pid, signal.SIGSTOP)
        self.hooks.go_on()
        wait_until(lambda: not any(is_running(pid) for pid in self.orphans), "the nodes end with their lease")
        os.kill(self.job.process.pid, signal.SIGCONT)
        assert self.job.wait() == 2 and "no node is left" in self.job.err, self.job.err
        self.restart()

    def kill_manager(self):
        manager = int(run("pgrep", "-f", f"stdchk-manager.*{self.pool.state}").stdout.split()[0])
        os.kill(manager, signal.SIGKILL)
        self.hooks.go_on()
        self.recovers = True

    recovers = False

    def end(self):
        self.job.end()
        self.pool.down()


@pytest.fixture(scope="module")
def base():
    return Base()


@pytest.fixture(scope="module")
def straight(base, tmp_path_factory):
    """The result of an undisturbed run."""
    pool = Pool(tmp_path_factory.mktemp("straight"))
    job = Job(pool, base, f"t{uuid.uuid4().hex[:8]}", "-n", 3, "--", "mpiexec.mpich", "-n", "3",
              "/opt/stdchk-test/ring-mpich", "160", "4")
    try:
        assert job.wait() == 0, job.err
        return job.result()
    finally:
        job.end()
        pool.down()


@pytest.fixture
def scene(tmp_path, base, straight):
    made = Scene(tmp_path, base)
    try:
        made.begin()
        yield made
    finally:
        made.end()


def check_end(scene, straight):
    job = scene.job
    assert job.wait(2 * CALL_SECONDS) == 0, f"{job.out}\n{job.err}"
    assert job.result() == straight
    if scene.recovers:
        run(BIN / "stdchk", "recover", "--pool", scene.pool.state)
    sets = scene.pool.sets(job.name)
    latest = [each for each in sets if each["latest"]]
    assert len(latest) == 1 and latest[0]["complete"] and latest[0]["images"] == 5, sets
    assert latest[0]["timestep"] == max(each["timestep"] for each in sets if each["complete"])
    return latest[0]["timestep"]


# step, what happens there, rows of the short test
TABLE = [
    ("settle", "fail", False), ("lock", "fail", False), ("lock", "hang", False), ("save", "fail", True),
    ("open", "fail", False), ("store", "fail", True),
    ("settle", "kill_node", False), ("lock", "kill_node", False), ("save", "kill_node", True),
    ("open", "kill_node", False), ("store", "kill_node", False),
    ("lock", "stop_node", False), ("save", "stop_node", True), ("store", "stop_node", False),
    ("lock", "kill_coordinator", False), ("save", "kill_coordinator", True), ("open", "kill_coordinator", False),
    ("store", "kill_coordinator", False), ("save", "stop_coordinator", False), ("store", "kill_manager", False),
    ("save", "kill_manager", False),
    ("settle", "stop_node", False), ("open", "stop_node", False), ("settle", "kill_coordinator", False),
    ("lock", "stop_coordinator", False), ("open", "stop_coordinator", False), ("store", "stop_coordinator", False),
    ("settle", "kill_manager", False), ("lock", "kill_manager", False), ("open", "kill_manager", False),
    ("settle", "stop_coordinator", False),
]


@pytest.mark.parametrize("step,what", [row[:2] for row in TABLE if row[2] or ALL])
def test_a_fault_in_a_step_of_a_checkpoint(scene, straight, step, what):
    does = what in ("fail", "hang")
    scene.hooks.expect(step, what if does else "wait")
    scene.want_checkpoint()
    if not does:
        scene.hooks.reached()
        getattr(scene, what)()
    newest = check_end(scene, straight)
    assert scene.hooks.taken(step), "the step was never reached"
    if does and step != "open":
        assert not re.search(r"\bnot\b", scene.job.err.split("is cancelled")[0])
        assert newest == 1 and "restarts" not in scene.job.err, "the checkpoint is cancelled, the old set stands"
    assert newest >= 1


@pytest.mark.parametrize("step,what,short", [
    ("load", "fail", False), ("load", "kill_node", True), ("load", "kill_coordinator", False), ("load", "kill_manager", False),
    ("load", "stop_node", False), ("open", "fail", False), ("open", "kill_node", False), ("open", "stop_node", False),
    ("open", "kill_coordinator", False), ("open", "kill_manager", False), ("load", "stop_coordinator", False),
    ("open", "stop_coordinator", False)])
def test_a_fault_in_a_step_of_a_restart(scene, straight, step, what, short):
    if not short and not ALL:
        pytest.skip("a row of scripts/check container")
    does = what == "fail"
    scene.hooks.expect(step, what if does else "wait")
    os.kill(scene.job.nodes()[0], signal.SIGKILL)
    if not does:
        scene.hooks.reached()
        # Killed daemons stay in the list: the last one is the spare node, which loads containers now.
        if what == "kill_node":
            os.kill(scene.job.nodes()[-1], signal.SIGKILL)
            scene.hooks.go_on()
        elif what == "stop_node":
            scene.stop_node(-1)
        elif what == "kill_manager":
            scene.kill_manager()
            run(BIN / "stdchk", "recover", "--pool", scene.pool.state)
            scene.recovers = False
        elif what == "stop_coordinator":
            scene.stop_coordinator(scene.job.nodes())
        else:
            scene.orphans = scene.job.nodes()
            scene.job.process.kill()
            scene.hooks.go_on()
            scene.restart()
    check_end(scene, straight)
    assert scene.hooks.taken(step), "the step was never reached"


def test_an_evacuation_waits_for_the_set_that_is_under_way(tmp_path, base):
    scene = Scene(tmp_path, base, rounds=1500)
    try:
        scene.begin()
        scene.hooks.expect("store")
        scene.want_checkpoint()
        scene.hooks.reached()
        moves = subprocess.Popen([BIN / "stdchk", "evacuate", "--job", scene.job.name, "node1"], env=scene.job.environment,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        with pytest.raises(subprocess.TimeoutExpired):
            moves.wait(1)
        scene.hooks.go_on()
        said, _ = moves.communicate(timeout=CALL_SECONDS)
        assert moves.returncode == 0 and "no container is left on node1" in said, said
        assert next(node["boxes"] for node in scene.job.status()["nodes"] if node["host"] == "node1") == []
        assert scene.job.wait(2 * CALL_SECONDS) == 0, scene.job.err
        assert "1500 lines" in scene.job.result() and "is cancelled" not in scene.job.err
        newest = next(each for each in scene.pool.sets(scene.job.name) if each["latest"])
        assert newest["timestep"] == 3, "the first set, the one that was stored, and that of the evacuation"
    finally:
        scene.end()


def test_a_pause_of_the_whole_host_costs_no_node(scene, straight):
    """The host stands still for longer than a node may be silent. The coordinator runs again before the nodes do."""
    nodes = [scene.daemon(number) for number in range(3)]
    for pid in [scene.job.process.pid, *nodes]:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(1.2)
    os.kill(scene.job.process.pid, signal.SIGCONT)
    scene.job.wait_for("this process did not run for", "err", 5)
    time.sleep(0.1)
    for pid in nodes:
        os.kill(pid, signal.SIGCONT)
    check_end(scene, straight)
    assert "is lost" not in scene.job.err, scene.job.err


@pytest.mark.skipif(not ALL, reason="a part of scripts/check container: writers wait half a minute for room")
def test_a_full_pool_costs_the_checkpoint_and_not_the_job(tmp_path, base):
    pool = Pool(tmp_path, "--memory", "64M")
    job = Job(pool, base, f"t{uuid.uuid4().hex[:8]}", "-n", 3, "--", "mpiexec.mpich", "-n", "3",
              "/opt/stdchk-test/ring-mpich", "3000", "60")
    try:
        job.wait_for("round 20")
        done = run(BIN / "stdchk", "checkpoint", job.name, env=job.environment, check=False)
        assert done.returncode == 2 and "space" in done.stderr, done.stderr
        assert job.wait(2 * CALL_SECONDS) == 0, job.err
        assert [each for each in pool.sets(job.name) if each["complete"] or each["latest"]] == []
    finally:
        job.end()
        pool.down()


@pytest.mark.skipif(not ALL, reason="a part of scripts/check container")
def test_a_full_drain_directory_costs_nothing_of_the_job_and_gets_no_half_set(tmp_path, base):
    with file_systems.tmpfs(tmp_path, "24m") as point:
        drain = point / "drain"
        drain.mkdir()
        pool = Pool(tmp_path, "--drain", drain)
        job = Job(pool, base, f"t{uuid.uuid4().hex[:8]}", "-n", 3, "--", "mpiexec.mpich", "-n", "3",
                  "/opt/stdchk-test/ring-mpich", "400", "16")
        try:
            for turn in (1, 2):
                job.wait_for(f"round {20 * turn}")
                assert job.checkpoint() == f"{job.name}.*.T{turn}"

            def failed():
                told = run(BIN / "stdchk", "status", "--json", "--pool", pool.state).stdout
                return json.loads(told)["pool"]["drain_failed_files"]
            job.kill()
            wait_until(lambda: failed() > 0, "the drain's failure in the status", 40)
            again = Job(pool, base, job.name, job.name, command="restart")
            try:
                assert again.wait(2 * CALL_SECONDS) == 0, again.err
                assert "runs again from set T2" in again.err and "400 lines" in again.result()
            finally:
                again.end()
            newest = next(each for each in pool.sets(job.name) if each["latest"])
            assert newest["complete"] and newest["images"] == 5 and newest["drained"] < 5
            assert not os.path.lexists(drain / job.name / "latest"), "no set is whole there"
        finally:
            job.end()
            pool.down()
