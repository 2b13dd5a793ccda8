"""Programs of the section on faults: a writer that remembers its images, and a reader that compares them.

The bench can kill a program that hangs, because both run as separate processes. They use a mount by plain POSIX calls.
"""

import contextlib
import errno
import hashlib
import json
import os
import select
import subprocess
import sys
import threading
import time

from report import Failure

MIB = 1 << 20


class Writer:
    """A process that writes images of random bytes into a folder, one after the other, until a command ends it.

    The process begins a failed image again, with the same name. It keeps the newest KEEP images and the images that
    hold() protects, and removes all others.

    Owns: the process, and a thread that reads its output.
    Errors: Failure when it hangs or makes no progress.
    """

    KEEP = 4

    def __init__(self, folder, largest_mib):
        self.lock = threading.Condition()
        self.committed = {}  # name: {sha256, bytes, closed}; closed: moment by the monotonic clock
        self.open_since = None  # moment when the current image was begun
        self.last_seconds = 0.0  # seconds of the last image
        self.failures = []  # {name, call, errno}; the image is begun again
        self.closed = self.written_bytes = 0
        self.rests = False
        self.longest = {"seconds": 0.0, "call": ""}
        self.process = subprocess.Popen([sys.executable, __file__, "write", str(folder), str(largest_mib)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.thread = threading.Thread(target=self.hear, daemon=True)
        self.thread.start()

    def hear(self):
        for line in self.process.stdout:
            said = json.loads(line)
            with self.lock:
                getattr(self, said.pop("what"))(**said)
                self.lock.notify_all()

    def begins(self, now):
        self.open_since = now

    def commits(self, name, now, **image):
        self.last_seconds, self.open_since = now - self.open_since, None
        self.committed[name] = image | {"closed": now}
        self.closed += 1
        self.written_bytes += image["bytes"]

    def fails(self, **failure):
        self.open_since = None
        self.failures.append(failure)

    def removes(self, name):
        del self.committed[name]

    def resting(self):
        self.rests = True

    def took(self, **longest):
        self.longest = longest

    def goes_on(self, count=2, seconds=90):
        """Waits until the writer has closed `count` more images. An image that began before the call counts, too."""
        with self.lock:
            wanted = self.closed + count
            if not self.lock.wait_for(lambda: self.closed >= wanted, seconds):
                raise Failure(f"the writer has not closed {count} images in {seconds} s; its failures: {self.failures[-5:]}")

    def wait_begun(self, seconds=60):
        """Waits until an image has just been begun; returns the seconds of the last image."""
        with self.lock:
            before = self.open_since
            if not self.lock.wait_for(lambda: self.open_since not in (None, before), seconds):
                raise Failure(f"the writer has begun no image in {seconds} s")
            return self.last_seconds

    def hold(self):
        """Protects the present images and the next two to the end."""
        self.tell("hold")

    def rest(self, seconds=90):
        """Waits until no image is open. The writer begins the next image after go()."""
        with self.lock:
            self.rests = False
            self.tell("rest")
            if not self.lock.wait_for(lambda: self.rests, seconds):
                raise Failure(f"the writer does not rest after {seconds} s")

    def go(self):
        self.tell("go")

    def tell(self, word):
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def end(self, seconds=120):
        """Ends the process; returns the images that must exist."""
        self.tell("end")
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failure(f"the writer hangs: it does not end in {seconds} s") from None
        self.thread.join()
        if self.process.returncode != 0:
            raise Failure("the writer has ended by itself")
        return dict(self.committed)

    def kill(self):
        self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)


def lost(folder, images, seconds=300):
    """Returns {name: reason} for images that are unreadable or differ. Drops the kernel's cache first."""
    subprocess.run(["sync"], check=True)
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("3")
    try:
        done = subprocess.run([sys.executable, __file__, "read", str(folder)], input=json.dumps(images), text=True,
                              capture_output=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise Failure(f"the reader hangs: it does not end in {seconds} s") from None
    if done.returncode != 0:
        raise Failure(f"the reader has failed: {done.stderr}")
    return json.loads(done.stdout)


class Creator:
    """A process that, once told, tries to make a new file in a folder until it succeeds."""

    def __init__(self, folder):
        self.process = subprocess.Popen([sys.executable, __file__, "create", str(folder)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()  # the process waits

    def begin(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def answered(self, seconds=90):
        """Returns the moment when the process succeeded, by the monotonic clock."""
        try:
            said, _ = self.process.communicate(timeout=seconds)
            return float(said)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Failure(f"no file could be made for {seconds} s") from None


def tell(what, **facts):
    print(json.dumps({"what": what} | facts), flush=True)


class Saver:
    """The writer's process. It reads commands on standard input between images, and reports on standard
    output."""

    def __init__(self, folder, largest_mib):
        self.folder = folder
        self.largest_bytes = largest_mib * MIB
        self.newest = []  # names of unprotected images; those beyond KEEP are removed
        self.doomed = []  # names whose removal has not succeeded yet
        self.to_hold = 0  # number of coming images that are never removed
        self.ends = False
        self.longest = 0.0

    def path(self, name):
        return os.path.join(self.folder, name)

    @contextlib.contextmanager
    def timed(self, call):
        """Reports each call that took longer than all earlier calls, and adds the call's name to an error."""
        started = time.monotonic()
        try:
            yield
        except OSError as error:
            error.filename2 = call
            raise
        finally:
            took = time.monotonic() - started
            if took > self.longest:
                self.longest = took
                tell("took", call=call, seconds=took)

    def listen(self):
        """Reads commands without waiting, unless it was told to rest."""
        words = ""
        while not self.ends and (words.endswith("rest\n") or select.select([0], [], [], 0)[0]):
            if words.endswith("rest\n"):
                tell("resting")
            more = os.read(0, 4096).decode()
            words += more
            self.ends = not more
        if "hold" in words:
            self.newest, self.to_hold = [], 2
        self.ends = self.ends or "end" in words

    def run(self):
        number = 0
        while not self.ends:
            size = self.largest_bytes - int.from_bytes(os.urandom(4), "little") % (self.largest_bytes // 2)
            content = memoryview(os.urandom(size))
            sha256 = hashlib.sha256(content).hexdigest()
            name = f"app.N0.T{number}"
            if self.save(name, content):
                tell("commits", name=name, now=time.monotonic(), sha256=sha256, bytes=size)
                self.listen()
                self.keep(name)
                number += 1

    def save(self, name, content):
        """Saves an image. Returns False if a command ended the writer before the save succeeded."""
        while not self.ends:
            tell("begins", now=time.monotonic())
            try:
                self.write(self.path(name), content)
                return True
            except OSError as error:
                tell("fails", name=name, call=error.filename2, errno=errno.errorcode.get(error.errno, str(error.errno)))
                time.sleep(0.05)
            self.listen()
        return False

    def write(self, path, content):
        with self.timed("open"):
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            at = 0
            while at < len(content):
                with self.timed("write"):
                    at += os.write(fd, content[at:at + MIB])
        except OSError:
            with contextlib.suppress(OSError), self.timed("close"):
                os.close(fd)
            raise
        with self.timed("close"):
            os.close(fd)

    def keep(self, name):
        if self.to_hold > 0:
            self.to_hold -= 1
            return
        self.newest.append(name)
        while len(self.newest) > Writer.KEEP:
            self.doomed.append(self.newest.pop(0))
            tell("removes", name=self.doomed[-1])
        for each in list(self.doomed):
            with contextlib.suppress(OSError):
                with contextlib.suppress(FileNotFoundError), self.timed("unlink"):
                    os.unlink(self.path(each))
                self.doomed.remove(each)


def read(folder):
    answers = {}
    for name, image in json.load(sys.stdin).items():
        try:
            with open(os.path.join(folder, name), "rb") as file:
                content = file.read()
            if hashlib.sha256(content).hexdigest() != image["sha256"]:
                answers[name] = f"other bytes, {len(content)} of {image['bytes']}"
        except OSError as error:
            answers[name] = str(error)
    print(json.dumps(answers))


def create(folder):
    print("waits", flush=True)
    sys.stdin.readline()
    number = 0
    while True:
        number += 1
        path = os.path.join(folder, f"created.{number}")
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            break
        except OSError:
            time.sleep(0.01)
    print(time.monotonic(), flush=True)
    with contextlib.suppress(OSError):
        os.close(fd)
        os.unlink(path)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        Saver(sys.argv[2], int(sys.argv[3])).run()
    else:
        {"read": read, "create": create}[sys.argv[1]](sys.argv[2])
