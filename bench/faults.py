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
OPEN = "faults that met an open image, of all"
FAIL_OVER = "until the first file is made"


def run(*command, check=True, timeout=120):
    done = subprocess.run([str(part) for part in command], check=False, capture_output=True, text=True, timeout=timeout)
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

    def __init__(self, place, *options, here=(), network=None):
        self.bin, self.folder, self.memory, self.network = place.bin, place.folder, place.memory, network
        self.here = list(here)  # words in front of a command that shall see the pool's network
        self.mount, self.state = self.folder / "mnt", self.folder / "state" / "pool"
        self.drain = self.folder / "drain"
        self.mount.mkdir(parents=True)
        self.state.parent.mkdir(exist_ok=True)
        self.added = []
        self.stdchk("up", "--mount", self.mount, "--state", self.state, "--copies", 2, "--close", "redundant", *options)

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

    def wait_whole(self):
        wait_until(self.is_whole, "a pool with nothing missing", 120)

    def undrained(self):
        """Files; 0 when no manager answers."""
        return (self.figures() or {"drain_pending_files": 0})["drain_pending_files"]

    def add_benefactor(self):
        record, ready = self.record(), self.folder / f"added.{len(self.added)}.ready"
        with open(self.state / f"added.{len(self.added)}.log", "wb") as log:
            self.added.append(subprocess.Popen(
                [self.bin / "stdchk-benefactor", "--manager", record["manager_address"], "--secret-file",
                 record["secret_file"], "--ready-file", ready, "--memory", self.memory], stdout=log, stderr=log))
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
            if daemon.poll() is not None:
                raise Failure(f"a second mount has ended: {self.log('fresh')}")
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


@dataclasses.dataclass
class Place:
    """Where a pool is made, and for images of which size."""

    bin: pathlib.Path
    folder: pathlib.Path
    largest_mib: int

    @property
    def memory(self):
        """Of each benefactor. The writer keeps 17 images at most, in two copies, and one benefactor is away."""
        return f"{16 * self.largest_mib}M"

    @property
    def local(self):
        return "--benefactors", BENEFACTORS, "--memory", self.memory


@contextlib.contextmanager
def local_pool(place):
    with opened(Pool(place, *place.local)) as pool:
        yield pool


@contextlib.contextmanager
def pool_with_standby(place):
    with opened(Pool(place, *place.local, "--standby")) as pool:
        pool.wait_whole()
        time.sleep(2)  # the standby hears twice a second who keeps the metadata
        yield pool


@contextlib.contextmanager
def pool_of_hosts(place):
    place.folder.mkdir()
    with links.network(place.folder, "10gbit", ["10gbit"] * BENEFACTORS) as net:
        hosts, shell = net.write_hosts(place.memory)
        with opened(Pool(place, "--hosts", hosts, "--rsh", shell, "--listen", f"{links.NET}.1", "--transport", "ofi:tcp",
                         here=net.prefix(net.client), network=net)) as pool:
            yield pool


@contextlib.contextmanager
def pool_with_small_drain(place):
    """Its drain has less room than the writer keeps."""
    drain = place.folder / "drain"
    options = *place.local, "--drain", drain, "--drain-yields", "off"
    with small_disk(drain, f"{2 * place.largest_mib}m"), opened(Pool(place, *options)) as pool:
        yield pool


@contextlib.contextmanager
def pool_with_small_disk(place):
    with small_disk(place.folder / "state", "32m"), opened(Pool(place, *place.local)) as pool:
        yield pool


class Trial:
    """One fault of a pool under a writer, and what is found."""

    def __init__(self, pool, folder, largest_mib):
        self.pool, self.folder = pool, folder
        self.chance = random.Random()
        self.met_open = False  # an image was being written when the fault was made
        self.struck = None  # when it was made, by the monotonic clock
        folder.mkdir()
        self.writer = Writer(folder, largest_mib)

    def strike(self):
        """Waits for the moment of the fault, mostly in the middle of an image; the fault is made next."""
        time.sleep(self.chance.uniform(0, 1))
        self.writer.hold()
        if self.chance.random() < 0.8:
            time.sleep(self.chance.uniform(0, self.writer.wait_begun()))
        self.met_open = self.writer.open_since is not None
        self.struck = time.monotonic()

    def pause(self, most):
        """Before the fault is undone."""
        time.sleep(self.chance.uniform(0, most))

    def run(self, fault):
        """The images that must be there, and what the fault's function has answered."""
        try:
            self.writer.goes_on()
            took = fault.make(self.pool, self)
            over = time.monotonic()
            self.writer.hold()
            self.writer.goes_on(4)
            images = self.writer.end()
        finally:
            self.writer.kill()
        closed = [image["closed"] for image in images.values()]
        if min(closed) > self.struck or max(closed) < over:
            raise Failure(f"{fault.name}: no image of before the fault, or none of after it, is there to be compared")
        return images, took

    def compare(self, images):
        """The images that are lost: through another mount, through the writer's, or, where there is a drain, there."""
        places = [self.folder]
        if self.pool.drain.exists():
            self.pool.stdchk("drain", "--wait", "--timeout", 60, self.pool.mount)
            places.append(self.pool.drain / self.folder.name)
        with self.pool.fresh_mount() as fresh:
            gone = {name: f"{place}: {why}" for place in (fresh / self.folder.name, *places)
                    for name, why in lost(place, images).items()}
        for name, why in gone.items():
            print(f"  LOST {name} in {why}", file=sys.stderr)
        if gone:
            print(f"  logs are kept in {self.pool.save_logs()}", file=sys.stderr)
        return gone


# Each of these makes one fault and undoes it. Returns when the pool has noticed and the fault is over; Failure when it did
# not happen. Those in which a standby takes over answer the seconds until the first file is made.

def wait_gone(pool, victim):
    wait_until(lambda: victim["id"] in [each["id"] for each in pool.benefactors("gone")], "a benefactor taken as gone")


def benefactor_killed(pool, trial):
    victim = trial.chance.choice(pool.benefactors("alive"))
    trial.strike()
    kill(victim["pid"])
    trial.pause(2)
    pool.add_benefactor()
    wait_gone(pool, victim)


def benefactor_stopped(pool, trial):
    victim = trial.chance.choice(pool.benefactors("alive"))
    trial.strike()
    with stopped(victim["pid"]):
        wait_gone(pool, victim)
        trial.pause(2)


def host_cut_off(pool, trial):
    number = trial.chance.randrange(BENEFACTORS)
    address = pool.network.addresses()[number]
    victim = next(each for each in pool.benefactors("alive") if any(f":{address}:" in at for at in each["addresses"]))
    trial.strike()
    pool.network.set_link(number, "down")
    try:
        wait_gone(pool, victim)
        trial.pause(2)
    finally:
        pool.network.set_link(number, "up")
    if process_state(victim["pid"]) == "X":
        raise Failure("the benefactor that was cut off has ended")


def recover(pool, how):
    said = pool.stdchk("recover", pool.mount)
    if how not in said:
        raise Failure(f"the manager was not started again as it should: {said}")


def manager_killed(pool, trial):
    manager = pool.pid("manager")
    trial.strike()
    kill(manager)
    trial.pause(3)
    recover(pool, "from its journal")


def manager_lost_its_disk(pool, trial):
    manager = pool.pid("manager")
    trial.strike()
    kill(manager)
    shutil.rmtree(pool.state / "manager")
    trial.pause(3)
    recover(pool, "rebuilt from what the benefactors keep")


def taken_over(pool, trial, creator):
    took = creator.answered() - trial.struck
    wait_until(lambda: (pool.figures() or {"epoch": 0})["epoch"] >= 256, "the standby's epoch")
    return took


def manager_followed(pool, trial):
    creator, manager = Creator(pool.mount), pool.pid("manager")
    trial.strike()
    kill(manager)
    creator.begin()
    return taken_over(pool, trial, creator)


def manager_woken(pool, trial):
    creator, manager = Creator(pool.mount), pool.pid("manager")
    trial.strike()
    with stopped(manager):
        creator.begin()
        took = taken_over(pool, trial, creator)
        trial.pause(2)
    wait_until(lambda: process_state(manager) == "X", "the end of the manager that woke up")
    if "has taken this pool over" not in pool.log("manager"):
        raise Failure("the manager that woke up has ended for another reason")
    return took


def children(pid):
    return [int(each) for each in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def mount_killed(pool, trial):
    guard = pool.pid("mount")
    serving = children(guard)
    if len(serving) != 1:
        raise Failure(f"the mount has {len(serving)} processes that serve it")
    trial.strike()
    kill(serving[0])
    wait_until(lambda: children(guard) and children(guard) != serving and os.path.ismount(pool.mount), "another mount")


def drain_full(pool, trial):
    def is_full():
        there = os.statvfs(pool.drain)
        return there.f_bavail * there.f_frsize < 1 << 20 and pool.undrained() > 0
    trial.strike()
    wait_until(is_full, "a full drain directory")
    time.sleep(1)
    trial.pause(2)
    if pool.undrained() == 0:
        raise Failure("all was drained into a full directory")
    run("mount", "-o", "remount,size=2g", pool.drain)


def journal_full(pool, trial):
    manager, ballast = pool.pid("manager"), pool.state.parent / "ballast"
    trial.strike()
    with open(ballast, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    wait_until(lambda: process_state(manager) == "X", "the end of a manager without room")
    if "cannot be written" not in pool.log("manager"):
        raise Failure("the manager has ended for another reason than its disk")
    trial.pause(2)
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
    Fault("mount killed, mounted anew", mount_killed, once=True),  # three deaths in a row end its guard
    Fault("drain's target full, room again", drain_full, pool_with_small_drain, True),
)

AIMS = ({f"{fault.name}: lost": Aim(most=0) for fault in FAULTS}
        | {f"{fault.name}: {FAIL_OVER}": Aim(most=15) for fault in FAULTS if fault.takes_over})
FIGURES = [OPEN] + [f"{fault.name}: {what}" for fault in FAULTS
                    for what in ("trials", "written", "read back", "longest call")]


@dataclasses.dataclass
class Found:
    """What the trials of one fault have shown, a value for each trial."""

    written: list = dataclasses.field(default_factory=list)
    read: list = dataclasses.field(default_factory=list)
    lost: list = dataclasses.field(default_factory=list)
    longest: list = dataclasses.field(default_factory=list)
    again: list = dataclasses.field(default_factory=list)
    fail_over: list = dataclasses.field(default_factory=list)
    met_open: int = 0

    def add(self, trial, fault):
        images, took = trial.run(fault)
        gone = trial.compare(images)
        self.written.append(trial.writer.written_bytes / 1e9)
        self.read.append(sum(image["bytes"] for image in images.values()) / 1e9)
        self.lost.append(sum(images[name]["bytes"] for name in gone))
        self.longest.append(trial.writer.longest["seconds"])
        self.again.append(len({failure["name"] for failure in trial.writer.failures}))
        self.met_open += trial.met_open
        if fault.takes_over:
            self.fail_over.append(took)

    def add_to(self, report, name):
        report.add(f"{name}: trials", Series([len(self.lost)], ""))
        report.add(f"{name}: written", Series(self.written, "GB"))
        report.add(f"{name}: read back", Series(self.read, "GB"))
        report.add(f"{name}: lost", Series(self.lost, "bytes"))
        report.add(f"{name}: longest call", Series(self.longest, "s"))
        report.add(f"{name}: images begun again", Series(self.again, ""))
        if self.fail_over:
            report.add(f"{name}: {FAIL_OVER}", Series(self.fail_over, "s"))


def measure(report, bin_dir, scratch, trials, largest_mib, faults=FAULTS):
    met_open = 0
    for fault in faults:
        found = Found()
        pools = trials if fault.once else 1
        for each in range(pools):
            place = Place(bin_dir, scratch / f"{FAULTS.index(fault)}.{each}", largest_mib)
            with fault.opening(place) as pool:
                for number in range(trials // pools):
                    pool.wait_whole()
                    trial = Trial(pool, pool.mount / f"trial{number}", largest_mib)
                    found.add(trial, fault)
                    shutil.rmtree(trial.folder)
        found.add_to(report, fault.name)
        met_open += found.met_open
    report.add(OPEN, Series([met_open / (trials * len(faults))], ""))
