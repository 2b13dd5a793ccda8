"""An island: separate namespaces for network, mounts and processes, in which a file system runs. Requires root.

All processes and mounts of an island end with its first process, even detached daemons. An
island also ends when the bench is killed."""

import contextlib
import os
import pathlib
import signal
import subprocess
import tempfile
import time

from report import Failure

ADDRESS = "10.79.9.1"  # of the island; some systems refuse 127.0.0.1
SECONDS = 60  # the deadline of a command, unless the caller gives another


class Island:
    """An Island is a set of namespaces (network, mounts, processes) with a network device that has ADDRESS.

    Owns: all processes and mounts on it. Threads: one. Errors: Failure, with the command's output."""

    def __init__(self):
        self.holder = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--pid", "--mount", "--fork", "--kill-child=KILL",
             "--mount-proc", "bash", "-c", "sleep infinity & wait"])
        try:
            self.first = self.first_process()
            self.run("ip", "link", "set", "lo", "up")
            # Mooncake refuses addresses of the loopback device. Traffic to this address still stays inside the kernel.
            self.run("ip", "link", "add", "peers0", "type", "veth", "peer", "name", "peers1")
            self.run("ip", "address", "add", f"{ADDRESS}/24", "dev", "peers0")
            for end in ("peers0", "peers1"):
                self.run("ip", "link", "set", end, "up")
        except BaseException:
            self.end()
            raise

    def first_process(self):
        """The pid, as seen outside, of the process that keeps the namespaces."""
        children = pathlib.Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children")
        until = time.monotonic() + 10
        while time.monotonic() < until and self.holder.poll() is None:
            for pid in children.read_text().split():
                # The shell replaces unshare after /proc is mounted.
                if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "bash":
                    return int(pid)
            time.sleep(0.01)
        raise Failure("no namespaces can be made: is this root?")

    def inside(self, *command):
        """The command line that runs `command` on the island."""
        return ["nsenter", "--target", str(self.first), "--net", "--pid", "--mount", *map(str, command)]

    def run(self, *command, seconds=SECONDS):
        """Runs a command on the island. Returns its standard output. Output goes to files, because a daemon may keep it open."""
        words = " ".join(map(str, command))
        with contextlib.ExitStack() as files:
            out, err = (files.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2))
            try:
                status = subprocess.run(self.inside(*command), stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                        check=False, timeout=seconds).returncode
            except subprocess.TimeoutExpired:
                status = f"none after {seconds} s"
            out.seek(0)
            err.seek(0)
            said = out.read()
            if status != 0:
                raise Failure(f"{words}: exit {status}: {said}{err.read()}")
            return said

    def wait_until(self, ready, what, seconds=SECONDS):
        """Calls `ready` repeatedly until it returns True."""
        until = time.monotonic() + seconds
        while not ready():
            if time.monotonic() > until:
                raise Failure(f"{what}: not within {seconds} s")
            time.sleep(0.02)

    def works(self, *command):
        """True when the command ends with status 0 within 10 s."""
        try:
            self.run(*command, seconds=10)
        except Failure:
            return False
        return True

    def is_mounted(self, path):
        """True when a file system is mounted at `path` on the island."""
        mounts = pathlib.Path(f"/proc/{self.first}/mounts").read_text().splitlines()
        return any(line.split()[1] == str(path) for line in mounts)

    def spawn(self, *command, log):
        """Starts a program that stays in the foreground; its output goes to `log`."""
        with open(log, "ab") as file:
            return subprocess.Popen(self.inside(*command), stdin=subprocess.DEVNULL, stdout=file, stderr=file)

    def stop(self, process, seconds=20):
        """Asks a spawned program to end (SIGTERM), and waits. The signal goes past nsenter, which would keep it."""
        for pid in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            os.kill(int(pid), signal.SIGTERM)
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise Failure(f"{' '.join(process.args)}: does not end within {seconds} s") from None

    def cover(self, *folders):
        """Hides the host's folders behind empty ones, so that no system writes into them."""
        for folder in folders:
            pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
            self.run("mount", "-t", "tmpfs", "tmpfs", folder)

    def end(self):
        """Ends all processes; the kernel unmounts what only the island saw."""
        self.holder.kill()
        self.holder.wait(timeout=20)


@contextlib.contextmanager
def island():
    made = Island()
    try:
        yield made
    finally:
        made.end()
