"""Injects faults into processes, hosts and disks of real pools during verified writes. Measures which images
are lost, and how long the writer waits. Used by bench/run."""

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
MANAGER_ADDRESS, CLIENT_ADDRESS = f"{links.NET}.1", f"{links.NET}.2"
WATCHDOG = 5  # seconds until a stopped mount is replaced
FLIP_EVERY = 256 << 10  # one flipped bit in this many bytes
OPEN = "faults that met an open image, of all"
FAIL_OVER = "until the first file is made"

# Limits of a call in seconds (docs/guide/failures.md).
SLACK = 5  # allowance for work besides waiting, on a machine that runs everything
GONE = 10 + SLACK  # until a silent benefactor counts as gone
STUCK = 30 + SLACK  # without any progress
NO_MANAGER = 25 + SLACK
FOLLOWED, HOST_FOLLOWED = 15, 20  # until a standby serves after the loss of a process or a host


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
    """The state letter of proc(5); "X" also for a process that has ended and is not yet reaped."""
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"
    return "X" if state == "Z" else state


def waits_in_kernel(pid):
    """True when a thread of the process is in uninterruptible sleep."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return False
    return any(process_state(f"{pid}/task/{thread}") == "D" for thread in threads)


def children(pid):
    try:
        return [int(each) for each in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def wait_ended(pid, seconds=60):
    wait_until(lambda: process_state(pid) == "X", f"the end of process {pid}", seconds)


def kill(*pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for pid in pids:
        wait_ended(pid)


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


COPIES_FIRST = "--copies", "2", "--close", "redundant"
COPIES_LATER = "--copies", "2", "--close", "stored"
PARITY_FIRST = "--copies", "ec(2,1)", "--close", "redundant"


class Pool:
    """A pool of 4 benefactors. By default it keeps two copies of each chunk, and close() waits for both."""

    def __init__(self, place, *options, policy=COPIES_FIRST, here=(), elsewhere=(), network=None):
        """`here`: prefix of a command that runs on the manager's host. `elsewhere`: prefix for the other
        host, which has the mount and asks the pool."""
        self.bin, self.folder, self.memory, self.network = place.bin, place.folder, place.memory, network
        self.here = list(here)
        self.mount, self.state = self.folder / "mnt", self.folder / "state" / "pool"
        self.drain = self.folder / "drain"
        self.mount.mkdir(parents=True)
        self.state.parent.mkdir(exist_ok=True)
        self.added = []
        self.stdchk("up", "--mount", self.mount, "--state", self.state, *policy,
                    *(["--no-mount"] if elsewhere else []), *options)
        if elsewhere:
            self.here = list(elsewhere)
            self.start("stdchk-mount", "mount", "--close", "redundant", self.mount)

    def stdchk(self, *words, **options):
        return run(*self.here, self.bin / "stdchk", *words, **options)

    def down(self):
        self.stdchk("down", self.mount, check=False)
        for process in self.added:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def start(self, program, name, *options):
        """Starts one more process of the pool, and waits until it is ready."""
        record, ready = self.record(), self.folder / f"{name}.ready"
        ready.unlink(missing_ok=True)
        with open(self.state / f"{name}.log", "ab") as log:
            process = subprocess.Popen(
                [*self.here, self.bin / program, "--manager", record["manager_address"], "--secret-file",
                 record["secret_file"], "--ready-file", ready, *options], stdout=log, stderr=log)
        self.added.append(process)
        wait_until(lambda: ready.exists() or process.poll() is not None, f"a {program} more")
        if process.poll() is not None:
            raise Failure(f"a {program} more has ended: {self.log(name)}")
        return process

    def record(self):
        return json.loads((self.state / "pool.json").read_text())

    def pid(self, role):
        return next(member["pid"] for member in self.record()["members"] if member["role"] == role)

    def processes(self):
        pids = [member["pid"] for member in self.record()["members"]] + [process.pid for process in self.added]
        return pids + [child for pid in pids for child in children(pid)]

    def figures(self):
        """Returns the pool's figures, or None when no manager answers."""
        said = self.stdchk("status", "--json", self.mount, check=False)
        return json.loads(said[:said.rindex("}") + 1]).get("pool") if "{" in said else None

    def count(self, figure):
        """Returns a figure of the pool, or 0 when no manager answers."""
        return (self.figures() or {figure: 0})[figure]

    def benefactors(self, state):
        return [each for each in (self.figures() or {"benefactors": []})["benefactors"] if each["state"] == state]

    def is_whole(self):
        """True when all benefactors live, no copy is missing, enough benefactors keep the metadata, and a standby, if
        any, follows the manager."""
        figures = self.figures()
        return (figures is not None and figures["debt_chunks"] == 0
                and figures["log_copies"] == figures["log_copies_wanted"]
                and (figures["standby_follows"] or not figures["standby"] or figures["epoch"] >= 256)
                and [each["state"] for each in figures["benefactors"]].count("alive") >= BENEFACTORS)

    def wait_whole(self):
        wait_until(self.is_whole, "a pool with nothing missing", 120)

    def wait_followed(self):
        self.wait_whole()
        time.sleep(2)  # twice a second the standby learns which benefactors keep the metadata

    def check(self):
        """Checks that nothing that the policy promises is missing, no rule is broken, and no process hangs in
        the kernel."""
        self.wait_whole()
        self.stdchk("check", self.mount)
        wait_until(lambda: not any(map(waits_in_kernel, self.processes())), "processes that do not hang in the kernel", 10)

    def undrained(self):
        """The number of undrained files; 0 when no manager answers."""
        return self.count("drain_pending_files")

    def add_benefactor(self):
        self.start("stdchk-benefactor", f"added.{len(self.added)}", "--memory", self.memory)

    def log(self, pattern):
        return "".join(path.read_text(errors="replace") for path in self.state.glob(f"{pattern}.log"))

    @contextlib.contextmanager
    def fresh_mount(self):
        """Makes another mount with an empty cache."""
        point = self.folder / "fresh"
        point.mkdir(exist_ok=True)
        daemon = self.start("stdchk-mount", "fresh", point)
        try:
            yield point
        finally:
            run("umount", point, check=False)
            daemon.terminate()
            daemon.wait(20)

    def save_logs(self):
        """Copies the daemons' logs to a new folder, which stays; returns its path."""
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
    """The place and the image size of a trial's pool."""

    bin: pathlib.Path
    folder: pathlib.Path
    largest_mib: int

    @property
    def memory(self):
        """The memory of each benefactor. The writer keeps at most 17 images, in two copies, and one
        benefactor may be missing."""
        return f"{16 * self.largest_mib}M"

    @property
    def local(self):
        return "--benefactors", BENEFACTORS, "--memory", self.memory


@contextlib.contextmanager
def local_pool(place, policy=COPIES_FIRST):
    with opened(Pool(place, *place.local, policy=policy)) as pool:
        yield pool


def pool_with_copies_later(place):
    return local_pool(place, COPIES_LATER)


def pool_with_parity(place):
    return local_pool(place, PARITY_FIRST)


@contextlib.contextmanager
def pool_with_standby(place):
    with opened(Pool(place, *place.local, "--standby")) as pool:
        pool.wait_followed()
        yield pool


@contextlib.contextmanager
def pool_of_hosts(place):
    place.folder.mkdir()
    with links.network(place.folder, "10gbit", ["10gbit"] * BENEFACTORS) as net:
        hosts, shell = net.write_hosts(place.memory)
        with opened(Pool(place, "--hosts", hosts, "--rsh", shell, "--listen", MANAGER_ADDRESS, "--transport", "tcp",
                         here=net.prefix(net.client), network=net)) as pool:
            yield pool


@contextlib.contextmanager
def pool_with_manager_apart(place):
    """A pool with the manager and the writer's mount on separate hosts, and the standby beside a
    benefactor."""
    place.folder.mkdir()
    with links.network(place.folder, "10gbit", ["10gbit"] * BENEFACTORS) as net:
        hosts, shell = net.write_hosts(place.memory)
        elsewhere = "nsenter", f"--net={net.add_clients(2, '10gbit')[1]}"
        with opened(Pool(place, "--hosts", hosts, "--rsh", shell, "--listen", MANAGER_ADDRESS, "--transport", "tcp",
                         "--standby", here=net.prefix(net.client), elsewhere=elsewhere, network=net)) as pool:
            pool.wait_followed()
            yield pool


@contextlib.contextmanager
def pool_with_watchdog(place):
    with opened(Pool(place, *place.local, here=("env", f"STDCHK_WATCHDOG={WATCHDOG}"))) as pool:
        yield pool


@contextlib.contextmanager
def pool_with_troubled_drain(place):
    """A pool whose drain directory hangs by the rules in the file `rules`
    (tests/integration/troubled_fs.c)."""
    behind, drain, rules = (place.folder / name for name in ("behind", "drain", "rules"))
    for folder in (behind, drain):
        folder.mkdir(parents=True)
    rules.touch()
    program = (place.bin / "stdchk").resolve().parents[1] / "tests" / "integration" / "troubled-fs"
    troubled = subprocess.Popen([program, behind, rules, drain])
    try:
        wait_until(lambda: os.path.ismount(drain) or troubled.poll() is not None, "a file system for the drain")
        with opened(Pool(place, *place.local, "--drain", drain, "--drain-yields", "off")) as pool:
            yield pool
    finally:
        rules.write_text("")
        run("umount", "--lazy", drain, check=False)
        troubled.kill()
        troubled.wait()


@contextlib.contextmanager
def pool_with_small_drain(place):
    """A pool whose drain directory has less room than the writer keeps."""
    drain = place.folder / "drain"
    options = *place.local, "--drain", drain, "--drain-yields", "off"
    with small_disk(drain, f"{2 * place.largest_mib}m"), opened(Pool(place, *options)) as pool:
        yield pool


@contextlib.contextmanager
def pool_with_small_disk(place):
    with small_disk(place.folder / "state", "32m"), opened(Pool(place, *place.local)) as pool:
        yield pool


class Trial:
    """A trial of a fault in a pool during writes, and its findings."""

    def __init__(self, pool, folder, largest_mib):
        self.pool, self.folder = pool, folder
        self.chance = random.Random()
        self.met_open = False  # an image was being written at the fault
        self.struck = None  # moment of the fault, by the monotonic clock
        folder.mkdir()
        self.writer = Writer(folder, largest_mib)

    def strike(self):
        """Waits for the moment of the fault, mostly in the middle of an image; the caller makes the fault
        next."""
        time.sleep(self.chance.uniform(0, 1))
        self.writer.hold()
        if self.chance.random() < 0.8:
            time.sleep(self.chance.uniform(0, self.writer.wait_begun()))
        self.note_strike()

    def strike_redundant(self):
        """Waits until all images have the copies that the policy promises, then works like strike(). The writer begins no
        other image meanwhile."""
        self.writer.hold()
        self.writer.rest()
        self.pool.wait_whole()
        self.note_strike()

    def note_strike(self):
        self.met_open = self.writer.open_since is not None
        self.struck = time.monotonic()

    def pause(self, most):
        """Waits before the fault is undone."""
        time.sleep(self.chance.uniform(0, most))

    def run(self, fault):
        """Makes the fault; returns the images that must exist, and the result of the fault's function."""
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
            raise Failure(f"{fault.name}: no image from before the fault, or none from after it, can be compared")
        return images, took

    def compare(self, images):
        """Returns the names of lost images. Reads through another mount, through the writer's mount, and in the drain
        directory if there is one."""
        self.pool.check()
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


# Each function below makes one fault and undoes it. It returns once the pool has noticed and the fault is
# over, and raises Failure if the fault did not happen. If a standby takes over, it returns the seconds until
# the first new file.

def wait_gone(pool, victim):
    def is_gone():
        figures = pool.figures()
        return figures is not None and all(each["state"] == "gone" for each in figures["benefactors"]
                                           if each["id"] == victim["id"])
    wait_until(is_gone, "a benefactor taken as gone")


def a_benefactor(pool, trial):
    return trial.chance.choice(pool.benefactors("alive"))


def benefactor_killed(pool, trial):
    victim = a_benefactor(pool, trial)
    trial.strike()
    kill(victim["pid"])
    benefactor_lost(pool, trial, victim)


def benefactor_killed_redundant(pool, trial):
    victim = a_benefactor(pool, trial)
    trial.strike_redundant()
    kill(victim["pid"])
    trial.writer.go()
    benefactor_lost(pool, trial, victim)


def benefactor_lost(pool, trial, victim):
    trial.pause(2)
    pool.add_benefactor()
    wait_gone(pool, victim)


def benefactor_told_to_leave(pool, trial):
    victim = a_benefactor(pool, trial)
    trial.strike()
    os.kill(victim["pid"], signal.SIGTERM)
    wait_ended(victim["pid"], 35)  # its --leave-time, and 5 s
    if "ends before all" in pool.log("*"):
        raise Failure("a benefactor had too little time to move its chunks to others")
    pool.add_benefactor()
    wait_gone(pool, victim)


def benefactor_stopped(pool, trial):
    victim = a_benefactor(pool, trial)
    trial.strike()
    with stopped(victim["pid"]):
        wait_gone(pool, victim)
        trial.pause(2)


def host_cut_off(pool, trial):
    address = trial.chance.choice(pool.network.addresses())
    victim = next(each for each in pool.benefactors("alive") if any(f":{address}:" in at for at in each["addresses"]))
    trial.strike()
    with pool.network.cut_off(address):
        wait_gone(pool, victim)
        trial.pause(2)
    if process_state(victim["pid"]) == "X":
        raise Failure("the benefactor that was cut off has ended")


def client_cut_off(pool, trial):
    trial.strike()
    with pool.network.cut_off(CLIENT_ADDRESS):
        time.sleep(5)
        trial.pause(10)


def flip_bits(pid, chance):
    """Flips bits in the largest writable mapping of a process: the memory that a benefactor lends."""
    maps = [line.split() for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()]
    parts = [[int(end, 16) for end in words[0].split("-")] for words in maps if words[1].startswith("rw")]
    first, last = max(parts, key=lambda part: part[1] - part[0])
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        for start in range(first, last, FLIP_EVERY):
            at = start + chance.randrange(min(FLIP_EVERY, last - start))
            memory.seek(at)
            byte = memory.read(1)[0]
            memory.seek(at)
            memory.write(bytes([byte ^ 1 << chance.randrange(8)]))


def bits_flipped(pool, trial):
    def is_clean():
        try:
            pool.stdchk("scrub", "--wait", pool.mount)
        except Failure:
            return False
        return True
    victim, before = a_benefactor(pool, trial), pool.figures()["scrub"]
    trial.strike()
    flip_bits(victim["pid"], trial.chance)
    trial.pause(2)
    wait_until(is_clean, "a scrub that finds nothing wrong any more")
    after = pool.figures()["scrub"]
    for what in ("wrong_chunks", "repaired_chunks"):
        if after[what] <= before[what]:
            raise Failure(f"no more {what} are there than before bits were flipped")


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


def manager_stopped(pool, trial):
    manager = pool.pid("manager")
    trial.strike()
    with stopped(manager):
        trial.pause(20)


def manager_and_benefactor_killed(pool, trial):
    manager, victim = pool.pid("manager"), a_benefactor(pool, trial)
    trial.strike()
    kill(manager, victim["pid"])
    trial.pause(3)
    recover(pool, "from its journal")
    pool.add_benefactor()
    wait_gone(pool, victim)


def manager_lost_its_disk(pool, trial):
    manager = pool.pid("manager")
    trial.strike()
    kill(manager)
    shutil.rmtree(pool.state / "manager")
    trial.pause(3)
    recover(pool, "rebuilt from the metadata on benefactors")


def taken_over(pool, trial, creator):
    took = creator.answered() - trial.struck
    wait_until(lambda: pool.count("epoch") >= 256, "the standby's epoch")
    return took


def manager_followed(pool, trial):
    creator, manager = Creator(pool.mount), pool.pid("manager")
    trial.strike()
    kill(manager)
    creator.begin()
    return taken_over(pool, trial, creator)


def taken_over_while(away, pool, trial):
    """`away`: a context manager on the manager's pid, which makes the fault and ends it. Afterwards the old
    manager must learn of its successor."""
    creator, manager = Creator(pool.mount), pool.pid("manager")
    trial.strike()
    with away(manager):
        creator.begin()
        took = taken_over(pool, trial, creator)
        trial.pause(2)
        if process_state(manager) == "X":
            raise Failure("the manager has ended before it came back")
    wait_ended(manager)
    if "has taken this pool over" not in pool.log("manager"):
        raise Failure("the manager that came back has ended for another reason")
    return took


def manager_woken(pool, trial):
    return taken_over_while(stopped, pool, trial)


def manager_cut_off(pool, trial):
    return taken_over_while(lambda _: pool.network.cut_off(MANAGER_ADDRESS), pool, trial)


def mount_lost(pool, trial, sign):
    """Sends the signal to the process that serves the mount; another process must replace it."""
    guard = pool.pid("mount")
    serving = children(guard)
    if len(serving) != 1:
        raise Failure(f"the mount has {len(serving)} processes that serve it")
    trial.strike()
    os.kill(serving[0], sign)
    wait_ended(serving[0])
    wait_until(lambda: children(guard) and children(guard) != serving and os.path.ismount(pool.mount), "another mount")


def mount_killed(pool, trial):
    mount_lost(pool, trial, signal.SIGKILL)


def mount_stopped(pool, trial):
    mount_lost(pool, trial, signal.SIGSTOP)


def drain_full(pool, trial):
    trial.strike()
    wait_until(lambda: pool.count("drain_failed_files") > 0, "a full drain directory")
    time.sleep(1)
    trial.pause(2)
    if pool.undrained() == 0:
        raise Failure("all was drained into a full directory")
    run("mount", "-o", "remount,size=2g", pool.drain)


def drain_hangs(pool, trial):
    def drained():
        return {path.name for path in (pool.drain / trial.folder.name).glob("app.*")}
    rules = pool.folder / "rules"
    trial.strike()
    rules.write_text("write\n")
    time.sleep(2)  # for images already written
    before = drained()
    time.sleep(3)
    trial.pause(5)
    if drained() - before or pool.undrained() == 0:
        raise Failure("something was drained into a directory that hangs")
    rules.write_text("")


def journal_full(pool, trial):
    manager, ballast = pool.pid("manager"), pool.state.parent / "ballast"
    trial.strike()
    with open(ballast, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    wait_ended(manager)
    if "cannot be written" not in pool.log("manager"):
        raise Failure("the manager has ended for another reason than its disk")
    trial.pause(2)
    ballast.unlink()
    recover(pool, "from its journal")


@dataclasses.dataclass
class Fault:
    name: str
    make: typing.Callable
    longest_s: float  # limit of a call in seconds
    opening: typing.Callable = local_pool
    goes_on: bool = False  # no call may fail
    once: bool = False  # a new pool for each trial
    fail_over_s: float = None  # within this time a standby takes over

    def aims(self):
        most = {"lost": 0, "longest call": self.longest_s}
        if self.goes_on:
            most["images begun again"] = 0
        if self.fail_over_s:
            most[FAIL_OVER] = self.fail_over_s
        return {f"{self.name}: {what}": Aim(most=limit, must=True) for what, limit in most.items()}


FAULTS = (
    Fault("benefactor killed, another started", benefactor_killed, GONE, goes_on=True),
    Fault("benefactor told to leave, another started", benefactor_told_to_leave, GONE, goes_on=True),
    Fault("benefactor stopped until it is gone, woken", benefactor_stopped, GONE, goes_on=True),
    Fault("benefactor's host cut off, back", host_cut_off, GONE, pool_of_hosts, goes_on=True),
    Fault("bits flipped in a benefactor's memory", bits_flipped, STUCK),
    Fault("ec(2,1): benefactor killed, another started", benefactor_killed, GONE, pool_with_parity),
    Fault("ec(2,1): bits flipped in a benefactor's memory", bits_flipped, STUCK, pool_with_parity),
    Fault("copies after close: benefactor killed, another started", benefactor_killed_redundant, GONE,
          pool_with_copies_later),
    Fault("writer's host cut off, back", client_cut_off, STUCK, pool_with_manager_apart, once=True),
    Fault("manager killed, restarted", manager_killed, NO_MANAGER, goes_on=True),
    Fault("manager stopped, woken", manager_stopped, NO_MANAGER, goes_on=True),
    Fault("manager and a benefactor killed, both restarted", manager_and_benefactor_killed, NO_MANAGER),
    Fault("manager killed, its disk lost, rebuilt", manager_lost_its_disk, NO_MANAGER, goes_on=True),
    Fault("manager killed, standby takes over", manager_followed, FOLLOWED + SLACK, pool_with_standby, goes_on=True,
          once=True, fail_over_s=FOLLOWED),
    Fault("manager stopped, standby takes over, woken", manager_woken, FOLLOWED + SLACK, pool_with_standby, goes_on=True,
          once=True, fail_over_s=FOLLOWED),
    Fault("manager's host cut off, standby takes over, back", manager_cut_off, HOST_FOLLOWED + SLACK,
          pool_with_manager_apart, goes_on=True, once=True, fail_over_s=HOST_FOLLOWED),
    Fault("manager's disk full, room again", journal_full, NO_MANAGER, pool_with_small_disk),
    # Three deaths in a row end the guard of a mount.
    Fault("mount killed, mounted anew", mount_killed, SLACK, once=True),
    Fault("mount stopped, mounted anew by its watchdog", mount_stopped, WATCHDOG + 1, pool_with_watchdog, once=True),
    Fault("drain's target full, room again", drain_full, SLACK, pool_with_small_drain, goes_on=True, once=True),
    Fault("drain's target hangs, goes on", drain_hangs, SLACK, pool_with_troubled_drain, goes_on=True),
)

AIMS = {name: aim for fault in FAULTS for name, aim in fault.aims().items()}
FIGURES = [OPEN] + [f"{fault.name}: {what}" for fault in FAULTS
                    for what in ("trials", "written", "read back", "images begun again")]


@dataclasses.dataclass
class Found:
    """The results of the trials of one fault; one value for each trial."""

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
        if fault.fail_over_s:
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
