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
import sys
import time
import uuid

from report import Failure, Series

ROOT = pathlib.Path(__file__).resolve().parent.parent
MIB = 1 << 20
COPIES = (1, 2, 3)

RATIOS = ["save: share of the pause"]
FIGURES = ["4 ranks of * MiB: pause", "4 ranks of * MiB: complete", "4 ranks of * MiB: restart", "* ranks of 16 MiB: pause",
           "saved by naming, second set", "set every * s: slow-down", "* copies, set every * s: slow-down",
           "quiesce: share of the pause", "open and resume: share of the pause"]


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

    @contextlib.contextmanager
    def job(self, pool, ranks, mib, rounds, *options):
        job = self.boxes.Job(pool, self.base, f"b{uuid.uuid4().hex[:8]}", "-n", ranks, *options, "--", "mpiexec.mpich", "-n",
                             str(ranks), "/opt/stdchk-test/ring-mpich", str(rounds), str(mib))
        try:
            yield job
        finally:
            job.end()

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

    def seconds(self, pool, rounds, *options):
        """Runs 3 ranks of 32 MiB. Returns the seconds from the first round to the end, and the pauses of the sets in ms."""
        with self.job(pool, 3, 32, rounds, *options) as job:
            job.wait_for("round 0", seconds=120)
            began = time.monotonic()
            if job.wait(1200) != 0:
                raise Failure(job.err)
            return time.monotonic() - began, [int(ms) for ms in re.findall(r"stood still for (\d+) ms", job.err)]


def costs(report, bench):
    count = 2 if bench.quick else 4
    shares = {"quiesce": [], "save": [], "open and resume": []}
    for ranks, mib in [(4, size) for size in (8, 64, 192)] + [(number, 16) for number in (2, 8, 16)]:
        with bench.pool() as pool:
            taken, restart = bench.sets(pool, ranks, mib, count)
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


def measure(report, folder, quick):
    bench = Bench(pathlib.Path(folder), quick)
    costs(report, bench)
    naming(report, bench)
    slow_down(report, bench)
