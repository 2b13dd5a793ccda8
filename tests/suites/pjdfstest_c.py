#!/usr/bin/env python3
"""Runs the C pjdfstest, built in DIR, in a folder of the pool.

Usage: pjdfstest_c.py DIR FOLDER RESULTS --other FOLDER [--deadline SECONDS]

FOLDER is on the pool. Each check has the deadline. Files with failures run again in the folder --other, which is
on another file system.
"""
import argparse
import os
import pathlib
import re
import shutil
import sys
import tempfile

from results import FAIL, HANG, NOT_RUN, PASS, Results, run_before

LINE = re.compile(r"^(not )?ok (\d+)(.*)$", re.M)


def run_file(file, top, folder, deadline_s, results):
    """Runs one file of tests in a folder of its own."""
    name = str(file.relative_to(top))
    place = tempfile.mkdtemp(prefix="pjd.", dir=folder)
    os.chmod(place, 0o755)  # the tests change to other users
    status, out = run_before(deadline_s, ["sh", str(file)], each_line=True, cwd=place)
    plan = re.search(r"^1\.\.(\d+)", out, re.M)
    seen = 0
    for bad, number, text in LINE.findall(out):
        seen += 1
        if "# TODO" in text:  # the suite itself expects that failure
            results.add(f"{name}:{number}", NOT_RUN if bad else PASS, text)
        else:
            results.add(f"{name}:{number}", FAIL if bad else PASS, text if bad else "")
    if status is None:
        results.add(f"{name}:deadline", HANG, f"check {seen + 1} ran longer than {deadline_s} s")
    elif plan is None or int(plan.group(1)) != seen:
        results.add(f"{name}:plan", FAIL, f"{seen} checks, not {plan.group(1) if plan else 'a planned number'}")
    elif seen == 0:
        results.add(name, NOT_RUN, "the suite leaves it out on Linux")
    shutil.rmtree(place, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("folder")
    parser.add_argument("results")
    parser.add_argument("--other", required=True)
    parser.add_argument("--deadline", type=int, default=300)
    asked = parser.parse_args()
    top = asked.dir / "tests"
    results = Results(asked.results)
    for file in sorted(top.rglob("*.t")):
        run_file(file, top, asked.folder, asked.deadline, results)
    other = Results(asked.results + ".other")
    for name in sorted({test.rpartition(":")[0] for test in results.failed()}):
        run_file(top / name, top, asked.other, asked.deadline, other)
    results.compare(other)
    print(*results.counts())


if __name__ == "__main__":
    sys.exit(main())
