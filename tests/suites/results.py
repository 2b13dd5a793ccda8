"""Results of a public suite: one for each of its tests, with a reason, and their comparison with another file system."""

import os
import selectors
import signal
import subprocess
import time

PASS, FAIL, NOT_RUN, HANG, ALIKE = "pass", "fail", "notrun", "hang", "alike"
AFTER_KILL_S = 20


class Results:
    """Keeps what became of each test.

    A test is `alike` when it fails in the same way on the file system of the comparison: the failure is not the pool's.
    A test is `hang` when its deadline passed. Table and list count it as a failure.
    """

    def __init__(self, path):
        self.path = path
        self.of = {}
        with open(path, "w", encoding="utf-8"):
            pass

    def add(self, test, result, reason=""):
        """Keeps a result, and appends it to the file: an interrupted suite leaves its results."""
        self.of[test] = (result, " ".join(reason.split())[:400])
        with open(self.path, "a", encoding="utf-8") as out:
            out.write("\t".join((test, *self.of[test])) + "\n")

    def failed(self):
        return [test for test, (result, _) in self.of.items() if result in (FAIL, HANG)]

    def compare(self, other):
        """Marks the failures that `other` has too. A test that hangs here must hang there."""
        for test in self.failed():
            result, reason = self.of[test]
            if other.of.get(test, (PASS, ""))[0] == result:
                self.of[test] = (ALIKE, reason)
        with open(self.path, "w", encoding="utf-8") as out:
            for test, (result, reason) in self.of.items():
                out.write(f"{test}\t{result}\t{reason}\n")

    def counts(self):
        """Returns total, pass, fail, notrun, alike."""
        results = [result for result, _ in self.of.values()]
        bad = results.count(FAIL) + results.count(HANG)
        return len(results), results.count(PASS), bad, results.count(NOT_RUN), results.count(ALIKE)


def children(pid):
    """Returns the descendants of a process, the nearest first."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as stat:
                parents.setdefault(int(stat.read().rpartition(")")[2].split()[1]), []).append(int(name))
        except OSError:
            continue  # the process has ended
    found, next_ones = [], [pid]
    while next_ones:
        next_ones = [child for parent in next_ones for child in parents.get(parent, [])]
        found += next_ones
    return found


def kill_tree(pid):
    """Kills a process and its descendants. SIGSTOP comes first, so that no process starts another."""
    tree = [pid, *children(pid)]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for one in tree:
            try:
                os.kill(one, number)
            except ProcessLookupError:
                pass


def run_before(deadline_s, command, each_line=False, **options):
    """Runs a command with its output in a pipe. Returns (status, output), or (None, output) after the deadline.

    With `each_line`, the deadline is for each line of the output, not for the whole command. The command gets
    namespaces of its own for processes, mounts and System V IPC. So nothing of it outlives the deadline, and no
    kill(-1) reaches other processes.
    """
    isolated = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--ipc", "--uts", *command]
    process = subprocess.Popen(isolated, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               start_new_session=True, **options)
    out, end, late = b"", time.monotonic() + deadline_s, False
    with process.stdout, selectors.DefaultSelector() as waiting:
        waiting.register(process.stdout, selectors.EVENT_READ)
        while True:
            if waiting.select(timeout=max(0, end - time.monotonic())):
                some = os.read(process.stdout.fileno(), 1 << 16)
                if not some:
                    break
                out += some
                if each_line and not late:
                    end = time.monotonic() + deadline_s
            elif late:
                break  # a process waits in the kernel, and nothing can end it
            if time.monotonic() >= end:
                kill_tree(process.pid)
                end, late = time.monotonic() + AFTER_KILL_S, True
    if not late:
        process.wait()
    return None if late else process.returncode, out.decode(errors="replace")
