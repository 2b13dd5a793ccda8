#!/usr/bin/env python3
"""Soak test: LAMMPS runs in containers and is saved at intervals, while nodes are killed at random. The result must equal
the result of an undisturbed run.

Usage: tests/integration/container_soak.py [--minutes 3] [--every 30] [--loss 120] [--losses-max 60] [--losses-least 1] [--seed 1]
       tests/integration/container_soak.py --short

A loss kills the daemon of a node that has containers (SIGKILL). The node's containers and their network end with the daemon.
The job continues on spare nodes. MINUTES is the time of the undisturbed run, which comes first. A node is lost 0.6 to
1.2 LOSS seconds after each restart. Prints a line for each loss, and a summary. The exit status is 1 when the results differ, or
when the program has ended before LOSSES_LEAST losses. An hour with 30 losses is `--minutes 60`.

--short takes 5 to 6 minutes: about two without losses, and three with a checkpoint each 15 s and four losses. A loss comes
15 to 30 s after a restart: before, during or after the next checkpoint. So each loss costs at most one interval, and the program
does not end before the fourth. Needs root and scripts/trixie-root --with lammps; without them the status is 125.
"""

import argparse
import json
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from boxes import TRIXIE, Base, Job, Pool, why_not  # noqa: E402
from container_programs_test import FILES, mpi, of_lammps  # noqa: E402

NODES_OF_THE_JOB = 3
CANNOT_RUN = 125
TRIED_STEPS = 100  # of the run that measures the time of a step
# The longest time between a restart and a loss is 1.2 * 25 s, twice the interval of checkpoints. So the first set and one
# more set for each loss are 75 s of the program, and it has 105 s.
SHORT = {"minutes": 1.75, "every": 15, "loss": 25, "losses_max": 4, "losses_least": 4}


def lammps(steps):
    return mpi("lmp", "-in", "/opt/stdchk-test/melt.in", "-log", "none", "-var", "steps", str(steps))


def undisturbed(pool, base, steps):
    """Returns the result, the seconds of the whole run, and those of a step."""
    began = time.monotonic()
    job = Job(pool, base, f"straight-{steps}", *lammps(steps))
    try:
        assert job.wait(100_000) == 0, f"{job.out}\n{job.err}"
        seconds, ran = re.search(r"Loop time of ([\d.]+) on \d+ procs for (\d+) steps", job.out).groups()
        return of_lammps(job.out), time.monotonic() - began, float(seconds) / int(ran)
    finally:
        job.end()


def lose_one(job, dice):
    """Kills a node that has containers. Returns its name and the seconds until the job runs again."""
    busy = [node["host"] for node in job.status()["nodes"] if node["alive"] and node["boxes"]]
    host = dice.choice(busy)
    began, runs = time.monotonic(), job.err.count("runs again from set") + job.err.count("begins anew")
    os.kill(job.nodes()[int(host.removeprefix("node"))], signal.SIGKILL)
    while job.err.count("runs again from set") + job.err.count("begins anew") == runs:
        if job.process.poll() is not None or time.monotonic() - began > 300:
            raise AssertionError(f"the job does not run again\n{job.err}")
        time.sleep(0.1)
    return host, time.monotonic() - began


def soak(arguments, pool, base):
    dice = random.Random(arguments.seed)
    started = time.monotonic()
    _, _, step = undisturbed(pool, base, TRIED_STEPS)
    steps = max(TRIED_STEPS, int(arguments.minutes * 60 / step) // 100 * 100)
    print(f"a step takes {1e3 * step:.1f} ms: about {2 * arguments.minutes + 1 + arguments.losses_max / 4:.0f} minutes at most", flush=True)
    expected, alone, _ = undisturbed(pool, base, steps)
    print(f"undisturbed: {steps} steps in {alone:.0f} s", flush=True)
    job = Job(pool, base, "soak", "--nodes", NODES_OF_THE_JOB + arguments.losses_max, "--spares", arguments.losses_max, "--lease", 2,
              "--retries", arguments.losses_max, "--every", arguments.every, *lammps(steps))
    again = []
    began = time.monotonic()
    try:
        job.wait_for("is complete after", "err", 300)
        while job.process.poll() is None and len(again) < arguments.losses_max:
            try:
                job.process.wait(arguments.loss * dice.uniform(0.6, 1.2))
            except subprocess.TimeoutExpired:
                host, took = lose_one(job, dice)
                again.append(took)
                print(f"{time.monotonic() - began:6.0f} s: {host} killed, the job runs again after {took:.1f} s", flush=True)
        status = job.wait(100_000)
    finally:
        job.end()
    pauses = [int(ms) for ms in re.findall(r"stood still for (\d+) ms", job.err)]
    equal = status == 0 and of_lammps(job.out) == expected
    return {"steps": steps, "whole_s": round(time.monotonic() - started), "undisturbed_s": round(alone), "disturbed_s": round(time.monotonic() - began), "losses": len(again),
            "sets": len(pauses), "given_up": job.err.count("is cancelled"),
            "pause_ms_median": statistics.median(pauses), "pause_ms_worst": max(pauses),
            "again_s_median": round(statistics.median(again), 1) if again else None,
            "again_s_worst": round(max(again), 1) if again else None, "equal": equal, "status": status}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--every", type=int, default=30)
    parser.add_argument("--loss", type=float, default=120)
    parser.add_argument("--losses-max", type=int, default=60)
    parser.add_argument("--losses-least", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--short", action="store_true", help="four losses, a checkpoint each 15 s, 5 to 6 minutes")
    arguments = parser.parse_args()
    if arguments.short:
        parser.set_defaults(**SHORT)
        arguments = parser.parse_args()
    reason = why_not()
    if reason is None and subprocess.run([TRIXIE, "--with", "lammps"], stdout=subprocess.DEVNULL, check=False).returncode != 0:
        reason = "scripts/trixie-root has made no system with LAMMPS"
    if reason is not None:
        print(f"NOT RUN: {reason}")
        return CANNOT_RUN
    base = Base()
    (base.root / "opt" / "stdchk-test" / "melt.in").write_text(FILES["melt.in"])
    with tempfile.TemporaryDirectory() as folder:
        pool = Pool(pathlib.Path(folder))
        try:
            done = soak(arguments, pool, base)
        finally:
            pool.down()
    print(json.dumps(done))
    if done["losses"] < arguments.losses_least:
        print(f"the program has ended before loss {arguments.losses_least}")
        return 1
    return 0 if done["equal"] else 1


if __name__ == "__main__":
    sys.exit(main())
