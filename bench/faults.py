"""Faults made on purpose to the processes, hosts and disks of real pools under a writer that verifies: what is lost, and how
long the writer waits. Used by bench/run."""

import contextlib
import dataclasses
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import typing

import links
from report import Aim, Failure, Series
from verifying import Creator, Writer, lost

BENEFACTORS = 4
MEMORY = "256M"
DRAIN_MIB = 24  # room for the drain, less than what the writer keeps
FAIL_OVER = "until the first file is made"


def run(*command, check=True, timeout=120):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=timeout)
    if check and done.returncode != 0:
        raise Failure(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def wait_until(condition, what, seconds=60):
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise Failure(f"{what}: not within {seconds} s")
        time.sleep(0.1)


def process_state(pid):
    """As proc(5) has it; "X" also for one that has ended and that nobody has waited for."""
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"
    return "X" if state == "Z" else state


def kill(pid):
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: process_state(pid) == "X", f"the end of process {pid}")


@contextlib.contextmanager
def stopped(pid):
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: process_state(pid) == "T", f"process {pid} stopped")
    try:
        yield
        if process_state(pid) != "T":
            raise Failure(f"process {pid} was not stopped all the time")
    finally:
        os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def small_disk(folder, size):
    folder.mkdir(parents=True)
    run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder)
    try:
        yield
    finally:
        run("umount", "--lazy", folder)


class Pool:
    """A pool of 4 benefactors with two copies of each chunk, whose close() waits for both."""

    def __init__(self, bin_dir, folder, *options, here=(), network=None):
        self.bin, self.folder, self.network = bin_dir, folder, network
        self.here = list(here)  # words in front of a command that shall see the pool's network
        self.mount, self.state = folder / "mnt", folder / "state" / "pool"
        self.drain = folder / "drain"
        self.mount.mkdir(parents=True)
        self.state.parent.mkdir(exist_ok=True)
        self.added = []
        self.stdchk("up", "--mount", self.mount, "--state", self.state, "--copies", 2, "--close", "redundant", *options)
        wait_until(self.is_whole, "a pool with nothing missing")

    def stdchk(self, *words, **options):
        return run(*self.here, self.bin / "stdchk", *words, **options)

    def down(self):
        self.stdchk("down", self.mount, check=False)
        for process in self.added:
            if process.poll() is None:
                process.kill()
            process.wait()

    def record(self):
        return json.loads((self.state / "pool.json").read_text())

    def pid(self, role):
        return next(member["pid"] for member in self.record()["members"] if member["role"] == role)

    def figures(self):
        """None when no manager answers."""
        said = self.stdchk("status", "--json", self.mount, check=False)
        return json.loads(said[:said.rindex("}") + 1]).get("pool") if "{" in said else None

    def benefactors(self, state):
        return [each for each in (self.figures() or {"benefactors": []})["benefactors"] if each["state"] == state]

    def is_whole(self):
        """All live, have what they should, and keep the metadata; the standby follows where there is one."""
        figures = self.figures()
        return (figures is not None and figures["debt_chunks"] == 0
                and figures["log_copies"] == figures["log_copies_wanted"]
                and (figures["standby_follows"] or not figures["standby"] or figures["epoch"] >= 256)
                and [each["state"] for each in figures["benefactors"]].count("alive") >= BENEFACTORS)

    def add_benefactor(self):
        record, ready = self.record(), self.folder / f"added.{len(self.added)}.ready"
        with open(self.state / f"added.{len(self.added)}.log", "wb") as log:
            self.added.append(subprocess.Popen(
                [self.bin / "stdchk-benefactor", "--manager", record["manager_address"], "--secret-file",
                 record["secret_file"], "--ready-file", ready, "--memory", MEMORY], stdout=log, stderr=log))
        wait_until(ready.exists, "a new benefactor")

    def log(self, name):
        return (self.state / f"{name}.log").read_text(errors="replace")

    @contextlib.contextmanager
    def fresh_mount(self):
        """Another mount, which has nothing in its cache."""
        record, point, ready = self.record(), self.folder / "fresh", self.folder / "fresh.ready"
        point.mkdir(exist_ok=True)
        ready.unlink(missing_ok=True)
        with open(self.state / "fresh.log", "ab") as log:
            daemon = subprocess.Popen(
                [*self.here, self.bin / "stdchk-mount", "--manager", record["manager_address"], "--secret-file",
                 record["secret_file"], "--ready-file", ready, point], stdout=log, stderr=log)
        try:
            wait_until(lambda: ready.exists() or daemon.poll() is not None, "a second mount")
            yield point
        finally:
            run("umount", point, check=False)
            daemon.terminate()
            daemon.wait(20)

    def save_logs(self):
        """A folder with what the daemons have said, which stays."""
        saved = pathlib.Path(tempfile.mkdtemp(prefix="stdchk-faults-"))
        for log in self.state.glob("*.log"):
            shutil.copy(log, saved)
        return saved


@contextlib.contextmanager
def opened(pool):
    try:
        yield pool
    except BaseException:
        print(f"  logs are kept in {pool.save_logs()}", file=sys.stderr)
        raise
    finally:
        pool.down()


LOCAL = ("--benefactors", BENEFACTORS, "--memory", MEMORY)


@contextlib.contextmanager
def local_pool(bin_dir, folder):
    with opened(Pool(bin_dir, folder, *LOCAL)) as pool:
        yield pool


@contextlib.contextmanager
def pool_with_standby(bin_dir, folder):
    with opened(Pool(bin_dir, folder, *LOCAL, "--standby")) as pool:
        time.sleep(2)  # the standby hears twice a second who keeps the metadata
        yield pool


@contextlib.contextmanager
def pool_of_hosts(bin_dir, folder):
    folder.mkdir()
    with links.network(folder, "10gbit", ["10gbit"] * BENEFACTORS) as net:
        hosts, shell = net.write_hosts(MEMORY)
        with opened(Pool(bin_dir, folder, "--hosts", hosts, "--rsh", shell, "--listen", f"{links.NET}.1", "--transport",
                         "ofi:tcp", here=net.prefix(net.client), network=net)) as pool:
            yield pool


@contextlib.contextmanager
def pool_with_small_drain(bin_dir, folder):
    with small_disk(folder / "drain", f"{DRAIN_MIB}m"):
        with opened(Pool(bin_dir, folder, *LOCAL, "--drain", folder / "drain", "--drain-yields", "off")) as pool:
            yield pool


@contextlib.contextmanager
def pool_with_small_disk(bin_dir, folder):
    with small_disk(folder / "state", "32m"), opened(Pool(bin_dir, folder, *LOCAL)) as pool:
        yield pool


# Each of these makes one fault and undoes it. Returns when the pool has noticed and the fault is over; Failure when it did
# not happen. Those in which a standby takes over answer the seconds until the first file is made.

def benefactor_killed(pool, chance):
    victim = chance.choice(pool.benefactors("alive"))
    kill(victim["pid"])
    time.sleep(chance.uniform(0, 2))
    pool.add_benefactor()
    wait_gone(pool, victim)


def wait_gone(pool, victim):
    wait_until(lambda: victim["id"] in [each["id"] for each in pool.benefactors("gone")], "a benefactor taken as gone")


def benefactor_stopped(pool, chance):
    victim = chance.choice(pool.benefactors("alive"))
    with stopped(victim["pid"]):
        wait_gone(pool, victim)
        time.sleep(chance.uniform(0, 2))


def host_cut_off(pool, chance):
    number = chance.randrange(BENEFACTORS)
    address = pool.network.addresses()[number]
    victim = next(each for each in pool.benefactors("alive") if any(address in at for at in each["addresses"]))
    pool.network.set_link(number, "down")
    try:
        wait_gone(pool, victim)
        time.sleep(chance.uniform(0, 2))
    finally:
        pool.network.set_link(number, "up")
    if process_state(victim["pid"]) == "X":
        raise Failure("the benefactor that was cut off has ended")


def recover(pool, how):
    said = pool.stdchk("recover", pool.mount)
    if how not in said:
        raise Failure(f"the manager was not started again as it should: {said}")


def manager_killed(pool, chance):
    kill(pool.pid("manager"))
    time.sleep(chance.uniform(0, 3))
    recover(pool, "from its journal")


def manager_lost_its_disk(pool, chance):
    kill(pool.pid("manager"))
    shutil.rmtree(pool.state / "manager")
    time.sleep(chance.uniform(0, 3))
    recover(pool, "rebuilt from what the benefactors keep")


def taken_over(pool, creator, struck):
    took = creator.answered() - struck
    wait_until(lambda: (pool.figures() or {"epoch": 0})["epoch"] >= 256, "the standby's epoch")
    return took


def manager_followed(pool, _):
    creator, manager = Creator(pool.mount), pool.pid("manager")
    time.sleep(0.5)  # it has started
    struck = time.monotonic()
    kill(manager)
    creator.begin()
    return taken_over(pool, creator, struck)


def manager_woken(pool, chance):
    creator, manager = Creator(pool.mount), pool.pid("manager")
    time.sleep(0.5)
    struck = time.monotonic()
    with stopped(manager):
        creator.begin()
        took = taken_over(pool, creator, struck)
        time.sleep(chance.uniform(0, 2))
    wait_until(lambda: process_state(manager) == "X", "the end of the manager that woke up")
    if "has taken this pool over" not in pool.log("manager"):
        raise Failure("the manager that woke up has ended for another reason")
    return took


def mount_killed(pool, _):
    guard = pool.pid("mount")
    serving = children(guard)
    if len(serving) != 1:
        raise Failure(f"the mount has {len(serving)} processes that serve it")
    kill(serving[0])
    wait_until(lambda: children(guard) and children(guard) != serving and os.path.ismount(pool.mount), "another mount")


def children(pid):
    return [int(each) for each in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def drain_full(pool, chance):
    def is_full():
        there = os.statvfs(pool.drain)
        return there.f_bavail * there.f_frsize < 1 << 20 and pool.figures()["drain_pending_files"] > 0
    wait_until(is_full, "a full drain directory")
    time.sleep(chance.uniform(1, 3))
    if pool.figures()["drain_pending_files"] == 0:
        raise Failure("all was drained into a full directory")
    run("mount", "-o", "remount,size=2g", pool.drain)


def journal_full(pool, chance):
    manager, ballast = pool.pid("manager"), pool.state.parent / "ballast"
    with open(ballast, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    wait_until(lambda: process_state(manager) == "X", "the end of a manager without room")
    if "cannot be written" not in pool.log("manager"):
        raise Failure("the manager has ended for another reason than its disk")
    time.sleep(chance.uniform(0, 2))
    ballast.unlink()
    recover(pool, "from its journal")


@dataclasses.dataclass
class Fault:
    name: str
    make: typing.Callable
    opening: typing.Callable = local_pool
    once: bool = False  # a pool of its own for each trial
    takes_over: bool = False


FAULTS = (
    Fault("benefactor killed, another started", benefactor_killed),
    Fault("benefactor stopped until it is gone, woken", benefactor_stopped),
    Fault("benefactor's host cut off, back", host_cut_off, pool_of_hosts),
    Fault("manager killed, restarted", manager_killed),
    Fault("manager killed, its disk lost, rebuilt", manager_lost_its_disk),
    Fault("manager killed, standby takes over", manager_followed, pool_with_standby, True, True),
    Fault("manager stopped, standby takes over, woken", manager_woken, pool_with_standby, True, True),
    Fault("manager's disk full, room again", journal_full, pool_with_small_disk),
    Fault("mount killed, mounted anew", mount_killed),
    Fault("drain's target full, room again", drain_full, pool_with_small_drain, True),
)

AIMS = ({f"{fault.name}: lost": Aim(most=0) for fault in FAULTS}
        | {f"{fault.name}: {FAIL_OVER}": Aim(most=15) for fault in FAULTS if fault.takes_over})
FIGURES = [f"{fault.name}: {what}" for fault in FAULTS for what in ("trials", "written", "read back", "longest call")]


@dataclasses.dataclass
class Found:
    """What the trials of one fault have shown, a value for each trial."""

    written: list = dataclasses.field(default_factory=list)
    read: list = dataclasses.field(default_factory=list)
    lost: list = dataclasses.field(default_factory=list)
    longest: list = dataclasses.field(default_factory=list)
    again: list = dataclasses.field(default_factory=list)
    fail_over: list = dataclasses.field(default_factory=list)

    def add_to(self, report, name):
        report.add(f"{name}: trials", Series([len(self.lost)], ""))
        report.add(f"{name}: written", Series(self.written, "GB"))
        report.add(f"{name}: read back", Series(self.read, "GB"))
        report.add(f"{name}: lost", Series(self.lost, "bytes"))
        report.add(f"{name}: longest call", Series(self.longest, "s"))
        report.add(f"{name}: images begun again", Series(self.again, ""))
        if self.fail_over:
            report.add(f"{name}: {FAIL_OVER}", Series(self.fail_over, "s"))


def trial(pool, fault, number, largest_mib, found):
    chance = random.Random()
    folder = pool.mount / f"trial{number}"
    folder.mkdir()
    writer = Writer(folder, largest_mib)
    try:
        writer.goes_on()
        time.sleep(chance.uniform(0, 1))
        writer.hold()
        struck = time.monotonic()
        took = fault.make(pool, chance)
        over = time.monotonic()
        writer.hold()
        writer.goes_on(4)
        images = writer.end()
    finally:
        writer.kill()
    closed = [image["closed"] for image in images.values()]
    if min(closed) > struck or max(closed) < over:
        raise Failure(f"{fault.name}: no image of before the fault, or none of after it, is there to be compared")
    gone = compare(pool, fault, folder, images)
    found.written.append(writer.written_bytes / 1e9)
    found.read.append(sum(image["bytes"] for image in images.values()) / 1e9)
    found.lost.append(sum(images[name]["bytes"] for name in gone))
    found.longest.append(writer.longest["seconds"])
    found.again.append(len({failure["name"] for failure in writer.failures}))
    if took is not None:
        found.fail_over.append(took)


def compare(pool, fault, folder, images):
    """The images that are lost: through the writer's mount, through another one, or, where there is a drain, there."""
    gone = {}
    with pool.fresh_mount() as fresh:
        for place in (fresh / folder.name, folder):
            gone |= {name: f"{place / name}: {why}" for name, why in lost(place, images).items()}
    if pool.drain.exists():
        pool.stdchk("drain", "--wait", "--timeout", 60, pool.mount)
        place = pool.drain / folder.name
        gone |= {name: f"{place / name}: {why}" for name, why in lost(place, images).items()}
    for why in gone.values():
        print(f"  {fault.name}: LOST {why}", file=sys.stderr)
    if gone:
        print(f"  logs are kept in {pool.save_logs()}", file=sys.stderr)
    shutil.rmtree(folder)
    return gone


def measure(report, bin_dir, scratch, trials, largest_mib, faults=FAULTS):
    for fault in faults:
        found = Found()
        pools = trials if fault.once else 1
        for each in range(pools):
            with fault.opening(bin_dir, scratch / f"{FAULTS.index(fault)}.{each}") as pool:
                for number in range(trials // pools):
                    wait_until(pool.is_whole, f"{fault.name}: a pool with nothing missing", 120)
                    trial(pool, fault, number, largest_mib, found)
        found.add_to(report, fault.name)
