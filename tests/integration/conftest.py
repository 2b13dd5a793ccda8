"""Real pools for the tests in this folder: `stdchk up` starts them, `stdchk down` ends them."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

import pytest
from networks import Neighbour
from processes import BIN, CALL_SECONDS, is_running, run, wait_until


def pytest_collection_modifyitems(items):
    reason = None
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        reason = "/dev/fuse cannot be opened here"
    if reason:
        for item in items:
            item.add_marker(pytest.mark.skip(reason=reason))


def drop_caches():
    """Empties the kernel's page cache, so that later reads reach the pool."""
    if os.geteuid() == 0:
        run("sync")
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")


def write_random(folder, names, size):
    """Writes files of random bytes into a folder, which may exist already. Returns each name with its
    bytes."""
    folder.mkdir(exist_ok=True)
    expected = {name: os.urandom(size) for name in names}
    for name, content in expected.items():
        (folder / name).write_bytes(content)
    return expected


def all_read_back(folder, expected):
    """True when every file has the bytes that write_random() returned."""
    try:
        return all((folder / name).read_bytes() == content for name, content in expected.items())
    except OSError:
        return False


class Pool:
    """A pool whose daemons all run on this machine. Its files are below `folder`."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.mount = self.folder / "mount"
        self.drain = self.folder / "drain"
        self.runtime = self.folder / "runtime"
        self.runtime.mkdir(exist_ok=True)
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("STDCHK_")}
        self.environment.update(XDG_RUNTIME_DIR=str(self.runtime), STDCHK_BIN=str(BIN))
        self.hand_mounts = []
        self.hand_processes = []

    def stdchk(self, *arguments, check=True, seconds=CALL_SECONDS, prefix=()):
        return run(*prefix, BIN / "stdchk", *arguments, check=check, seconds=seconds, env=self.environment)

    def up(self, *arguments, benefactors=4, memory="256M", drain=True, prefix=()):
        words = ["up", "--mount", self.mount, "--benefactors", benefactors, "--memory", memory]
        if drain:
            words += ["--drain", self.drain]
        return self.stdchk(*words, *arguments, prefix=prefix)

    def down(self, *arguments, check=True):
        return self.stdchk("down", *arguments, self.mount, check=check)

    @property
    def record(self):
        (path,) = (self.runtime / "stdchk").glob("pool*/pool.json")
        return json.loads(path.read_text()) | {"directory": str(path.parent)}

    def pids(self, role):
        return [member["pid"] for member in self.record["members"] if member["role"] == role]

    def kill(self, role, index=0):
        """Kills one process of the record with SIGKILL; returns when it is gone."""
        pid = self.pids(role)[index]
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not is_running(pid), f"the end of pid {pid}")
        return pid

    def status(self):
        return json.loads(self.stdchk("status", "--json", self.mount, check=False).stdout)

    def list(self, path="", *arguments):
        return json.loads(
            self.stdchk("ls", "-l", "--json", *arguments, self.mount / path).stdout
        )

    def mount_by_hand(self, name, *arguments, prefix=()):
        """Makes a second mount of the pool, started as a person would start the daemon."""
        record = self.record
        return self.mount_of(record["manager_address"], record["secret_file"], name, *arguments, prefix=prefix)

    def mount_of(self, manager, secret_file, name, *arguments, prefix=()):
        """Mounts the pool of any manager; `prefix` is a command that runs the daemon."""
        point = self.folder / name
        point.mkdir(exist_ok=True)
        self.hand_mounts.append(point)
        self.start_by_hand("stdchk-mount", name, manager, secret_file, *arguments, point, prefix=prefix)
        return point

    def benefactor_by_hand(self, name, *arguments, prefix=(), enter=None):
        """Starts a benefactor beside those of `stdchk up`; `enter` is called in its process before the daemon
        runs."""
        record = self.record
        return self.start_by_hand("stdchk-benefactor", name, record["manager_address"], record["secret_file"],
                                  *arguments, prefix=prefix, enter=enter)

    def start_by_hand(self, program, name, manager, secret_file, *arguments, prefix=(), enter=None):
        ready = self.folder / f"{name}.ready"
        ready.unlink(missing_ok=True)
        said = self.folder / f"{name}.log"
        with open(said, "ab") as log:
            process = subprocess.Popen(
                [*prefix, BIN / program, "--manager", manager, "--secret-file", secret_file, "--ready-file", ready,
                 *arguments],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self.environment, preexec_fn=enter)
        self.hand_processes.append(process)
        wait_until(lambda: ready.exists() or process.poll() is not None, program)
        assert process.poll() is None, said.read_text()
        return process

    def print_logs(self):
        """Prints the last log lines of the daemons, for the report of a failed test."""
        for log in [*(self.runtime / "stdchk").glob("*/*.log"), *self.folder.glob("*.log")]:
            lines = log.read_text(errors="replace").splitlines()[-20:]
            print(f"--- {log.parent.name}/{log.name}", *lines, sep="\n")

    def clean(self):
        """Ends all processes and mounts, in whatever state the test left them."""
        self.print_logs()
        for process in self.hand_processes:
            if process.poll() is None:
                process.terminate()  # the daemon of a mount also unmounts it
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait(10)
        for point in self.hand_mounts:
            # os.path.ismount() would wait for the mount's manager, so read mountinfo.
            if f" {point} " in pathlib.Path("/proc/self/mountinfo").read_text():
                run("umount", "--lazy", point, check=False) if os.geteuid() == 0 else run(
                    "fusermount3", "-uz", point, check=False)
        if list((self.runtime / "stdchk").glob("pool*/pool.json")):
            self.down(check=False)


def restart_manager(pool):
    """Restarts the killed manager by hand, with the same state and address."""
    record = pool.record
    kind, host, port = record["manager_address"].rsplit(":", 2)
    directory = pathlib.Path(record["directory"])
    log = open(pool.folder / "manager.again.log", "ab")
    process = subprocess.Popen(
        [BIN / "stdchk-manager", "--state", directory / "manager", "--secret-file",
         record["secret_file"], "--address-file", directory / "manager.again", "--listen",
         f"{host}:{port}", *(["--drain", record["drain"]] if record["drain"] else [])],
        stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=pool.environment)
    log.close()
    pool.hand_processes.append(process)
    wait_until(lambda: (directory / "manager.again").exists() or process.poll() is not None,
               "the manager's return")
    assert process.poll() is None, (pool.folder / "manager.again.log").read_text()


@pytest.fixture
def pool():
    """A pool that the test still has to start; removed after the test."""
    folder = tempfile.mkdtemp(prefix="stdchk-test-")
    one = Pool(folder)
    yield one
    one.clean()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def module_pool():
    """A pool that the tests of one module share."""
    folder = tempfile.mkdtemp(prefix="stdchk-test-")
    one = Pool(folder)
    yield one
    one.clean()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def neighbour():
    """A second host in a network namespace, which only root can make."""
    if os.geteuid() != 0:
        pytest.skip("only root may make networks")
    made = Neighbour()
    yield made
    made.end()


@pytest.fixture(scope="session", autouse=True)
def rules_pool():
    """Starts a real pool for mount_test.py, if STDCHK_TEST_POOL is set."""
    if not os.environ.get("STDCHK_TEST_POOL"):
        yield None
        return
    folder = tempfile.mkdtemp(prefix="stdchk-test-")
    os.chmod(folder, 0o755)  # lets other users pass
    one = Pool(folder)
    one.up("--allow-other", memory="512M")
    os.environ["STDCHK_TEST_MOUNT"] = str(one.mount)
    os.environ["STDCHK_TEST_MOUNT2"] = str(one.mount_by_hand("second", "--allow-other", "--source", "pool:second"))
    yield one
    one.clean()
    shutil.rmtree(folder, ignore_errors=True)
