"""Measures clones of processes, and one file to many hosts: the sections "fork" and "cast" of bench/run.

The figures are those of the SnowFlock paper: the times of a clone, the state that is sent (table 2), and multicast against
unicast. Root only. Each section takes less than ten minutes on two processors.
"""

import json
import os
import pathlib
import subprocess
import sys

from report import Failure, Series

ROOT = pathlib.Path(__file__).resolve().parent.parent
CLONES = (1, 8, 32)
HOSTS = (1, 4, 16)
LOSSES = {0: "", 10: ", 1 % lost", 50: ", 5 % lost"}
WAYS = ("clones", "suspend and resume, multicast", "suspend and resume, unicast")
LONGEST_S = 1200
RATE_MBIT = 100

FORK_RATIOS = [f"{merged}: {count} clones, pause" for merged in ("4 KiB pages", "huge pages") for count in CLONES] + [
    f"4 hosts, {what}: {of}" for what in WAYS[:1] for of in ("time", "sent")]
FORK_FIGURES = [f"{merged}: {count} clones, {what}" for merged in ("4 KiB pages", "huge pages") for count in CLONES
                for what in ("all run", "memory of all")] + [f"4 hosts, {way}: {of}" for way in WAYS for of in ("time", "sent")]
CAST_RATIOS = [f"{count} hosts{lost}" for count in HOSTS for lost in LOSSES.values()]
CAST_FIGURES = [f"{count} hosts{lost}: bytes on the sender's link" for count in HOSTS for lost in LOSSES.values()]


def missing():
    """Returns the reason why this machine cannot run the sections, or None."""
    return None if os.geteuid() == 0 else "root only"


def fork_mib(quick):
    return 64 if quick else 1024


def cast_mib(quick):
    return 4 if quick else 32


def run_json(bin_dir, script, *words):
    """Runs a script of this folder. Returns the values of its lines that are JSON."""
    done = subprocess.run([sys.executable, ROOT / "bench" / script, "--json", *map(str, words)], capture_output=True, text=True,
                          timeout=LONGEST_S, env=dict(os.environ, STDCHK_BIN=str(bin_dir)))
    if done.returncode != 0:
        raise Failure(f"{script}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def measure_fork(report, bin_dir, quick):
    mib, rounds = fork_mib(quick), 2 if quick else 3
    if why := missing():
        return report.not_run(why)
    (found,) = run_json(bin_dir, "fork.py", "--mib", mib, "--rounds", rounds, "--clones", ",".join(map(str, CLONES)))
    for case in found["cases"]:
        def series(name, unit="ms", case=case):
            return Series([one[name] for one in case["rounds"]], unit, found["taken"])
        name = f"{'huge pages' if case['merged'] else '4 KiB pages'}: {case['clones']} clones"
        report.add(f"{name}, pause", series("pause"), "fork(2)", series("fork"))
        report.add(f"{name}, all run", series("last"))
        report.add(f"{name}, memory of all", series("pss_mib", "MiB"), "the parent's data",
                   Series([found["mib"]] * rounds, "MiB", found["taken"]))
    (found,) = run_json(bin_dir, "state_sent.py", "--mib", mib // 4, "--hosts", 4, "--rounds", rounds)
    suspended = Series(found["ways"][WAYS[1]]["seconds"], "s", found["taken"])
    data = Series([found["mib"]] * rounds, "MiB", found["taken"])
    for way in WAYS:
        times = Series(found["ways"][way]["seconds"], "s", found["taken"])
        sent = Series(found["ways"][way]["sent_mib"], "MiB", found["taken"])
        report.add(f"4 hosts, {way}: time", times, "suspended, multicast", suspended)
        report.add(f"4 hosts, {way}: sent", sent, "the data", data)
    return None


def measure_cast(report, bin_dir, quick):
    rate, size, rounds = RATE_MBIT, cast_mib(quick), 2 if quick else 3
    if why := missing():
        return report.not_run(why)
    lines = run_json(bin_dir, "cast.py", "--rate", rate, "--size", size, "--rounds", rounds, "--hosts", *HOSTS, "--lose", *LOSSES)
    for line in lines:
        name = f"{line['hosts']} hosts{LOSSES[line['lose']]}"
        least = line["hosts"] * (size << 20) * 8 / rate / 1e6
        report.add(name, Series(line["seconds"], "s", line["taken"]), "unicast, at least", Series([least] * rounds, "s", line["taken"]))
        report.add(f"{name}: bytes on the sender's link", Series(line["images"], "images", line["taken"]), "one image",
                   Series([1] * rounds, "images", line["taken"]))
        report.add(f"{name}: processors", Series(line["processors"], "", line["taken"]))
    return None
