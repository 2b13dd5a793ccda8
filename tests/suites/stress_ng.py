#!/usr/bin/env python3
"""Runs the stressors of stress-ng's classes filesystem and io, one by one, in a folder of the pool.

Usage: stress_ng.py FOLDER RESULTS --other FOLDER [--deadline SECONDS]

Each stressor verifies what it does. It runs for 2 s, and fails when it does not end within the deadline. Stressors that
fail run again in the folder --other, which is on ext4.
"""
import argparse
import re
import shutil
import subprocess
import sys
import tempfile

from results import FAIL, HANG, NOT_RUN, PASS, Results, run_before

# From the man page: 3 no resource, 4 not implemented here.
STATUSES = {0: PASS, 3: NOT_RUN, 4: NOT_RUN}
# Stressors of devices and of the kernel's own files.
OTHERS = {"binderfs": "is about devices", "procfs": "is about files of the kernel", "rawdev": "is about devices"}


def stressors():
    names = set()
    for kind in ("filesystem", "io"):
        said = subprocess.run(["stress-ng", "--class", f"{kind}?"], check=True, capture_output=True, text=True, timeout=20)
        names |= set((said.stdout + said.stderr).rpartition("stressors:")[2].split())
    return sorted(names)


def run_stressor(name, folder, deadline_s):
    """Runs a stressor in an empty folder. Returns the result and the reason."""
    place = tempfile.mkdtemp(prefix="stress.", dir=folder)
    status, out = run_before(deadline_s, ["stress-ng", f"--{name}", "1", "--timeout", "2s", "--verify", "--temp-path", place],
                             cwd=place)
    shutil.rmtree(place, ignore_errors=True)
    told = [line for line in out.splitlines() if re.search(r"\b(fail|error|skipp\w+|unsuccessful|pathological)\b", line)]
    reason = " / ".join(re.sub(r"^stress-ng: \w+: +\[\d+\] ", "", line) for line in told[:3])
    if status is None:
        return HANG, f"it ran longer than {deadline_s} s: {reason}"
    if re.search(r"skipped: [1-9]|No stress workers invoked", out):
        return NOT_RUN, reason
    result = STATUSES.get(status, FAIL)
    return result, "" if result == PASS else reason or f"status {status}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("results")
    parser.add_argument("--other", required=True)
    parser.add_argument("--deadline", type=int, default=180)
    asked = parser.parse_args()
    results, other = Results(asked.results), Results(asked.results + ".other")
    for name in stressors():
        if name in OTHERS:
            results.add(name, NOT_RUN, f"left out: {OTHERS[name]}")
            continue
        results.add(name, *run_stressor(name, asked.folder, asked.deadline))
        if name in results.failed():
            other.add(name, *run_stressor(name, asked.other, asked.deadline))
    results.compare(other)
    print(*results.counts())


if __name__ == "__main__":
    sys.exit(main())
