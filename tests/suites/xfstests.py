#!/usr/bin/env python3
"""Runs tests of an xfstests that is built in DIR, on two pools that run, and the tests that fail again on tmpfs.

Usage: xfstests.py DIR WORK RESULTS --bin FOLDER --pool NAME=STATE... [--group GROUP] [--test TEST]... [--deadline SECONDS]

WORK is an empty folder. --bin has the programs of stdchk. NAME is test or scratch, STATE is the state directory of that
pool, which has no mount. A test that does not end within the deadline is killed, and counts as a failure.
The program runs itself again in a mount namespace. There the users that xfstests wants exist.
"""
import argparse
import os
import pathlib
import re
import selectors
import subprocess
import sys
import time

from results import FAIL, HANG, NOT_RUN, PASS, Results, children, kill_tree

HERE = pathlib.Path(__file__).resolve().parent
INSIDE = "STDCHK_SUITES_INSIDE"
TEST = re.compile(r"^([a-z0-9]+/\d+)\b")
# Tests that change the machine, or examine its memory, not files.
EXCLUDED = ()
USERS = (("fsgqa", 60001), ("fsgqa2", 60002), ("123456-fsgqa", 60003))
PATIENCE_S = 30  # after a kill


def enter_namespace(work):
    """Starts this program again in a mount namespace."""
    os.execvpe("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv],
               {**os.environ, INSIDE: str(work)})


def add_users(work):
    """Lays copies of the lists of users and groups, with more users, over those of the machine."""
    for name, line in (("passwd", "{0}:x:{1}:{1}::/:/bin/bash"), ("group", "{0}:x:{1}:"),
                       ("shadow", "{0}:*:19000::::::")):
        text = pathlib.Path("/etc", name).read_text(encoding="utf-8")
        more = [line.format(*user) for user in USERS if not re.search(rf"^{user[0]}:", text, re.M)]
        (work / name).write_text(text + "".join(f"{one}\n" for one in more), encoding="utf-8")
        subprocess.run(["mount", "--bind", work / name, f"/etc/{name}"], check=True)


def lay_helpers(work):
    """Lays a helper that knows pools over mount.fuse. Returns a folder that comes first in PATH.

    For the type fuse.stdchk, mount(8) starts mount.fuse, because there is no mount.fuse.stdchk. Without systemd-run,
    xfstests starts its tests as its own processes. Otherwise systemd would end the mounts with the test. xfstests takes
    the type of a mount from df, and wants to read `fuse`.
    """
    subprocess.run(["mount", "--bind", HERE / "mount-helper", os.path.realpath("/sbin/mount.fuse")], check=True)
    folder = work / "programs"
    folder.mkdir()
    programs = {"systemd-run": "exit 1", "df": "set -o pipefail\n/usr/bin/df \"$@\" | sed 's/ fuse\\.stdchk / fuse        /'"}
    for name, text in programs.items():
        (folder / name).write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
        (folder / name).chmod(0o755)
    return folder


def on_pools(asked, work):
    """Returns the environment of check for the two pools."""
    environment = {**os.environ, "FSTYP": "fuse", "FUSE_SUBTYP": ".stdchk", "STDCHK_SUITES_BIN": asked.bin,
                   "PATH": f"{lay_helpers(work)}:{os.environ['PATH']}", "STDCHK_SUITES_LOGS": str(work)}
    for name, state in (pool.split("=", 1) for pool in asked.pool):
        environment[f"STDCHK_SUITES_{name.upper()}"] = state
    return environment


def on_tmpfs():
    return {**os.environ, "FSTYP": "tmpfs", "MOUNT_OPTIONS": "-o size=1G", "TEST_FS_MOUNT_OPTS": "-o size=1G"}


class Check:
    """Reads what `check` of xfstests prints, and kills tests that do not end."""

    def __init__(self, folder, work, environment, words, deadline_s, results):
        self.results, self.deadline_s, self.name = results, deadline_s, work.name
        places = {"TEST_DIR": work / "test", "SCRATCH_MNT": work / "scratch", "RESULT_BASE": work / "results"}
        for place in places.values():
            place.mkdir(mode=0o700)
        environment = {**environment, **{key: str(place) for key, place in places.items()},
                       "TEST_DEV": "posix:test", "SCRATCH_DEV": "posix:scratch", "HOST_OPTIONS": str(work / "none")}
        (work / "none").write_text("", encoding="utf-8")
        self.log = open(work / "check.out", "w", encoding="utf-8")
        self.process = subprocess.Popen(["./check", *words], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        self.test, self.began, self.text, self.killed = None, 0.0, "", False

    def run(self):
        out = self.process.stdout
        os.set_blocking(out.fileno(), False)
        with selectors.DefaultSelector() as waiting, self.log:
            waiting.register(out, selectors.EVENT_READ)
            while True:
                if waiting.select(timeout=1):
                    some = out.read()
                    if not some:
                        break
                    self.take(some.decode(errors="replace"))
                if self.test and time.monotonic() - self.began > self.deadline_s:
                    self.kill()
        self.process.wait()
        self.finish()

    def take(self, text):
        self.log.write(text)
        self.log.flush()
        for part in text.splitlines(keepends=True):
            self.text += part
            begin = self.text.rfind("\n", 0, -1) + 1
            found = TEST.match(self.text[begin:])
            if found and found.group(1) != self.test:
                before, self.text = self.text[:begin], self.text[begin:]
                self.finish(before)
                self.test, self.began, self.killed = found.group(1), time.monotonic(), False

    def finish(self, text=None):
        """Judges the test whose output is complete."""
        text, test = self.text if text is None else text, self.test
        self.test = None
        if not test:
            return
        first = text.splitlines()[0][len(test):] if text else ""
        if self.killed:
            self.results.add(test, HANG, f"it ran longer than {self.deadline_s} s")
        elif "[not run]" in first:
            self.results.add(test, NOT_RUN, first.partition("[not run]")[2])
        elif "[expunged]" in first:
            self.results.add(test, NOT_RUN, "excluded")
        elif re.fullmatch(r"\s+(\d+s \.\.\. )?\s*\d+s\s*", first):
            self.results.add(test, PASS)
        else:
            self.results.add(test, FAIL, text[len(test):])

    def kill(self):
        """Ends the processes of a test. If it stays, a process waits in the kernel: then check ends too."""
        scripts = []
        for pid in children(self.process.pid):
            try:
                name = pathlib.Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
            except OSError:
                continue
            if name == self.test.rpartition("/")[2]:
                scripts.append(pid)
        if self.killed or not scripts:
            kill_tree(self.process.pid)
        for pid in scripts:
            kill_tree(pid)
        self.killed = True
        self.began = time.monotonic() - self.deadline_s + PATIENCE_S


def run(asked, work, environment, words, results):
    work.mkdir()
    Check(asked.dir, work, environment, words, asked.deadline, results).run()
    for name in ("scratch", "test"):
        subprocess.run(["umount", "-l", work / name], check=False, stderr=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("results")
    parser.add_argument("--bin", required=True)
    parser.add_argument("--pool", action="append", required=True)
    parser.add_argument("--group", default="quick")
    parser.add_argument("--test", action="append", default=[])
    parser.add_argument("--deadline", type=int, default=300)
    asked = parser.parse_args()
    if INSIDE not in os.environ:
        enter_namespace(asked.work)
    add_users(asked.work)
    words = asked.test or ["-g", f"generic/{asked.group}"]
    excluded = asked.work / "excluded"
    excluded.write_text("".join(f"{test}\n" for test in EXCLUDED), encoding="utf-8")
    results = Results(asked.results)
    run(asked, asked.work / "pool", on_pools(asked, asked.work), ["-E", str(excluded), *words], results)
    failed = results.failed()
    if failed:
        other = Results(asked.results + ".tmpfs")
        run(asked, asked.work / "tmpfs", on_tmpfs(), failed, other)
        results.compare(other)
    print(*results.counts())


if __name__ == "__main__":
    sys.exit(main())
