"""Batch systems on this machine: Slurm for real, its nodes being namespaces (scripts/slurm-cluster); PBS through a
stand-in for what stdchk uses of it."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import threading
import time

import pytest
from processes import BIN, ROOT, programs_for_all, run, wait_until

CLUSTER = ROOT / "scripts" / "slurm-cluster"
missing = [what for what in ("slurmctld", "slurmd", "munged", "ip") if shutil.which(what) is None]
needed = [
    pytest.mark.skipif(bool(missing), reason=f"not installed: {missing}"),
    pytest.mark.skipif(os.geteuid() != 0, reason="a cluster of namespaces needs root"),
    pytest.mark.skipif(not (BIN / "heat").exists(), reason="examples/heat was built without MPI"),
]
FREEZER = pathlib.Path("/sys/fs/cgroup/freezer")
needs_freezer = pytest.mark.skipif(not FREEZER.is_dir(), reason=f"there is no {FREEZER}")


# The ranks of Open MPI connect in MPI_Init, over IPv4. Otherwise each pair of ranks connects at its first message, in both
# directions if both ranks send. On a busy machine, one rank could not connect, and the job waited for ever.
OPEN_MPI = {"OMPI_MCA_mpi_preconnect_mpi": "1", "OMPI_MCA_btl_tcp_disable_family": "6"}
# A shell's function that starts ranks on nodes, with options of srun. Ranks that have not connected within 45 s are
# started once more. Any other failure, and a program that hangs without this message, is the caller's.
START = """
start() {
  timeout --kill-after=15 45 srun --overlap "$@" || {
    local status=$?
    [[ $status == 124 || $status == 137 ]] && grep -q "failed to TCP connect" job.out || return "$status"
    echo "started once more, because Open MPI could not connect"
    srun --overlap "$@"
  }
}
"""

# A shell's program: which daemons of the pool at $1 show their figures on this node.
FIGURES = """
for at in $(stdchk status --prometheus-targets $1 | grep -Eo '[0-9.]+:[0-9]+'); do
  exec 3<>/dev/tcp/${at%:*}/${at#*:}
  printf 'GET /metrics HTTP/1.0\\r\\n\\r\\n' >&3
  sed -n "s/^stdchk_build_info{.*program=\\"\\([a-z-]*\\)\\".*/$(hostname) shows \\1/p" <&3
done
"""


class Cluster:
    """A Slurm cluster, and a folder that all its nodes share."""

    def __init__(self, nodes, proctrack="linuxproc"):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="stdchk-cluster-", dir="/var/tmp"))
        self.folder.chmod(0o755)  # the authentication daemon wants that
        self.pfs = self.folder / "pfs"
        self.pfs.mkdir()
        self.environment = {k: v for k, v in os.environ.items()
                            if not k.startswith(("STDCHK_", "SLURM_", "XDG_"))}
        self.environment.update(
            STDCHK_CLUSTER=str(self.folder / "cluster"), STDCHK_BIN=str(BIN), STDCHK_PROCTRACK=proctrack,
            PATH=f"{self.folder}/bin:{BIN}:{os.environ['PATH']}", **OPEN_MPI)
        # Like a site's installation, all users may run the programs. Slurm gives prologs no environment.
        programs_for_all(self.folder / "bin")
        shutil.copytree(ROOT / "scripts", self.folder / "scripts")
        self.settings = self.folder / "settings"
        self.settings.write_text("")
        for name in ("prolog", "epilog", "task-prolog"):
            program = self.folder / name
            program.write_text(f"#!/bin/bash\nset -a; STDCHK_BIN={self.folder}/bin; source {self.settings}\n"
                               f"exec {self.folder}/scripts/slurm/{name}\n")
            program.chmod(0o755)
            self.environment[f"STDCHK_{name.replace('-', '_').upper()}"] = str(program)
        plugin = (BIN / "stdchk").resolve().parent / "stdchk_spank.so"
        if plugin.exists():
            self.environment["STDCHK_SPANK"] = str(shutil.copy(plugin, self.folder))
        self.as_user = []  # words in front of a command that submits a job
        self.nodes = [f"n{i + 1}" for i in range(nodes)]
        try:
            self.call("up", nodes, seconds=90)
        except AssertionError:
            self.call("down", check=False)
            raise

    def call(self, *words, check=True, seconds=60):
        return run(CLUSTER, *words, check=check, seconds=seconds, env=self.environment,
                   cwd=self.folder)

    def on(self, node, *words, check=True):
        return self.call("run", "-w", node, *words, check=check)

    def submit(self, *options, script):
        path = self.folder / "job.sh"
        path.write_text(f"#!/bin/bash\ncd {self.folder}\n{script}\n")
        return self.submit_file(path, *options)

    def submit_file(self, path, *options):
        done = self.call("run", *self.as_user, "sbatch", "--parsable", "--open-mode=append", "--chdir",
                         self.folder, "--output", self.folder / "job.out", *options, path)
        return done.stdout.strip()

    def output(self):
        path = self.folder / "job.out"
        return path.read_text() if path.exists() else ""

    def state(self, job):
        """Returns the job's state, or '' when the controller does not answer in time."""
        shown = self.call("run", "scontrol", "show", "job", job, check=False).stdout
        found = re.search(r"JobState=(\S+)", shown)
        return found.group(1) if found else ""

    def wait(self, job, seconds=90, ending="COMPLETED"):
        seen = [self.state(job)]
        ends = ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT")
        wait_until(lambda: seen.append(self.state(job)) or seen[-1] in ends,
                   f"the end of job {job}: {seen[0]}", seconds)
        assert seen[-1] == ending, self.output() + self.logs()

    def left_behind(self, node):
        """Returns the processes, mounts, memory and files of pools on one node. A killed process counts while it hangs."""
        look = ("ps -eo args | grep -E '^([^ ]*/)?stdchk(-[a-z]+)?( |$)|^.stdchk[^ ]*. <defunct>|[s]cripts/site' ;"
                "grep -E ' /tmp/(pool|mine|stdchk-[0-9]+-)[^ ]* fuse' /proc/mounts; ls -A /dev/shm | grep stdchk;"
                "ls -d /tmp/stdchk-*-jobs/* /tmp/stdchk-*/pool*/pool.json ; true")
        return self.on(node, "sh", "-c", f"({look}) 2>/dev/null").stdout

    def logs(self, lines=30):
        text = ""
        for log in (self.folder / "cluster" / "log").glob("*"):
            if log.suffix == ".first" and log.with_suffix("").exists():
                continue  # what the daemon of a node says twice
            text += "\n".join([f"--- {log.name}", *log.read_text(errors="replace").splitlines()[-lines:], ""])
        return text

    def end(self):
        print(self.output(), self.logs(10))
        self.call("down", check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster():
    """A cluster of 4 nodes. All tests of the file that imports this fixture share the cluster."""
    one = Cluster(4)
    yield one
    one.end()


def result_of(text):
    found = re.findall(r"result .*checksum=(\w+)", text)
    return found[-1] if found else None


def nothing_left(cluster, nodes):
    for node in nodes:
        wait_until(lambda node=node: cluster.left_behind(node) == "",
                   f"a clean {node}: {cluster.left_behind(node)}", 20)


class Pbs:
    """Stands in for PBS on the nodes of a cluster: runs a job script on the first node, and tasks of `pbsdsh` on the others.

    As with PBS, a task has an empty environment and no standard input. `pbsdsh` passes on no output of a task. It always
    ends with status 0, and prints the exit status of a task that failed.
    """

    PBSDSH = """#!/bin/bash
# pbsdsh -n INDEX -- COMMAND...
[[ $1 == -n && $3 == -- ]] || { echo "pbsdsh: unknown use: $*" >&2; exit 1; }
request=$PBS_STAND_IN/$$.$RANDOM
printf '%s\\0' "$2" "${@:4}" >"$request.new"
mv "$request.new" "$request.request"
until [[ -e $request.status ]]; do sleep 0.05; done
[[ $(<"$request.status") == 0 ]] || echo "pbsdsh: task 0x00000000 exit status $(<"$request.status")"
"""
    # Stands in for ssh: RSH HOST sh -s. The exit status is the remote command's.
    RSH = """#!/bin/bash
[[ $2 == sh && $3 == -s ]] || exit 255
place=$(grep -nx -m 1 "$1" "$PBS_NODEFILE") || exit 255
said=$("$PBS_STAND_IN/tm/pbsdsh" -n $((${place%%:*} - 1)) -- sh -c "$(cat)")
[[ -z $said ]]
"""
    # Stands in for ssh with its input and output: SSH HOST TEXT.
    SSH = """#!/bin/bash
[[ $# == 2 ]] && grep -qx "$1" "$PBS_NODEFILE" || exit 255
request=$PBS_STAND_IN/shell.$$.$RANDOM
mkfifo "$request.in" "$request.out"
printf '%s\\0' "$1" "$2" >"$request.new"
mv "$request.new" "$request.wanted"
cat <&0 >"$request.in" &
exec cat "$request.out"
"""
    # Open MPI's way through pbs_tmrsh needs more of PBS than there is here: a task for each line of the host file.
    MPIRUN = """#!/bin/bash
# mpirun --hostfile FILE [--mca NAME VALUE]... COMMAND...
hosts=$2; shift 2
while [[ $1 == --mca ]]; do shift 3; done
rank=0
while read -r node; do
  place=$(grep -nx -m 1 "$node" "$PBS_NODEFILE")
  pbsdsh -n $((${place%%:*} - 1)) -- env --chdir="$PWD" OMPI_COMM_WORLD_RANK=$rank "$@" &
  rank=$((rank + 1))
done <"$hosts" >"$PBS_STAND_IN/failed"
wait
[[ ! -s $PBS_STAND_IN/failed ]]
"""

    def __init__(self, cluster, nodes, pbsdsh="pbsdsh"):
        self.cluster, self.nodes = cluster, nodes
        self.folder = cluster.folder / "pbs"
        (self.folder / pbsdsh).parent.mkdir(parents=True)
        self.tasks = []
        self.over = threading.Event()
        for name, text in ((pbsdsh, self.PBSDSH), ("mpirun", self.MPIRUN), ("rsh", self.RSH), ("ssh", self.SSH)):
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o755)
        # Each node has two processors, so two lines.
        (self.folder / "nodefile").write_text("".join(f"{node}\n{node}\n" for node in nodes))
        self.server = threading.Thread(target=self.serve)
        self.server.start()

    def serve(self):
        while not self.over.is_set():
            for request in self.folder.glob("*.request"):
                index, *command = request.read_bytes().decode().split("\0")[:-1]
                request.unlink()
                node = self.nodes[int(index) // 2]
                words = [CLUSTER, "run", "-w", node, "env", "-i", f"PATH={os.environ['PATH']}",
                         "PBS_JOBID=7.server", *command]
                task = threading.Thread(target=self.task, args=(words, request.with_suffix(".status")))
                task.start()
                self.tasks.append(task)
            for request in self.folder.glob("*.wanted"):
                words = request.read_bytes().decode().split("\0")[:-1]
                request.unlink()
                task = threading.Thread(target=self.shell, args=(request, *words))
                task.start()
                self.tasks.append(task)
            time.sleep(0.02)

    def shell(self, request, node, text):
        """Runs a text on a node with all of its input, and passes its output on."""
        # A program that opens /dev/stdin needs a pipe without a name there, as ssh gives it.
        given = request.with_suffix(".in").read_bytes()
        with open(request.with_suffix(".out"), "wb") as said:
            subprocess.run([CLUSTER, "run", "-w", node, "env", "-i", f"PATH={os.environ['PATH']}", "sh", "-c", text],
                           input=given, stdout=said, env=self.cluster.environment, timeout=600, check=False)

    def task(self, words, status):
        done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL,
                              env=self.cluster.environment, timeout=120)
        temporary = status.with_suffix(".new")
        temporary.write_text(str(done.returncode))
        temporary.rename(status)

    def run(self, script, seconds=60):
        path = self.folder / "job.sh"
        path.write_text(f"cd {self.folder}\n{script}\n")
        return self.cluster.call(
            "run", "-w", self.nodes[0], "env", f"PATH={self.folder}:{BIN}:{os.environ['PATH']}", "PBS_JOBID=7.server",
            f"PBS_NODEFILE={self.folder}/nodefile", f"PBS_STAND_IN={self.folder}", "bash", path, check=False,
            seconds=seconds)

    def end(self):
        self.over.set()
        for thread in [self.server, *self.tasks]:
            thread.join(60)
