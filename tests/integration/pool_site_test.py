"""Tests pools that a site starts before a job, and drains and ends after the job, however the job ends."""

import concurrent.futures
import contextlib
import os
import re
import shutil
import sys
import time

import pytest
from clusters import FIGURES, Cluster, Pbs, cluster, needed, needs_freezer, nothing_left
from file_systems import TROUBLED
from processes import BIN, PATIENCE, ROOT, run, wait_until

pytestmark = needed
NOBODY = 65534
SLOW = "drain-rate=1M"  # what is written takes seconds to be drained


@pytest.fixture(autouse=True)
def fresh(cluster):
    for path in cluster.folder.glob("*.out"):
        path.unlink()
    run("rm", "-rf", cluster.pfs)
    cluster.pfs.mkdir()
    cluster.settings.write_text("")
    cluster.as_user = []


def told(cluster, job):
    path = cluster.folder / f"stdchk-{job}.out"
    return path.read_text() if path.exists() else ""


def is_over(cluster, job):
    """True when all epilogs have ended. A controller that does not answer in time leaves the state unknown: False."""
    asked = cluster.call("run", "squeue", "--noheader", "--jobs", job, check=False)
    return not asked.stdout.strip() and (asked.returncode == 0 or "Invalid job id" in asked.stderr)


def wait_over(cluster, job, seconds=60):
    wait_until(lambda: is_over(cluster, job), f"the epilogs of job {job}", seconds)


def write(name, mib):
    return f"head -c {mib}M /dev/urandom >${{STDCHK_MOUNT:?}}/{name}"


def drained(cluster):
    """Returns the names of drained files with content. A shell's redirection first makes an empty file, which may be drained."""
    return sorted(path.name for path in cluster.pfs.iterdir()
                  if path.is_file() and path.stat().st_size > 0 and not path.name.startswith("."))


def test_a_pool_asked_for_in_the_comment_is_there_and_is_drained_after_the_job(cluster):
    job = cluster.submit(
        "--nodes=3", "--comment", f"for me stdchk=nodes=2,mem=64M,drain=pfs,images=3,{SLOW}", script=f"""
        stdchk status --json $STDCHK_MOUNT
        srun --ntasks-per-node=1 bash -c '{write('app.N$SLURM_PROCID.T1', 3)}'
        sha256sum $STDCHK_MOUNT/app.N*.T1 | sed 's|/.*/||'
        until readlink $STDCHK_MOUNT/latest; do sleep 0.1; done; ls {cluster.pfs}""")
    cluster.wait(job)
    wait_over(cluster, job)
    text = cluster.output()
    assert text.count('"state": "alive"') == 2
    assert "app.*.T1" in text
    sums = re.findall(r"^(\w{64}) +(app\S+)", text, re.MULTILINE)
    assert len(sums) == 3
    for digest, name in sums:
        assert run("sha256sum", cluster.pfs / name).stdout.startswith(digest)
    # On a busy machine the drain may end before the job does.
    assert re.search(r"n1: all is drained, \d+ s after the job", told(cluster, job))
    assert "Report card of the pool at /tmp/stdchk-" in told(cluster, job)
    assert "  images      3\n  written     9.0 MiB\n" in told(cluster, job)
    assert "  drained     3 images, 9.0 MiB\n" in told(cluster, job)
    nothing_left(cluster, cluster.nodes)
    assert not list(cluster.folder.glob(".stdchk-*"))


def test_a_user_without_rights_asks_by_an_option_of_sbatch(cluster):
    """The user asks by the option of the SPANK plug-in."""
    cluster.as_user = ["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]
    folder = cluster.folder / "home"
    folder.mkdir()
    os.chown(folder, NOBODY, NOBODY)
    refused = cluster.call("run", *cluster.as_user, "sbatch", "--stdchk=mem=64M;reboot", "--wrap", "true",
                           check=False)
    assert refused.returncode != 0 and "is not valid" in refused.stderr
    (folder / "figures").write_text(FIGURES)
    cluster.settings.write_text("STDCHK_METRICS=0\n")
    job = cluster.submit(
        "--nodes=2", "--nodelist=n1,n2", "--ntasks-per-node=1", "--output", folder / "job.out", "--chdir", folder,
        "--stdchk=nodes=1,mem=64M,drain=kept,mount=/tmp/mine", script=f"""
        {write('one', 2)}; stat -c %u $STDCHK_MOUNT/one; echo $STDCHK_MOUNT
        srun bash {folder}/figures $STDCHK_MOUNT | sort""")
    cluster.wait(job)
    wait_over(cluster, job)
    assert (folder / "job.out").read_text().splitlines() == [
        str(NOBODY), "/tmp/mine", *(f"n1 shows stdchk-{role}" for role in ("manager", "mount")),
        *(f"n2 shows stdchk-{role}" for role in ("benefactor", "mount"))]
    assert (folder / "kept" / "one").stat().st_size == 2 << 20
    assert (folder / "kept" / "one").stat().st_uid == NOBODY
    nothing_left(cluster, cluster.nodes)
    run("rm", "-rf", folder)


def test_ranks_on_several_nodes_restart_together(cluster):
    """Ranks restart from memory, one on each node. All of them wait for the rank that comes late."""
    job = cluster.submit(
        "--nodes=3", "--comment", "stdchk=nodes=1,mem=64M,images=3", script=f"""
        srun --ntasks-per-node=1 bash -c '{write('app.N$SLURM_PROCID.T1', 2)}'
        echo late $(date -d '+2 sec' +%s)
        srun --ntasks-per-node=1 bash -c '[ $SLURM_PROCID != 1 ] || sleep 2
            exec stdchk restart $STDCHK_MOUNT -- sh -c "echo on \\$(date +%s) \\$STDCHK_RESTART_SET"'
        stdchk restart --job --to /tmp $STDCHK_MOUNT && echo all have theirs
        two=$(scontrol show hostnames | sed -n '1p;3p' | paste -sd,)
        stdchk restart --hosts $two --to /tmp $STDCHK_MOUNT -- sh -c 'echo two have $STDCHK_RESTART_SET'
        srun --ntasks-per-node=1 bash -c 'cmp /tmp/app.N$SLURM_PROCID.T1 $STDCHK_MOUNT/app.N$SLURM_PROCID.T1 &&
            rm /tmp/app.N* && echo equal'
        """)
    cluster.wait(job)
    wait_over(cluster, job)
    text = cluster.output()
    late = int(re.search(r"late (\d+)", text).group(1))
    on = re.findall(r"on (\d+) app\.\*\.T1", text)
    assert len(on) == 3 and all(int(when) >= late for when in on), text
    assert "all have theirs" in text and text.count("equal") == 3
    assert "3 ranks on 3 nodes" in text and "2 ranks on 2 nodes" in text and "two have app.*.T1" in text
    nothing_left(cluster, cluster.nodes)


def test_a_cancelled_job_is_drained_too(cluster):
    job = cluster.submit("--nodes=2", "--comment", f"stdchk=mem=64M,drain=pfs,{SLOW}", script=f"""
        {write('one', 4)}; echo is written; sleep 100""")
    wait_until(lambda: "is written" in cluster.output(), "the file", 60)
    cluster.call("run", "scancel", job)
    wait_over(cluster, job)
    assert cluster.state(job) == "CANCELLED"
    assert drained(cluster) == ["one"]
    nothing_left(cluster, cluster.nodes)


def test_what_is_not_drained_in_time_is_named_and_nothing_stays(cluster):
    cluster.settings.write_text("STDCHK_DRAIN_SECONDS=3\n")
    job = cluster.submit("--nodes=2", "--comment", f"stdchk=nodes=1,mem=64M,drain=pfs,{SLOW}", script=f"""
        {write('small', 1)}; stdchk drain --wait $STDCHK_MOUNT/small
        {write('large', 60)}; date +%s""")
    cluster.wait(job)
    wait_over(cluster, job)
    # The epilog has ended as it was told to, on a busy machine, too: the rest would have taken a minute.
    assert time.time() - int(cluster.output().split()[-1]) < 45
    waited = re.search(r"not all is drained after (\d+) s", told(cluster, job))
    assert 3 <= int(waited.group(1)) <= 15
    assert re.search(r"1 files are lost: large \(", told(cluster, job))
    assert drained(cluster) == ["small"]
    nothing_left(cluster, cluster.nodes)


def test_a_job_whose_pool_cannot_start_runs_without_it_and_is_told(cluster):
    for options, why in (("mem=900T", "available"), ("mem=64M,nodes=3", "nodes=3, and the job has 2"),
                         ("mem=64M,colour=red", 'no option is called "colour"'),
                         ("mem=64M,images=many", "images=many is not valid")):
        job = cluster.submit("--nodes=2", "--comment", f"stdchk={options}", script="echo mount $STDCHK_MOUNT.")
        cluster.wait(job)
        wait_over(cluster, job)
        assert why in told(cluster, job)
        assert "mount ." in cluster.output() and "has no pool" in cluster.output()
    nothing_left(cluster, cluster.nodes)

    def idle():  # a line for nodes that are also "not responding" at the moment
        return cluster.call("run", "sinfo", "--noheader", "--states=idle", "--format=%D", check=False).stdout

    wait_until(lambda: sum(map(int, idle().split())) == 4, "nodes that no prolog has taken out of service")


def test_the_papers_own_form_of_a_pbs_job(cluster):
    """The script divides its nodes: a manager, a benefactor, and two nodes that write."""
    pbs = Pbs(cluster, cluster.nodes)
    program = cluster.folder / "program"
    program.write_text("#!/bin/sh\nmkdir -p $2; head -c 3M /dev/urandom >$2/app.N$OMPI_COMM_WORLD_RANK.T1 &&\n"
                       "echo $(hostname) >$2/host.$OMPI_COMM_WORLD_RANK\n")
    program.chmod(0o755)
    try:
        done = pbs.run(f"""
            export PBS_O_WORKDIR={cluster.folder} BENEFACTORS=1 MEMORY=128M STDCHK_BIN={BIN}
            {ROOT}/scripts/pbs/by-hand {program}""")
        assert done.returncode == 0, done.stdout + done.stderr
        folder = cluster.folder / "checkpoints" / "heat"
        sizes = [(folder / f"app.N{rank}.T1").stat().st_size for rank in range(4)]
        assert sizes == [3 << 20] * 4
        assert [(folder / f"host.{rank}").read_text() for rank in range(4)] == ["n3\n", "n3\n", "n4\n", "n4\n"]
        nothing_left(cluster, cluster.nodes)
        assert not list(cluster.folder.glob(".stdchk-*"))
    finally:
        pbs.end()
        run("rm", "-rf", cluster.folder / "checkpoints", pbs.folder)


@pytest.mark.parametrize("trouble", ["rm -r {drain}; : >{drain}", "pkill -KILL 'stdchk-(guard|mount)'"])
def test_the_papers_own_form_fails_with_its_drain(cluster, trouble):
    """Either a file replaces the drain directory, or the mount dies, so that the state of the drain is unknown."""
    pbs = Pbs(cluster, cluster.nodes)
    drain = cluster.folder / "checkpoints"
    program = cluster.folder / "program"
    program.write_text("#!/bin/sh\nmkdir -p $2; head -c 1M /dev/urandom >$2/app.N$OMPI_COMM_WORLD_RANK.T1 || exit 1\n"
                       f"[ $OMPI_COMM_WORLD_RANK != 0 ] || {{ {trouble.format(drain=drain)}; }}\n")
    program.chmod(0o755)
    try:
        done = pbs.run(f"""
            export PBS_O_WORKDIR={cluster.folder} BENEFACTORS=2 MEMORY=128M STDCHK_BIN={BIN} DRAIN_SECONDS=3
            {ROOT}/scripts/pbs/by-hand {program}""")
        assert done.returncode == 1 and "not all is drained" in done.stderr, done.stdout + done.stderr
        cluster.on("n4", "sh", "-c", "umount -l /tmp/pool.7.server; rmdir /tmp/pool.7.server", check=False)
        nothing_left(cluster, cluster.nodes)
    finally:
        pbs.end()
        run("rm", "-rf", drain, pbs.folder)


class PbsHooks:
    """Stands in for the parts of PBS that its hooks and scripts need: Python's module `pbs`, `qstat -f`, and a mom.

    The mom runs a prologue or an epilogue as root, with the arguments of OpenPBS or Torque and nearly no environment.
    """

    QSTAT = """#!/bin/bash
[[ $1 == -f && $2 == 7.server ]] || exit 153
printf 'Job Id: %s\\n    exec_host = n1/0*2+n3/0+n3/1\\n    run_count = 1\\n' "$2"
printf '    Variable_List = PBS_O_HOME=/root,STDCHK={options},PBS_O_WORKDIR=%s\\n' "${{0%%/hooks/qstat}}"
"""
    MODULE = """
import os, types
EXECJOB_BEGIN, EXECJOB_EPILOGUE, LOG_WARNING = 1, 2, 4
def event():
    kind = EXECJOB_BEGIN if os.environ["EVENT"] == "begin" else EXECJOB_EPILOGUE
    return types.SimpleNamespace(type=kind, accept=lambda: print("accepted"),
                                 job=types.SimpleNamespace(id="7.server", euser=os.environ.get("EUSER"), Exit_status=271))
def logmsg(level, text):
    print(text)
"""
    # Arguments behind job, user and group.
    MORE = {"OpenPBS prologue": [], "Torque prologue": ["name", "walltime=60", "batch", ""],
            "epilogue": ["name", "4711", "walltime=60", "cput=00:00:01", "batch", "", "271"]}

    def __init__(self, cluster):
        self.cluster, self.folder = cluster, cluster.folder / "hooks"
        self.folder.mkdir()
        self.ask_for("mem=64M:drain=pfs:image\\n\\ts=2:drain-rate=1M")
        (self.folder / "pbs.py").write_text(self.MODULE)

    def ask_for(self, options):
        (self.folder / "qstat").write_text(self.QSTAT.format(options=options))
        (self.folder / "qstat").chmod(0o755)

    def begin(self):
        for node in ("n1", "n3"):
            assert self.script(node, "prologue", "7.server", "root", "root") == 0

    def end(self, settings=(), status=271):
        """Runs the epilogues of both nodes at the same time. Returns their duration in seconds."""
        words = ["7.server", "root", "root", *self.MORE["epilogue"][:-1], status]
        began = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor() as nodes:
            ends = nodes.map(lambda node: self.script(node, "epilogue", *words, settings=settings), ("n1", "n3"))
            assert list(ends) == [0, 0]
        return time.monotonic() - began

    def run(self, node, event, hook=ROOT / "scripts/pbs/hook.py", user="root"):
        """Runs the hook and checks that it accepts the event. Returns the hook's other output."""
        whose = [f"EUSER={user}"] if user else []
        done = self.cluster.on(
            node, "env", "-i", f"PATH={self.folder}:{BIN}:/usr/bin:/bin", f"EVENT={event}", *whose,
            f"PYTHONPATH={self.folder}", f"STDCHK_BIN={BIN}", sys.executable, hook)
        assert done.stdout.endswith("accepted\n")
        return done.stdout.removesuffix("accepted\n")

    def script(self, node, name, *arguments, folder=ROOT / "scripts/pbs", settings=()):
        """Returns the exit status of a script. PBS lets a job run (0), deletes it (1), or requeues or holds it (others)."""
        return self.cluster.on(
            node, "env", "-i", f"PATH={self.folder}:/usr/bin:/bin", f"STDCHK_BIN={BIN}", *settings,
            folder / name, *arguments, check=False).returncode


def test_hooks_of_pbs_bring_a_pool_up_and_drain_it(cluster):
    hooks = PbsHooks(cluster)
    try:
        for node in ("n1", "n3"):  # the first node's event is over before the others'
            assert hooks.run(node, "begin") == ""
        cluster.on("n3", "sh", "-c", "head -c 2M /dev/urandom >/tmp/stdchk-0-jobs/7.server.mount/app.N0.T1")
        cluster.on("n1", "sh", "-c", "cp /tmp/stdchk-0-jobs/7.server.mount/app.N0.T1 /tmp/stdchk-0-jobs/7.server.mount/app.N1.T1")
        with concurrent.futures.ThreadPoolExecutor() as nodes:
            list(nodes.map(hooks.run, ("n1", "n3"), ("epilogue", "epilogue")))
        assert drained(cluster) == ["app.N0.T1", "app.N1.T1"]
        assert os.readlink(cluster.pfs / "latest") == "app.*.T1"
        assert "all is drained" in told(cluster, "7.server")
        nothing_left(cluster, ["n1", "n3"])
    finally:
        run("rm", "-rf", hooks.folder)


@pytest.mark.parametrize("kind", ["OpenPBS prologue", "Torque prologue"])
def test_the_scripts_of_pbs_take_the_arguments_of_its_moms(cluster, kind):
    hooks = PbsHooks(cluster)
    try:
        for node in ("n1", "n3"):
            assert hooks.script(node, "prologue", "7.server", "root", "root", *hooks.MORE[kind]) == 0
        cluster.on("n3", "sh", "-c", "head -c 1M /dev/urandom >/tmp/stdchk-0-jobs/7.server.mount/file")
        with concurrent.futures.ThreadPoolExecutor() as nodes:
            ends = nodes.map(lambda node: hooks.script(node, "epilogue", "7.server", "root", "root",
                                                       *hooks.MORE["epilogue"]), ("n1", "n3"))
            assert list(ends) == [0, 0]
        assert drained(cluster) == ["file"]
        nothing_left(cluster, ["n1", "n3"])
    finally:
        run("rm", "-rf", hooks.folder)


def test_whatever_fails_in_the_scripts_of_pbs_the_job_runs(cluster):
    """The exit status is always 0. With any other, PBS would delete, requeue or hold the job."""
    hooks = PbsHooks(cluster)
    alone = cluster.folder / "alone"  # as if somebody had copied the scripts without what they need
    alone.mkdir()
    for name in ("prologue", "epilogue", "hook.py"):
        shutil.copy(ROOT / "scripts" / "pbs" / name, alone)
    right = ("7.server", "root", "root")

    def both(*arguments, **options):
        return [hooks.script("n1", name, *arguments, **options) for name in ("prologue", "epilogue")]

    try:
        for wrong in ((), ("",), ("7.server",), ("7.server", ""), ("7.server", "nobody-is-called-so", "root"),
                      ("", "root", "root"), ("../7.server", "root", "root"), ("8.server", "root", "root")):
            assert both(*wrong) == [0, 0], wrong
        assert both(*right, folder=alone) == [0, 0]
        assert both(*right, settings=["STDCHK_BIN=/absent", "PATH=/absent"]) == [0, 0]
        nothing_left(cluster, ["n1"])
        assert told(cluster, "7.server") == ""
        # `stdchk up` fails.
        for options, why in (("mem=900T", "available"), ("mem=64M:colour=red", 'no option is called "colour"')):
            hooks.ask_for(options)
            assert both(*right) == [0, 0]
            assert "n1: no pool: " in told(cluster, "7.server") and why in told(cluster, "7.server")
        hooks.ask_for("mem=64M")
        assert both(*right, settings=["STDCHK_BIN=/absent"]) == [0, 0]
        assert "stdchk: command not found" in told(cluster, "7.server")
        # The other node's prologue never comes.
        assert hooks.script("n1", "prologue", *right, settings=["STDCHK_BEGIN_SECONDS=2"]) == 0
        assert hooks.script("n1", "epilogue", *right) == 0
        nothing_left(cluster, ["n1"])
        # The hook also accepts without its scripts, and for a job without a user.
        shutil.rmtree(alone / "__pycache__", ignore_errors=True)
        for name in ("prologue", "epilogue"):
            (alone / name).unlink()
        for event in ("begin", "epilogue"):
            assert "prologue" in hooks.run("n1", event, hook=alone / "hook.py") or event == "epilogue"
            assert "stdchk, job 7.server" in hooks.run("n1", event, user="")
        # The job runs without a pool.
        pbs = Pbs(cluster, ["n1", "n3"])
        try:
            done = pbs.run("[[ ! -e /tmp/stdchk-$UID-jobs/$PBS_JOBID.mount ]] && pbsdsh -n 2 -- true && echo runs")
            assert done.stdout == "runs\n"
        finally:
            pbs.end()
            shutil.rmtree(pbs.folder)
    finally:
        run("rm", "-rf", hooks.folder, alone)


def test_a_drain_that_fails_ends_the_epilogue_of_pbs_as_well_as_one_that_does_not(cluster):
    hooks = PbsHooks(cluster)
    hooks.ask_for("mem=64M:drain=pfs:nodes=1")
    try:
        hooks.begin()
        # A file replaces the drain directory, so that even root's drain fails.
        run("rm", "-rf", cluster.pfs)
        cluster.pfs.write_text("")
        cluster.on("n1", "sh", "-c", "head -c 1M /dev/urandom >/tmp/stdchk-0-jobs/7.server.mount/file")
        hooks.end(settings=["STDCHK_DRAIN_SECONDS=4"])
        assert "n1: not all is drained after" in told(cluster, "7.server")
        assert "1 files are lost: file" in told(cluster, "7.server")
        nothing_left(cluster, ["n1", "n3"])
    finally:
        run("rm", "-rf", hooks.folder, cluster.pfs)


@contextlib.contextmanager
def troubled(cluster, *nodes):
    """Mounts a file system on `nodes` that hangs as its rules say (troubled_fs.c). Yields its folder, and a function that
    sets the rules."""
    point, behind, control = (cluster.folder / name for name in ("troubled", "behind", "rules"))
    point.mkdir()
    behind.mkdir()
    control.touch()
    pids = {}

    def rules(*lines):
        control.with_suffix(".new").write_text("".join(f"{line}\n" for line in lines))
        control.with_suffix(".new").rename(control)

    try:
        for node in nodes:
            pids[node] = cluster.on(node, "sh", "-c", f"""
                setsid {TROUBLED} {behind} {control} {point} >/dev/null 2>&1 </dev/null &
                echo $!
                until mountpoint -q {point}; do kill -0 $! || exit 1; sleep 0.05; done""").stdout.strip()
        yield point, rules
    finally:
        rules()
        for node, pid in pids.items():
            cluster.on(node, "sh", "-c", f"umount --lazy {point}; kill {pid}", check=False)
        run("rm", "-rf", point, behind, control)


DEFAULT_SECONDS = 10 + 15  # of scripts/pbs/epilogue, which the mom ends after 30


def test_the_epilogue_of_pbs_ends_in_time_while_a_target_of_the_drain_hangs(cluster):
    hooks = PbsHooks(cluster)
    try:
        with troubled(cluster, "n1", "n3") as (point, rules):
            hooks.ask_for(f"mem=64M:drain={point}:nodes=1")
            hooks.begin()
            rules("write HANG")
            cluster.on("n1", "sh", "-c", "cd /tmp/stdchk-0-jobs/7.server.mount; echo HANG >hung; head -c 1M /dev/urandom >good")
            wait_until((cluster.folder / "behind" / "good").exists, "the drain of what does not hang")
            assert hooks.end() <= (DEFAULT_SECONDS + 1) * PATIENCE
            # Only the hanging process remains, and the report names it.
            assert "stdchk" not in cluster.left_behind("n1")
            assert re.fullmatch("(.stdchk-benefact. <defunct>|.*/stdchk-benefactor .*)?\n?", cluster.left_behind("n3"))
            assert "n1: not all is drained" in told(cluster, "7.server")
            assert "1 files are lost: hung" in told(cluster, "7.server")
            assert re.search(r"n3: not even SIGKILL ends stdchk-benefactor \(pid \d+\)", told(cluster, "7.server"))
            rules()
            nothing_left(cluster, ["n1", "n3"])
        assert not list(cluster.folder.glob(".stdchk-*"))
    finally:
        run("rm", "-rf", hooks.folder)


def test_the_epilogue_of_pbs_ends_in_time_while_the_manager_is_stopped(cluster):
    hooks = PbsHooks(cluster)
    hooks.ask_for("mem=64M:drain=pfs:drain-rate=1M")
    undrained = cluster.folder / "stdchk-7.server.undrained"
    try:
        hooks.begin()
        cluster.on("n3", "sh", "-c", "head -c 48M /dev/urandom >/tmp/stdchk-0-jobs/7.server.mount/late")
        wait_until(lambda: undrained.exists() and " late" in undrained.read_text(), "the record of it")
        cluster.on("n1", "sh", "-c", "kill -STOP $(pgrep -x stdchk-manager)")
        assert hooks.end() <= (DEFAULT_SECONDS + 1) * PATIENCE
        nothing_left(cluster, ["n1", "n3"])
        text = told(cluster, "7.server")
        assert text.count("the pool is lost: its manager, on n1, does not answer") == 1
        assert text.count("lost        late") == 1
        assert re.search("n1: what had not ended in time was killed: .*stdchk-manager", text)
        assert not list(cluster.folder.glob(".stdchk-*")) and not undrained.exists()
    finally:
        run("rm", "-rf", hooks.folder)


@pytest.mark.parametrize("status, stays", [(0, []), (271, ["app.N0.T1", "app.N1.T1"])])
def test_the_policy_of_the_end_counts_after_a_job_that_has_ended_well(cluster, status, stays):
    hooks = PbsHooks(cluster)
    hooks.ask_for("mem=64M:drain=pfs:images=2:end=remove")
    try:
        hooks.begin()
        for node, rank in (("n1", 0), ("n3", 1)):
            cluster.on(node, "sh", "-c", f"head -c 1M /dev/urandom >/tmp/stdchk-0-jobs/7.server.mount/app.N{rank}.T1")
        cluster.on("n1", "sh", "-c", "echo result >/tmp/stdchk-0-jobs/7.server.mount/result")
        hooks.end(status=status)
        assert drained(cluster) == [*stays, "result"]
        assert told(cluster, "7.server").count("n1: all is drained") == 1
        assert "files are lost" not in told(cluster, "7.server") and "is lost" not in told(cluster, "7.server")
        nothing_left(cluster, ["n1", "n3"])
        assert not list(cluster.folder.glob(".stdchk-*"))
    finally:
        run("rm", "-rf", hooks.folder)


@pytest.mark.parametrize("status, ending, stays", [(0, "COMPLETED", []), (3, "FAILED", ["app.N0.T1"])])
def test_it_counts_at_the_end_of_a_script_that_has_ended_well_too(cluster, status, ending, stays):
    """The script itself starts the pool."""
    job = cluster.submit("--nodes=1", script=f"""
        eval "$(stdchk up --job --export --memory 64M --drain pfs --policy images=1,end=remove)" || exit 1
        {write("app.N0.T1", 1)}
        exit {status}""")
    cluster.wait(job, ending=ending)
    wait_over(cluster, job)
    assert drained(cluster) == stays
    nothing_left(cluster, cluster.nodes)


@pytest.mark.parametrize("parity", ["ec(2,1)", "ec(2:1)"])
def test_an_option_may_have_a_comma_in_parentheses(cluster, parity):
    def site(node, what, *words):
        cluster.on(node, "env", "-i", f"STDCHK_BIN={BIN}", ROOT / "scripts/site", what, "7.server", 0, 0, node, *words)

    try:
        for node in ("n1", "n3"):
            site(node, "begin", "n1,n3", cluster.folder, f"mem=64M,copies={parity},proof=checksum,images=2:keep=2")
        policy = cluster.on("n1", BIN / "stdchk", "policy", "get", "/tmp/stdchk-0-jobs/7.server.mount").stdout
        for key, value in (("copies", "ec(2,1)"), ("proof", "checksum"), ("images", "2"), ("keep", "2")):
            assert re.search(rf"^{key} .*{re.escape(value)}", policy, re.MULTILINE), policy + told(cluster, "7.server")
    finally:
        with concurrent.futures.ThreadPoolExecutor() as nodes:
            list(nodes.map(site, ("n1", "n3"), ("end", "end")))
        nothing_left(cluster, ["n1", "n3"])


@needs_freezer
def test_a_pool_outlives_the_prolog_where_slurm_finds_processes_by_their_control_group():
    """No process outlives the job, neither of the site's pool nor of a pool that the job has started."""
    cluster = Cluster(2, proctrack="cgroup")
    groups = ("for pid in $(pgrep -f stdchk-); do"
              ' echo $(tr "\\0" " " </proc/$pid/cmdline) $(grep freezer /proc/$pid/cgroup); done')
    try:
        assert "proctrack/cgroup" in cluster.call("run", "scontrol", "show", "config").stdout
        job = cluster.submit("--nodes=2", "--comment", "stdchk=nodes=1,mem=64M,drain=pfs,images=2", script=f"""
            grep freezer /proc/self/cgroup
            srun --ntasks-per-node=1 bash -c '{write('app.N$SLURM_PROCID.T1', 2)}; {groups}' | tee groups
            """)
        cluster.wait(job)
        wait_over(cluster, job)
        # The job's control group holds no daemon.
        assert re.search(rf"freezer:/.*job_{job}/", cluster.output())
        text = (cluster.folder / "groups").read_text()
        daemons = re.findall(r"^\S*/stdchk-(manager|benefactor|mount) .* \d+:freezer:(\S+)$", text, re.MULTILINE)
        assert {name for name, group in daemons} == {"manager", "benefactor", "mount"}, text
        assert all("job_" not in group for name, group in daemons), text
        assert drained(cluster) == ["app.N0.T1", "app.N1.T1"]
        assert "n1: all is drained" in told(cluster, job)
        nothing_left(cluster, cluster.nodes)
        job = cluster.submit("--nodes=2", script="""
            stdchk up --job --memory 64M || exit 1
            srun --ntasks-per-node=1 bash -c 'echo $SLURM_PROCID >/tmp/stdchk-$UID-jobs/$SLURM_JOB_ID.mount/$SLURM_PROCID'
            cat /tmp/stdchk-$UID-jobs/$SLURM_JOB_ID.mount/?""")
        cluster.wait(job)
        wait_over(cluster, job)
        assert cluster.output().endswith("0\n1\n")
        nothing_left(cluster, cluster.nodes)
    finally:
        cluster.end()


def test_the_loss_of_the_node_with_the_manager_is_told_by_another():
    cluster = Cluster(4)
    try:
        job = cluster.submit(
            "--nodes=3", "--no-requeue", "--comment", f"stdchk=nodes=2,mem=64M,drain=pfs,{SLOW}", script=f"""
            {write('early', 1)}; stdchk drain --wait $STDCHK_MOUNT/early
            {write('late', 48)}; echo is written; sleep 100""")
        undrained = cluster.folder / f"stdchk-{job}.undrained"
        wait_until(lambda: "is written" in cluster.output(), "the file", 60)
        wait_until(lambda: undrained.exists() and " late" in undrained.read_text(), "the record of it")
        cluster.call("kill", "n1")
        wait_until(lambda: cluster.state(job) == "NODE_FAIL", "the end of the job", 60)
        wait_until(lambda: "lost        late" in told(cluster, job), "the report", 120)
        nothing_left(cluster, ["n2", "n3"])
        # Another node has reported the loss. Drained files match the manifest.
        text = told(cluster, job)
        assert text.count(": the pool is lost: its manager, on n1, does not answer\n") == 1
        assert text.count("lost  ") == 1 and "early" not in text
        assert drained(cluster) == ["early"]
        found = run(BIN / "stdchk", "verify", cluster.pfs)
        assert "0 bad; 1.0 MiB compared with their checksums" in found.stdout
        assert not undrained.exists() and not list(cluster.folder.glob(".stdchk-*"))
    finally:
        cluster.end()


@pytest.mark.parametrize("lost", ["n1", "n2"])
def test_a_job_that_is_requeued_finds_what_the_pool_of_its_first_run_has_drained(lost):
    """The first run loses the manager's node, or the node that lends memory."""
    cluster = Cluster(3)
    try:
        job = cluster.submit(
            "--nodes=2", "--ntasks-per-node=1", "--requeue", "--comment", "stdchk=nodes=1,mem=64M,drain=pfs,images=2",
            script=f"""
            echo run ${{SLURM_RESTART_COUNT:-0}} finds $(readlink $STDCHK_MOUNT/latest).
            sed -n '2s/.*-site-/nodes have met in /p' /tmp/stdchk-$UID-jobs/$SLURM_JOB_ID.site
            cd $STDCHK_MOUNT || exit 1
            if [ "${{SLURM_RESTART_COUNT:-0}}" = 0 ]; then
              srun bash -c '{write('app.N$SLURM_PROCID.T1', 2)}'
              sha256sum app.N?.T1 >{cluster.folder}/sums; stdchk drain --wait .
              echo is drained; sleep 100
            fi
            sha256sum --check {cluster.folder}/sums || exit 1
            srun bash -c '{write('app.N$SLURM_PROCID.T2', 2)}'
            """)
        wait_until(lambda: "is drained" in cluster.output(), "the first run", 60)
        cluster.call("kill", lost)
        wait_until(lambda: "run 1 finds" in cluster.output(), "the next run", 150)
        cluster.wait(job)
        wait_over(cluster, job)
        text = cluster.output()
        assert "run 0 finds .\n" in text and "run 1 finds app.*.T1.\n" in text
        # Each run uses a separate exchange folder: files of a dead run would mislead the next run.
        assert [f"nodes have met in {job}.{run}\n" in text for run in (0, 1)] == [True, True]
        assert [text.count(f"app.N{rank}.T1: OK") for rank in (0, 1)] == [1, 1]
        assert drained(cluster) == [f"app.N{rank}.T{step}" for rank in (0, 1) for step in (1, 2)]
        assert os.readlink(cluster.pfs / "latest") == "app.*.T2"
        assert "are lost" not in told(cluster, job) and "lost   " not in told(cluster, job)
        nothing_left(cluster, [node for node in cluster.nodes if node != lost])
        assert not list(cluster.folder.glob(".stdchk-*"))
    finally:
        cluster.end()


def test_a_lost_node_costs_what_only_it_had_and_the_others_are_clean(cluster):
    """The test is the last of this cluster, because the killed node does not come back."""
    job = cluster.submit(
        "--nodes=4", "--no-requeue", "--comment", f"stdchk=nodes=2,mem=64M,drain=pfs,{SLOW}", script=f"""
        {write('early', 1)}; stdchk drain --wait $STDCHK_MOUNT/early
        {write('late', 16)}; echo is written; sleep 100""")
    wait_until(lambda: "is written" in cluster.output(), "the file", 60)
    cluster.call("kill", "n4")
    wait_until(lambda: cluster.state(job) == "NODE_FAIL", "the end of the job", 60)
    wait_until(lambda: "are lost: late" in told(cluster, job), "the report", 60)
    assert drained(cluster) == ["early"]
    nothing_left(cluster, ["n1", "n2", "n3"])
