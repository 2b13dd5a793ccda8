#!/usr/bin/env python3
"""Runs the stressors of stress-ng's classes filesystem and io, one by one, in a folder of the pool.

Usage: stress_ng.py FOLDER RESULTS [--deadline SECONDS]

Each stressor verifies what it does. It runs for 2 s, and fails when it does not end within the deadline.
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
# These examine files of the kernel, or devices.
OTHERS = {"binderfs": "is about devices", "procfs": "is about files of the kernel", "rawdev": "is about devices"}


def stressors():
    names = set()
    for kind in ("filesystem", "io"):
        said = subprocess.run(["stress-ng", "--class", f"{kind}?"], check=True, capture_output=True, text=True, timeout=20)
        names |= set((said.stdout + said.stderr).rpartition("stressors:")[2].split())
    return sorted(names)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("results")
    parser.add_argument("--deadline", type=int, default=180)
    asked = parser.parse_args()
    results = Results(asked.results)
    for name in stressors():
        if name in OTHERS:
            results.add(name, NOT_RUN, f"left out: {OTHERS[name]}")
            continue
        place = tempfile.mkdtemp(prefix="stress.", dir=asked.folder)
        status, out = run_before(asked.deadline, ["stress-ng", f"--{name}", "1", "--timeout", "2s", "--verify",
                                                  "--temp-path", place], cwd=place)
        shutil.rmtree(place, ignore_errors=True)
        told = [line for line in out.splitlines() if re.search(r"\b(fail|error|skipp\w+|unsuccessful)\b", line)]
        reason = " / ".join(re.sub(r"^stress-ng: \w+: +\[\d+\] ", "", line) for line in told[:3])
        if status is None:
            results.add(name, HANG, f"it ran longer than {asked.deadline} s: {reason}")
        elif status == 0 and re.search(r"skipped: [1-9]|not run any stressors", out):
            results.add(name, NOT_RUN, reason)
        else:
            result = STATUSES.get(status, FAIL)
            results.add(name, result, "" if result == PASS else reason or f"status {status}")
    print(*results.counts())


if __name__ == "__main__":
    sys.exit(main())
