"""Measures jobs in containers (stdchk run): the costs of a checkpoint and a restart, and the slow-down of a program.

The measurements follow figures 6 and 7 of Walters and Chaudhary, "A Fault-Tolerant Strategy for Virtualized HPC Clusters".
The program is tests/integration/container/ring.c instead of the NAS Parallel Benchmarks. Each rank holds memory, changes
1 MiB of it in each round, and sends 1 MiB around a ring. All nodes are on this machine. Needs root and scripts/trixie-root.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import uuid

from report import Failure, Series

ROOT = pathlib.Path(__file__).resolve().parent.parent
MIB = 1 << 20
COPIES = (1, 2, 3)

RATIOS = ["save: share of the pause", "4 ranks of * MiB: lazy restart", "TCP, one stream: in containers",
          "MPI ring beside *: in containers", "CRIU *: pause", "HPL, *", "OpenMP, *"]
FIGURES = ["4 ranks of * MiB: pause", "4 ranks of * MiB: complete", "4 ranks of * MiB: restart", "* ranks of 16 MiB: pause",
           "* ranks of * MiB: changes of files", "saved by naming, second set", "set every * s: slow-down", "* copies, set every * s: slow-down",
           "quiesce: share of the pause", "open and resume: share of the pause", "TCP, time for a byte *", "fio, *"]


def missing():
    """Returns the reason why this machine cannot run the section, or None."""
    if os.geteuid() != 0:
        return "root only"
    return boxes().why_not()


def boxes():
    """The tests' module: a pool, a base file system, a job."""
    sys.path.insert(0, str(ROOT / "tests" / "integration"))
    import boxes as module  # noqa: PLC0415

    return module


class Bench:
    def __init__(self, folder, quick):
        self.boxes, self.folder, self.quick = boxes(), folder, quick
        self.base = self.boxes.Base()

    @contextlib.contextmanager
    def pool(self, *options):
        pool = self.boxes.Pool(self.folder, "--memory", "2G", *options, name=f"p{uuid.uuid4().hex[:6]}")
        try:
            yield pool
        finally:
            pool.down()

    def job(self, pool, ranks, mib, rounds, *options):
        return self.words(pool, ranks, f"mpiexec.mpich -n {ranks} /opt/stdchk-test/ring-mpich {rounds} {mib}", *options)

    @contextlib.contextmanager
    def words(self, pool, ranks, words, *options):
        """A job with the program `words`, without quotes in it."""
        job = self.boxes.Job(pool, self.base, f"b{uuid.uuid4().hex[:8]}", "-n", ranks, *options, "--", *words.split())
        try:
            yield job
        finally:
            job.end()

    def sets(self, pool, ranks, mib, count):
        """Returns the figures of `count` checkpoints, the time in ms of a restart of the newest, and the MiB of its changes
        of files."""
        with self.job(pool, ranks, mib, 100_000, "--nodes", 2) as job:
            job.wait_for("round 20", seconds=120)
            for _ in range(count):
                job.checkpoint()
            taken = job.status()["checkpoints"]
            changes = changes_mib(pool, job)
            job.kill()
            again = self.boxes.Job(pool, self.base, job.name, job.name, command="restart")
            try:
                again.wait_for("runs again from set", "err", 120)
                return taken, int(re.search(r"runs again from set T\d+, (\d+) ms", again.err)[1]), changes
            finally:
                again.end()

    def seconds(self, pool, rounds, *options, whole=False):
        """Runs 3 ranks of 32 MiB. Returns the seconds from the first round to the end, and the pauses of the sets in ms.
        `whole`: the seconds of the whole command."""
        began = time.monotonic()
        with self.job(pool, 3, 32, rounds, *options) as job:
            job.wait_for("round 0", seconds=120)
            began = began if whole else time.monotonic()
            if job.wait(1200) != 0:
                raise Failure(job.err)
            return time.monotonic() - began, [int(ms) for ms in re.findall(r"stood still for (\d+) ms", job.err)]


def changes_mib(pool, job):
    """The upper folders of the overlays in the job's newest set, in MiB."""
    folder = pool.mount / job.name
    newest = max(int(path.name.rpartition(".T")[2]) for path in folder.glob(f"{job.name}.N0.T*"))
    size = 0
    for path in folder.glob(f"{job.name}.N*.T{newest}"):
        if ".N0." not in path.name:
            with tarfile.open(path) as archive:
                size += archive.getmember("upper.tar").size
    return size / MIB


def costs(report, bench):
    count = 2 if bench.quick else 4
    shares = {"quiesce": [], "save": [], "open and resume": []}
    for ranks, mib in [(4, size) for size in (8, 64, 192)] + [(number, 16) for number in (2, 8, 16)]:
        with bench.pool() as pool:
            taken, restart, changes = bench.sets(pool, ranks, mib, count)
        name = f"{ranks} ranks of {mib} MiB"
        report.add(f"{name}: pause", Series([one["pause_ms"] for one in taken], "ms"))
        report.add(f"{name}: complete", Series([one["complete_ms"] for one in taken], "ms"))
        report.add(f"{name}: images", Series([one["image_bytes"] / MIB for one in taken], "MiB"))
        report.add(f"{name}: changes of files", Series([changes], "MiB"))
        report.add(f"{name}: restart", Series([restart], "ms"))
        for one in taken:
            steps = one["steps_ms"]
            for share, of in (("quiesce", ("stop", "settle", "lock")), ("save", ("save",)), ("open and resume", ("open", "resume"))):
                shares[share].append(sum(steps[step] for step in of) / one["pause_ms"])
    for share, values in shares.items():
        if share == "save":
            report.add("save: share of the pause", Series(values, ""), "whole pause", Series([1] * len(values), ""))
        else:
            report.add(f"{share}: share of the pause", Series(values, ""))


def naming(report, bench):
    """Measures the share of each set of a job that the pool had already."""
    with bench.pool() as pool, bench.job(pool, 4, 64, 100_000) as job:
        job.wait_for("round 20", seconds=120)
        shares = []
        before = (0, 0)
        for _ in range(2 if bench.quick else 4):
            job.checkpoint()
            told = json.loads(bench.boxes.run(bench.boxes.BIN / "stdchk", "report", "--json", "--pool", pool.state).stdout)
            now = (told["saved_bytes"], told["written_bytes"])
            shares.append((now[0] - before[0]) / (now[1] - before[1]))
            before = now
        report.add("saved by naming, first set", Series(shares[:1], ""))
        report.add("saved by naming, second set", Series(shares[1:], ""))


def slow_down(report, bench):
    """Compares a run of about a minute with sets at intervals to a run without sets. Each row also has the prediction of
    advise's cost model: the time of a run with a pause in each interval."""
    turns = 1 if bench.quick else 3
    with bench.pool() as pool:
        rounds = 600
        seconds, _ = bench.seconds(pool, rounds)
        rounds = int(rounds * (15 if bench.quick else 60) / seconds)
        plain = [bench.seconds(pool, rounds)[0] for _ in range(turns)]
    report.add("run without sets", Series(plain, "s"))
    for copies, every in [(1, each) for each in (2, 5, 10, 20)] + [(each, 5) for each in COPIES[1:]]:
        if bench.quick and every > 5:
            continue
        runs, model = [], []
        with bench.pool("--benefactors", "4", "--policy", f"copies={copies}") as pool:
            for turn in range(turns):
                took, pauses = bench.seconds(pool, rounds, "--every", str(every))
                runs.append(took / plain[turn])
                model.append(1 + sum(pauses) / 1e3 / plain[turn])
        name = f"set every {every} s" if copies == 1 else f"{copies} copies, set every {every} s"
        report.add(f"{name}: slow-down", Series(runs, ""), "predicted: pauses alone", Series(model, ""))


def lazy_restart(report, bench):
    """Measures a restart that loads memory on demand, and one that loads all memory first."""
    turns = 1 if bench.quick else 3
    ranks, mib = 4, 192
    with bench.pool() as pool, bench.job(pool, ranks, mib, 100_000, "--nodes", 2) as job:
        job.wait_for("round 20", seconds=120)
        job.checkpoint()
        job.kill()
        times = {True: [], False: []}
        for _ in range(turns):
            for lazy in times:
                again = bench.boxes.Job(pool, bench.base, job.name, job.name, *(["--lazy"] if lazy else []), command="restart")
                try:
                    again.wait_for("runs again from set", "err", 120)
                    times[lazy].append(int(re.search(r"runs again from set T\d+, (\d+) ms", again.err)[1]))
                    again.wait_for("round", seconds=120)
                finally:
                    again.kill()
    report.add(f"{ranks} ranks of {mib} MiB: lazy restart", Series(times[True], "ms"), "restart with all memory",
               Series(times[False], "ms"))


HELD = "import os, sys, time; held = os.urandom(192 << 20); open(sys.argv[1], 'w').close(); time.sleep(10_000)"


class Saving:
    """Saves a new process of 192 MiB by CRIU. `near` is a folder in memory, `far` a folder in the pool's mount. A way of
    saving returns the ms of the dump, and the ms until the images are in the pool."""

    PORT = 7300

    def __init__(self, criu, near, far):
        self.criu, self.near, self.far = criu, near, far

    def save(self, way):
        with tempfile.TemporaryDirectory() as folder:
            ready = pathlib.Path(folder) / "ready"
            process = subprocess.Popen([sys.executable, "-c", HELD, ready], cwd="/", start_new_session=True, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                while not ready.exists():
                    time.sleep(0.02)
                began = time.monotonic()
                dumped = way(process.pid)
                return 1e3 * (dumped - began), 1e3 * (time.monotonic() - began)
            finally:
                process.kill()
                process.wait()

    def by_memory(self, pid):
        self._dump(pid, self.near)
        dumped = time.monotonic()
        subprocess.run(["tar", "--create", "--blocking-factor", "2048", "--file", self.far / "image", "--directory", self.near, "."],
                       check=True)
        return dumped

    def into_the_mount(self, pid):
        self._dump(pid, self.far)
        return time.monotonic()

    def by_page_server(self, pid):
        server = subprocess.Popen([self.criu, "page-server", "--images-dir", self.far, "--address", "127.0.0.1", "--port",
                                   str(self.PORT)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while not subprocess.run(["ss", "-Hltn", f"sport = :{self.PORT}"], capture_output=True, check=True).stdout:
                if server.poll() is not None:
                    raise Failure("CRIU's page server has ended")
                time.sleep(0.01)
            self._dump(pid, self.near, "--page-server", "--address", "127.0.0.1", "--port", str(self.PORT))
            server.wait(60)
        finally:
            server.kill()
        return time.monotonic()

    def _dump(self, pid, folder, *options):
        done = subprocess.run([self.criu, "dump", "--tree", str(pid), "--images-dir", folder, "--leave-running", "-v1", *options],
                              capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            raise Failure(f"CRIU cannot dump: {done.stdout}{done.stderr}")


def ways_of_saving(report, bench):
    """Compares the ways of CRIU's images into the pool: by way of memory, as jobs do, and two direct ones."""
    ways = ("by_memory", "into_the_mount", "by_page_server")
    times = {way: [] for way in ways}
    with bench.pool() as pool:
        for turn in range(1 if bench.quick else 3):
            for way in ways:
                near, far = pathlib.Path(tempfile.mkdtemp(dir="/dev/shm")), pool.mount / f"{way}-{turn}"
                far.mkdir()
                try:
                    saving = Saving(bench.base.criu, near, far)
                    times[way].append(saving.save(getattr(saving, way)))
                finally:
                    shutil.rmtree(near)
    dumps = {way: Series([each[0] for each in taken], "ms") for way, taken in times.items()}
    report.add("CRIU straight into the mount: pause", dumps["into_the_mount"], "by way of memory", dumps["by_memory"])
    report.add("CRIU by its page server into the mount: pause", dumps["by_page_server"], "by way of memory", dumps["by_memory"])
    report.add("by way of memory: in the pool", Series([each[1] for each in times["by_memory"]], "ms"))


PING_PONG = """
import socket, statistics, sys, time
name, turns = sys.argv[1], int(sys.argv[2])
if name == "serve":
    server = socket.create_server(("0.0.0.0", 7100))
    link = server.accept()[0]
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := link.recv(1):
        link.sendall(data)
    sys.exit()
while True:
    try:
        link = socket.create_connection((name, 7100))
        break
    except OSError:
        time.sleep(0.05)
link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
times = []
for _ in range(turns):
    began = time.perf_counter()
    link.sendall(b"x")
    link.recv(1)
    times.append(time.perf_counter() - began)
print("VALUE", statistics.median(times) * 1e6)
"""
TO_PEER = """
peer=%(peer)s
%(remote)s "python3 /opt/stdchk-test/ping_pong.py serve 0" & python3 /opt/stdchk-test/ping_pong.py $peer 3000
wait
%(remote)s "iperf3 -s -1 >/dev/null" &
until iperf3 -c $peer -J -t 3 >/tmp/iperf.json 2>/dev/null; do sleep 0.1; done
python3 -c 'import json; print("VALUE", json.load(open("/tmp/iperf.json"))["end"]["sum_received"]["bits_per_second"] / 1e9)'
wait
mkdir -p %(files)s && fio --name=write --directory=%(files)s --rw=write --bs=1M --size=256M --end_fsync=1 --output-format=json \
  --output=/tmp/fio.json >/dev/null
python3 -c 'import json; print("VALUE", json.load(open("/tmp/fio.json"))["jobs"][0]["write"]["bw_bytes"] / 1e6)'
"""


class Bare:
    """Runs programs of the base file system without a container, with this machine's network and processors. The programs
    see the base below a file system in memory, so that they do not change the base."""

    ENTER = """
set -e
mount -t tmpfs tmpfs "$1" && mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=$0,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount -t proc proc "$1/root/proc" && mount --bind /dev "$1/root/dev"
root=$1/root && shift && exec chroot "$root" "$@"
"""

    def __init__(self, base, folder):
        self.base, self.folder = base, folder / "bare"
        self.folder.mkdir(exist_ok=True)

    def values(self, script, seconds=300):
        text = "mount -t tmpfs tmpfs /tmp && mkdir /tmp/files && " + script
        done = self.boxed(["sh", "-c", text], seconds)
        return [float(value) for value in re.findall(r"^VALUE (\S+)", done, re.MULTILINE)]

    def boxed(self, words, seconds):
        done = subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", self.ENTER, str(self.base.root),
                               str(self.folder), *words], capture_output=True, text=True, timeout=seconds, check=False)
        if done.returncode != 0:
            raise Failure(done.stdout + done.stderr)
        return done.stdout

    def ring_seconds(self, ranks, mib, rounds, tcp):
        """Returns the seconds of the ring. `tcp`: MPI takes TCP as in containers; otherwise shared memory."""
        settings = ["FI_PROVIDER=tcp", "UCX_TLS=tcp,self"] if tcp else []
        began = time.monotonic()
        self.boxed(["env", *settings, "mpiexec.mpich", "-n", str(ranks), "/opt/stdchk-test/ring-mpich", str(rounds), str(mib)], 900)
        return time.monotonic() - began


OPEN_MP = """
#include <omp.h>
#include <stdio.h>
static double held[1 << 20];
int main(void) {
  const double began = omp_get_wtime();
  for (int turn = 0; turn < 1000; turn++) {
#pragma omp parallel for num_threads(2)
    for (int i = 0; i < 1 << 20; i++) held[i] = held[i] * 0.999999 + turn;
  }
  printf("VALUE %f\\n", omp_get_wtime() - began);
  return held[7] < 0;
}
"""
HPL = """
cd /tmp && cp /opt/stdchk-test/hpccinf.txt . && hpcc >/dev/null 2>&1 || exit 1
[ "$OMPI_COMM_WORLD_RANK" != 0 ] || awk -F= '/^HPL_Tflops=/ { print "VALUE", 1000 * $2 }' hpccoutf.txt
"""


def programs_against_bare(report, bench, bare):
    """Compares HPL of hpcc (Open MPI over TCP), and a program with two threads of OpenMP."""
    made = subprocess.run([bench.boxes.TRIXIE, "--with", "hpcc"], capture_output=True, text=True, timeout=1200, check=False)
    if made.returncode != 0:
        raise Failure(made.stderr)
    from container_programs_test import hpl_input  # noqa: PLC0415

    folder = bench.base.root / "opt" / "stdchk-test"
    for name, text in (("hpccinf.txt", hpl_input(bench.base.root)), ("hpl_value.sh", HPL), ("open_mp.c", OPEN_MP)):
        (folder / name).write_text(text)
    bench.boxes.run("chroot", bench.base.root, "gcc", "-O2", "-fopenmp", "-o", "/opt/stdchk-test/open_mp",
                    "/opt/stdchk-test/open_mp.c")
    as_root = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
    hpl = "mpiexec.openmpi {} -n 3 sh /opt/stdchk-test/hpl_value.sh"
    cases = [("HPL", "Gflop/s", 3, f"{as_root} " + hpl.format("--map-by :OVERSUBSCRIBE --mca btl tcp,self"), hpl.format("")),
             ("OpenMP, two threads", "s", 1, "/opt/stdchk-test/open_mp", "/opt/stdchk-test/open_mp")]
    with bench.pool() as pool:
        for name, unit, ranks, outside, inside in cases:
            values = {"bare": [], "contained": []}
            for _ in range(1 if bench.quick else 3):
                values["bare"] += bare.values(outside)
                with bench.words(pool, ranks, inside) as job:
                    if job.wait(300) != 0:
                        raise Failure(job.err)
                    values["contained"] += [float(value) for value in re.findall(r"^VALUE (\S+)", job.out, re.MULTILINE)]
            report.add(f"{name}, in containers", Series(values["contained"], unit), "bare", Series(values["bare"], unit))


def against_bare(report, bench):
    """Compares containers with processes on the same machine, as section 4 of the paper does."""
    made = subprocess.run([bench.boxes.TRIXIE, "--with", "perf"], capture_output=True, text=True, timeout=1200, check=False)
    if made.returncode != 0:
        raise Failure(made.stderr)
    (bench.base.root / "opt" / "stdchk-test" / "ping_pong.py").write_text(PING_PONG)
    bare = Bare(bench.base, bench.folder)
    turns = 1 if bench.quick else 3
    names = [("TCP, time for a byte and its answer", "us"), ("TCP, one stream", "Gbit/s"), ("fio, writing 256 MiB", "MB/s")]
    outside, inside = [], []
    with bench.pool() as pool:
        for _ in range(turns):
            outside.append(bare.values(TO_PEER % {"peer": "127.0.0.1", "remote": "sh -c", "files": "/tmp/files"}))
            name = f"b{uuid.uuid4().hex[:8]}"
            script = TO_PEER % {"peer": f"{name}-r0", "remote": f"/.stdchk/agent {name}-r0", "files": "/var/tmp/files"}
            job = bench.boxes.Job(pool, bench.base, name, "-n", 1, "--", "sh", "-c", script)
            try:
                if job.wait(300) != 0:
                    raise Failure(job.err)
                inside.append([float(value) for value in re.findall(r"^VALUE (\S+)", job.out, re.MULTILINE)])
            finally:
                job.end()
        for at, (name, unit) in enumerate(names):
            report.add(f"{name}: in containers", Series([each[at] for each in inside], unit), "bare",
                       Series([each[at] for each in outside], unit))
        rounds = 200 if bench.quick else 1000
        contained = [bench.seconds(pool, rounds, whole=True)[0] for _ in range(turns)]
    for tcp, ceiling in ((True, "bare, over TCP"), (False, "bare, over shared memory")):
        report.add(f"MPI ring beside {ceiling}: in containers", Series(contained, "s"), ceiling,
                   Series([bare.ring_seconds(3, 32, rounds, tcp) for _ in range(turns)], "s"))
    programs_against_bare(report, bench, bare)


def measure(report, folder, quick):
    bench = Bench(pathlib.Path(folder), quick)
    costs(report, bench)
    naming(report, bench)
    ways_of_saving(report, bench)
    lazy_restart(report, bench)
    against_bare(report, bench)
    slow_down(report, bench)
