"""Jobs in containers: a pool, a base file system made by scripts/trixie-root, and `stdchk run`."""

import contextlib
import fcntl
import json
import os
import pathlib
import re
import shutil
import subprocess
import threading
import time
import uuid

import pytest
from processes import BIN, CALL_SECONDS, ROOT, children_of, run, wait_until

TRIXIE = ROOT / "scripts" / "trixie-root"
HANGS_UP = ("env", "--default-signal=HUP")  # these tests may run below nohup, which ignores SIGHUP
RING = pathlib.Path(__file__).parent / "container" / "ring.c"


def why_not():
    """Returns the reason why containers cannot run here, or None."""
    if os.geteuid() != 0:
        return "containers need root"
    absent = [tool for tool in ("nft", "ip", "ss", "bridge", "tar") if shutil.which(tool) is None]
    if absent:
        return f"not installed: {absent}"
    if "overlay" not in pathlib.Path("/proc/filesystems").read_text(encoding="utf-8"):
        return "the kernel has no overlayfs"
    return None


class Base:
    """The file system of containers, with test programs for both MPI libraries."""

    def __init__(self):
        made = subprocess.run([TRIXIE], capture_output=True, text=True, timeout=1200, check=False)
        if made.returncode != 0:
            pytest.skip(made.stderr.strip().splitlines()[-1])
        self.root = pathlib.Path(made.stdout.strip())
        self.criu = self.root / "criu-here"
        folder = self.root / "opt" / "stdchk-test"
        folder.mkdir(parents=True, exist_ok=True)
        # Other files of tests use this root at the same time. A program that containers run must not change.
        with open(folder / "lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            source = folder / "ring.c"
            if source.exists() and source.read_bytes() == RING.read_bytes():
                return
            shutil.copy(RING, folder / "new.c")
            for library in ("mpich", "openmpi"):
                run("chroot", self.root, f"mpicc.{library}", "-O2", "-o", "/opt/stdchk-test/new", "/opt/stdchk-test/new.c")
                (folder / "new").rename(folder / f"ring-{library}")
            (folder / "new.c").rename(source)


class Pool:
    """A pool of this host for a test."""

    def __init__(self, folder, *options, prefix=(), name="pool"):
        self.mount = folder / name
        self.state = folder / f"{name}-state"
        self.prefix = prefix
        run(*prefix, BIN / "stdchk", "up", "--benefactors", 2, "--memory", "1G", "--mount", self.mount, "--state",
            self.state, *options)

    def sets(self, job):
        """The sets of a job that the pool knows."""
        listed = run(*self.prefix, BIN / "stdchk", "set", "list", "--json", "--pool", self.state, self.mount / job)
        return json.loads(listed.stdout)["sets"]

    def down(self):
        run(*self.prefix, BIN / "stdchk", "down", "--pool", self.state, check=False)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.down()


class Job:
    """A `stdchk run` in the background."""

    def __init__(self, pool, base, name, *words, command="run", environment=None):
        self.name = name
        self.pool = pool
        self.environment = {**os.environ, "STDCHK_BIN": str(BIN), "STDCHK_CRIU": str(base.criu),
                            "STDCHK_ROOT": str(base.root), **(environment or {})}
        self.lines = {"out": [], "err": []}
        self.read_at = {"out": [], "err": []}  # the clock at each of the lines
        begin = [*pool.prefix, *HANGS_UP, BIN / "stdchk", command]
        if command == "run":
            begin += ["--name", name]
            begin += [] if any(str(word).startswith("--up") for word in words) else ["--pool", pool.state]
            begin += [] if {"--every", "--advise"} & set(words) else ["--every", "never"]
        self.process = subprocess.Popen([str(w) for w in [*begin, *words]], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env=self.environment)
        for what, stream in (("out", self.process.stdout), ("err", self.process.stderr)):
            threading.Thread(target=self._read, args=(what, stream), daemon=True).start()

    def _read(self, what, stream):
        for line in stream:
            self.read_at[what].append(time.monotonic())
            self.lines[what].append(line.rstrip("\n"))

    @property
    def out(self):
        return "\n".join(self.lines["out"])

    @property
    def err(self):
        return "\n".join(self.lines["err"])

    def wait_for(self, text, what="out", seconds=40):
        def there():
            assert self.process.poll() is None or text in "\n".join(self.lines[what]), f"{self.out}\n{self.err}"
            return text in "\n".join(self.lines[what])
        try:
            wait_until(there, f"{text!r} of job {self.name}", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.out}\n{self.err}") from None

    def wait(self, seconds=CALL_SECONDS):
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"job {self.name} does not end\n{self.out}\n{self.err}\n{self.network()}") from None
        time.sleep(0.2)  # the last lines
        return status

    def network(self):
        """Returns the addresses, neighbours and connections of each container, for the message of a failed test."""
        shown, seen, pids = [], {os.readlink("/proc/self/ns/net")}, [self.process.pid]
        for pid in pids:
            with contextlib.suppress(OSError):
                pids += children_of(pid)
                space = os.readlink(f"/proc/{pid}/ns/net")
                if space in seen:
                    continue
                seen.add(space)
                for words in ("ip -brief address show dev eth0", "ip -statistics neighbour", "ss -tino"):
                    told = run("nsenter", "-t", pid, "-n", *words.split(), check=False)
                    shown.append(f"$ {words}\n{told.stdout}{told.stderr}")
        return "\n".join(shown)

    def checkpoint(self):
        wait_until(lambda: "pid" in (self.status() or {}), "the job's coordinator listens")
        return run(BIN / "stdchk", "checkpoint", self.name, env=self.environment).stdout.strip()

    def nodes(self):
        """The processes of the nodes' daemons, or of the remote shells that have started them, in order."""
        return [int(pid) for pid in run("pgrep", "-P", self.process.pid, check=False).stdout.split()]

    def signal(self, number):
        self.process.send_signal(number)

    def status(self):
        listed = json.loads(run(BIN / "stdchk", "jobs", "--json", env=self.environment).stdout)
        return next((one for one in listed if one["job"] == self.name), None)

    def kill(self):
        """Kills the coordinator and all nodes, as the loss of the whole machine would."""
        children = run("pgrep", "-P", self.process.pid, check=False).stdout.split()
        for pid in [str(self.process.pid), *children]:
            run("kill", "-KILL", pid, check=False)
        self.process.wait(10)

    def result(self):
        found = re.findall(r"RESULT .*", self.out)
        assert len(found) == 1, f"{self.out}\n{self.err}"
        return found[0]

    def end(self):
        if self.process.poll() is None:
            self.kill()
        run(BIN / "stdchk", "jobs", "--forget", self.name, env=self.environment, check=False)


@contextlib.contextmanager
def job(pool, base, *words, **options):
    """A Job that ends with the block. Options: those of Job; `name` is random by default."""
    started = Job(pool, base, options.pop("name", f"t{uuid.uuid4().hex[:8]}"), *words, **options)
    try:
        yield started
    finally:
        started.end()
