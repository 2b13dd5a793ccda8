"""Measures jobs in containers (stdchk run): the costs of a checkpoint and a restart, and the slow-down of a program.

The measurements follow figures 6 and 7 of Walters and Chaudhary, "A Fault-Tolerant Strategy for Virtualized HPC Clusters".
The program is tests/integration/container/ring.c instead of the NAS Parallel Benchmarks. Each rank holds memory, changes
1 MiB of it in each round, and sends 1 MiB around a ring. All nodes are on this machine. Needs root and scripts/trixie-root.
"""

import contextlib
import dataclasses
import itertools
import json
import math
import os
import pathlib
import re
import shutil
import signal
import statistics
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
PREDICTED = "predicted by the cost model of stdchk advise"
BEGIN_S = 8  # seconds until a pool and a job run
NUMBERS = (2, 4, 8, 16)  # of containers with ranks; one more has the launcher


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How much is measured: rounds of each comparison, sets of each job, seconds of a run, and seconds between sets."""

    turns: int
    sets: int
    run_s: int
    intervals: tuple
    copies_every: int = 5

    def runs(self):
        """The runs with sets: pairs of copies and interval."""
        return [(1, each) for each in self.intervals] + [(copies, self.copies_every) for copies in COPIES[1:]]

    def seconds(self, every):
        """The time of a run: whole intervals, and time for the last set to become complete."""
        return every * max(1, math.ceil(self.run_s / every)) + max(5, every / 20)

    def minutes(self):
        """About how long the section "containers" takes on two quiet cores."""
        costs = (3 + len(NUMBERS)) * (2 * BEGIN_S + 5 * self.sets + 10)
        return (costs + 180 + 10 * self.sets + 150 * self.turns) / 60

    def minutes_of_intervals(self):
        """About how long the section "intervals" takes."""
        runs = sum(BEGIN_S + self.seconds(every) for _, every in self.runs())
        return (60 + self.turns * (self.run_s + runs)) / 60


FULL = Sizes(3, 4, 60, (2, 5, 10, 20))
SMALL = Sizes(1, 2, 30, (2, 5, 10, 20))  # for publication, too
QUICK = Sizes(1, 2, 15, (2, 5))


def sizes_of(quick, small, intervals):
    """`intervals`: numbers of seconds with commas between them, or None."""
    sizes = QUICK if quick else SMALL if small else FULL
    if not intervals:
        return sizes
    try:
        numbers = tuple(int(each) for each in intervals.split(","))
    except ValueError:
        numbers = (0,)
    if min(numbers) < 1:
        raise Failure(f"--intervals {intervals}: whole seconds with commas between them, such as 10,30,60,120,240")
    return dataclasses.replace(sizes, intervals=numbers)


def predicted(pause_s, sets, plain_s):
    """The slow-down by the cost model of advise (tools/lab/job_plan.h), with alpha 1: t_tot = t_comp + t_comm + n pauses."""
    return 1 + sets * pause_s / plain_s


RATIOS = ["save: share of the pause", "4 ranks of * MiB: lazy restart", "TCP, one stream: in containers",
          "MPI ring beside *: in containers", "CRIU *: pause", "CRIU *: restore", "HPL, *", "OpenMP, *"]
FIGURES = ["4 ranks of * MiB: pause", "4 ranks of * MiB: complete", "4 ranks of * MiB: restart", "* ranks of 16 MiB: pause",
           "* ranks of 16 MiB: restart", "8 MiB of new files before each set, *: changes of files",
           "8 MiB of new files before each set, *: new bytes in the pool", "saved by naming, second set",
           "quiesce: share of the pause", "open and resume: share of the pause", "TCP, time for a byte *", "fio, *"]
INTERVAL_RATIOS = ["set every * s: slow-down", "* copies, set every * s: slow-down"]


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
    def __init__(self, folder, sizes):
        self.boxes, self.folder, self.sizes = boxes(), folder, sizes
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

    def pauses_s(self, pool):
        """The pauses of the job of seconds(), saved on demand."""
        with self.job(pool, 3, 32, 100_000) as job:
            job.wait_for("round 20", seconds=120)
            for _ in range(self.sizes.sets):
                job.checkpoint()
            return [one["pause_ms"] / 1e3 for one in job.status()["checkpoints"]]

    def new_bytes(self, pool):
        """Returns how many bytes this pool has stored. Equal content counts once."""
        told = json.loads(self.boxes.run(self.boxes.BIN / "stdchk", "report", "--json", "--pool", pool.state).stdout)
        return told["written_bytes"] - told["saved_bytes"]

    def sets(self, pool, ranks, mib, count):
        """Returns the figures of `count` checkpoints, and the time in ms of a restart of the newest."""
        with self.job(pool, ranks, mib, 100_000, "--nodes", 2) as job:
            job.wait_for("round 20", seconds=120)
            for _ in range(count):
                job.checkpoint()
            taken = job.status()["checkpoints"]
            job.kill()
            again = self.boxes.Job(pool, self.base, job.name, job.name, command="restart")
            try:
                again.wait_for("runs again from set", "err", 120)
                return taken, int(re.search(r"runs again from set T\d+, (\d+) ms", again.err)[1])
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


    def gaps(self, pool, seconds, *options):
        """Runs 3 ranks of 32 MiB for so many seconds. Returns the seconds between its lines, of which each 20 rounds print one,
        and the pauses of the sets in ms."""
        with self.job(pool, 3, 32, 100_000_000, *options) as job:
            job.wait_for("round 0", seconds=120)
            time.sleep(seconds)
            if job.process.poll() is not None:
                raise Failure(job.err)
            at = [when for when, line in zip(job.read_at["out"], job.lines["out"]) if line.startswith("round ")]
            pauses = [int(ms) for ms in re.findall(r"stood still for (\d+) ms", job.err)]
            job.kill()
        return [later - earlier for earlier, later in itertools.pairwise(at)], pauses


def changes_mib(pool, job, number):
    """The upper folders of the overlays in a set of the job, in MiB."""
    size = 0
    for path in (pool.mount / job.name).glob(f"{job.name}.N*.T{number}"):
        if ".N0." not in path.name:
            with tarfile.open(path) as archive:
                size += archive.getmember("upper.tar").size
    return size / MIB


def costs(report, bench):
    shares = {"quiesce": [], "save": [], "open and resume": []}
    for ranks, mib in [(4, size) for size in (8, 64, 192)] + [(number, 16) for number in NUMBERS]:
        with bench.pool() as pool:
            taken, restart = bench.sets(pool, ranks, mib, bench.sizes.sets)
        name = f"{ranks} ranks of {mib} MiB"
        report.add(f"{name}: pause", Series([one["pause_ms"] for one in taken], "ms"))
        report.add(f"{name}: complete", Series([one["complete_ms"] for one in taken], "ms"))
        report.add(f"{name}: images", Series([one["image_bytes"] / MIB for one in taken], "MiB"))
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
        for _ in range(bench.sizes.sets):
            job.checkpoint()
            told = json.loads(bench.boxes.run(bench.boxes.BIN / "stdchk", "report", "--json", "--pool", pool.state).stdout)
            now = (told["saved_bytes"], told["written_bytes"])
            shares.append((now[0] - before[0]) / (now[1] - before[1]))
            before = now
        report.add("saved by naming, first set", Series(shares[:1], ""))
        report.add("saved by naming, second set", Series(shares[1:], ""))


FILES_GROW = """
for i in 1 2 3 4; do
  head -c 8M /dev/urandom >/var/tmp/file.$i
  /.stdchk/checkpoint
  sleep 8  # the set is measured
done
"""


def files(report, bench):
    """Measures sets of a job that writes new files before each set. A set has all changes since the job's start. The pool finds
    equal content by chunks of a fixed size, or with the policy chunking=content by chunks that move with their content."""
    (bench.base.root / "opt" / "stdchk-test" / "files_grow.sh").write_text(FILES_GROW)
    for policy in ("fixed", "content"):
        name = f"8 MiB of new files before each set, chunking={policy}"
        options = ("--policy", f"chunking={policy}")
        with bench.pool() as pool, bench.words(pool, 1, "sh /opt/stdchk-test/files_grow.sh", *options) as job:
            before = bench.new_bytes(pool)
            for number in range(1, 5):
                job.wait_for(f"goes-on {number}", seconds=120)
                stored = bench.new_bytes(pool)
                report.add(f"{name}, set {number}: changes of files", Series([changes_mib(pool, job, number)], "MiB"))
                report.add(f"{name}, set {number}: new bytes in the pool", Series([(stored - before) / MIB], "MiB"))
                before = stored


def slow_down(report, bench):
    """Compares runs with sets at intervals to runs without sets. The prediction beside each row knows the pause of a set on
    demand, the number of sets, and the time without sets."""
    sizes = bench.sizes
    with bench.pool() as pool:
        plain = [bench.gaps(pool, sizes.run_s)[0] for _ in range(sizes.turns)]
        pause_s = statistics.median(bench.pauses_s(pool))
    report.add("run without sets, 20 rounds", Series([1e3 * statistics.median(gaps) for gaps in plain], "ms"))
    report.add("run without sets: mean of median", Series([mean_of_median(gaps) for gaps in plain], ""))
    report.add("3 ranks of 32 MiB: pause", Series([1e3 * pause_s], "ms"))
    for copies, every in sizes.runs():
        runs, model = [], []
        with bench.pool("--benefactors", "4", "--policy", f"copies={copies}") as pool:
            for each in plain:
                gaps, pauses = bench.gaps(pool, sizes.seconds(every), "--every", str(every))
                if not pauses:
                    raise Failure(f"no set was complete in {sum(gaps):.0f} s, at an interval of {every} s")
                runs.append(mean_of_median(gaps) / mean_of_median(each))
                model.append(predicted(pause_s, len(pauses), len(gaps) * statistics.median(gaps)))
        name = f"set every {every} s" if copies == 1 else f"{copies} copies, set every {every} s"
        report.add(f"{name}: slow-down", Series(runs, ""), PREDICTED, Series(model, ""))


def mean_of_median(gaps):
    """The mean in units of the median. A set makes few of the gaps longer, so the median is the time without sets. The speed of
    the machine changes within minutes, and cancels out."""
    return statistics.mean(gaps) / statistics.median(gaps)


def lazy_restart(report, bench):
    """Measures a restart that loads memory on demand, and one that loads all memory first."""
    turns = bench.sizes.turns
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

    def load_ms(self, folder):
        """Restores the process from a folder's images. Returns the ms until it runs, and ends it."""
        pid = folder / "restored.pid"
        began = time.monotonic()
        done = subprocess.run([self.criu, "restore", "--images-dir", folder, "--restore-detached", "--pidfile", pid, "-v1"],
                              capture_output=True, text=True, timeout=300, check=False)
        took = 1e3 * (time.monotonic() - began)
        if done.returncode != 0:
            raise Failure(f"CRIU cannot restore: {done.stdout}{done.stderr}")
        os.kill(int(pid.read_text()), signal.SIGKILL)
        return took

    def _dump(self, pid, folder, *options):
        done = subprocess.run([self.criu, "dump", "--tree", str(pid), "--images-dir", folder, "--leave-running", "-v1", *options],
                              capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            raise Failure(f"CRIU cannot dump: {done.stdout}{done.stderr}")


def ways_of_saving(report, bench):
    """Compares the ways of CRIU's images into the pool: by way of memory, as jobs do, and two direct ones. Dumps onto a local
    disk, and restores from there, from the pool and from memory, are beside them."""
    ways = ("by_memory", "into_the_mount", "by_page_server", "onto_disk")
    times = {way: [] for way in ways}
    loads = {way: [] for way in ways}
    with bench.pool() as pool:
        for turn in range(bench.sizes.turns):
            for way in ways:
                disk = way == "onto_disk"
                near = pathlib.Path(tempfile.mkdtemp(dir="/dev/shm"))
                far = (bench.folder if disk else pool.mount) / f"{way}-{turn}"
                far.mkdir()
                try:
                    saving = Saving(bench.base.criu, near, far)
                    times[way].append(saving.save(saving.into_the_mount if disk else getattr(saving, way)))
                    if way != "by_page_server":
                        loads[way].append(saving.load_ms(near if way == "by_memory" else far))
                finally:
                    shutil.rmtree(near)
                    if disk:
                        shutil.rmtree(far)
    dumps = {way: Series([each[0] for each in taken], "ms") for way, taken in times.items()}
    for way, name in (("into_the_mount", "CRIU straight into the mount"), ("by_page_server", "CRIU by its page server into the mount"),
                      ("onto_disk", "CRIU onto a local disk")):
        report.add(f"{name}: pause", dumps[way], "by way of memory", dumps["by_memory"])
    report.add("by way of memory: in the pool", Series([each[1] for each in times["by_memory"]], "ms"))
    for way, name in (("into_the_mount", "CRIU from the mount"), ("onto_disk", "CRIU from a local disk")):
        report.add(f"{name}: restore", Series(loads[way], "ms"), "from memory", Series(loads["by_memory"], "ms"))


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
mount -t proc proc "$1/root/proc" && mount --bind /dev "$1/root/dev" && mount -t sysfs sysfs "$1/root/sys"  # UCX looks for network devices there
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
        settings = ["FI_PROVIDER=tcp", "UCX_TLS=tcp,self", "UCX_NET_DEVICES=lo"] if tcp else []
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
    cases = [("HPL", "Gflop/s", 3, f"{as_root} " + hpl.format("--map-by :OVERSUBSCRIBE --mca btl tcp,self --mca btl_tcp_if_include lo"), hpl.format("")),
             ("OpenMP, two threads", "s", 1, "/opt/stdchk-test/open_mp", "/opt/stdchk-test/open_mp")]
    with bench.pool() as pool:
        for name, unit, ranks, outside, inside in cases:
            values = {"bare": [], "contained": []}
            for _ in range(bench.sizes.turns):
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
    turns = bench.sizes.turns
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
        rounds = 200 if turns == 1 else 1000
        contained = [bench.seconds(pool, rounds, whole=True)[0] for _ in range(turns)]
    for tcp, ceiling in ((True, "bare, over TCP"), (False, "bare, over shared memory")):
        report.add(f"MPI ring beside {ceiling}: in containers", Series(contained, "s"), ceiling,
                   Series([bare.ring_seconds(3, 32, rounds, tcp) for _ in range(turns)], "s"))
    programs_against_bare(report, bench, bare)


def measure(report, folder, sizes):
    print(f"  about {sizes.minutes():.0f} minutes", flush=True)
    bench = Bench(pathlib.Path(folder), sizes)
    costs(report, bench)
    naming(report, bench)
    files(report, bench)
    ways_of_saving(report, bench)
    lazy_restart(report, bench)
    against_bare(report, bench)


def measure_intervals(report, folder, sizes):
    print(f"  about {sizes.minutes_of_intervals():.0f} minutes", flush=True)
    slow_down(report, Bench(pathlib.Path(folder), sizes))
