#!/usr/bin/env python3
"""The work that each neighbouring file system gets: peer_work.py FOLDER|nfs://HOST/EXPORT|mooncake://HOST --size BYTES --files COUNT.

Writes images, reads them back and compares each byte, makes and removes names. Prints the figures as JSON: GB/s and
names/s. Used by peers.py; runs where the file system is mounted."""

import argparse
import concurrent.futures
import ctypes
import json
import mmap
import os
import struct
import sys
import time

MIB = 1 << 20
PAGE = 4096
TILE = 16 * MIB
WRITERS = 4


class Folder:
    """A Folder gives the calls of POSIX on a mounted file system. Threads: any number."""

    def __init__(self, path):
        self.path = path

    def full(self, name):
        return os.path.join(self.path, name)

    def make(self, name):
        return os.open(self.full(name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)

    def open(self, name):
        return os.open(self.full(name), os.O_RDONLY)

    def forget(self, name):
        """Drops the file's pages from the kernel's cache."""
        fd = self.open(name)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)

    def read(self, fd, buffer):
        return os.readv(fd, [buffer])

    write = staticmethod(os.write)
    close = staticmethod(os.close)

    def stat(self, name):
        os.stat(self.full(name))

    def rename(self, old, new):
        os.rename(self.full(old), self.full(new))

    def unlink(self, name):
        os.unlink(self.full(name))

    def another(self):
        """Returns a place for another thread."""
        return self


class Nfs:
    """An Nfs gives the same calls through libnfs, by NFS 3, in user space. Limits: no cache. Threads: one for each."""

    def __init__(self, url):
        self.url = url
        self.lib = lib = ctypes.CDLL("libnfs.so.13")
        lib.nfs_init_context.restype = ctypes.c_void_p
        lib.nfs_get_error.restype = ctypes.c_char_p
        self.context = ctypes.c_void_p(lib.nfs_init_context())
        host, _, export = url.removeprefix("nfs://").partition("/")
        # libnfs 4.0 cannot write by NFS 4: "Failed to encode COMPOUND4args".
        self.check(lib.nfs_set_version(self.context, 3), "NFS 3")
        self.check(lib.nfs_mount(self.context, host.encode(), f"/{export}".encode()), url)

    def check(self, status, what):
        if status < 0:
            raise OSError(-status, f"{what}: {(self.lib.nfs_get_error(self.context) or b'?').decode()}")
        return status

    def opened(self, name, flags):
        handle = ctypes.c_void_p()
        call = self.lib.nfs_creat if flags else self.lib.nfs_open
        mode = 0o644 if flags else os.O_RDONLY
        self.check(call(self.context, f"/{name}".encode(), mode, ctypes.byref(handle)), name)
        return handle

    def make(self, name):
        return self.opened(name, True)

    def open(self, name):
        return self.opened(name, False)

    def forget(self, name):
        """Does nothing: this system has no cache."""

    def write(self, handle, view):
        """Writes up to len(view) bytes, as write(2) does. Returns their number."""
        data = (ctypes.c_char * len(view)).from_buffer(view)
        return self.check(self.lib.nfs_write(self.context, handle, ctypes.c_uint64(len(view)), data), "write")

    def read(self, handle, buffer):
        data = (ctypes.c_char * len(buffer)).from_buffer(buffer)
        return self.check(self.lib.nfs_read(self.context, handle, ctypes.c_uint64(len(buffer)), data), "read")

    def close(self, handle):
        self.check(self.lib.nfs_close(self.context, handle), "close")

    def stat(self, name):
        found = (ctypes.c_uint64 * 32)()  # struct nfs_stat_64 has 17 numbers
        self.check(self.lib.nfs_stat64(self.context, f"/{name}".encode(), found), name)

    def rename(self, old, new):
        self.check(self.lib.nfs_rename(self.context, f"/{old}".encode(), f"/{new}".encode()), old)

    def unlink(self, name):
        self.check(self.lib.nfs_unlink(self.context, f"/{name}".encode()), name)

    def another(self):
        return Nfs(self.url)


class Mooncake:
    """A Mooncake gives reading and writing through Mooncake's store: each write(2) is an object. Threads: any number.

    Not: names. The objects stay until the store ends."""

    BUFFER = 256 * MIB  # of the client, for objects on their way

    def __init__(self, url):
        self.store, self.sizes = store_client(url.removeprefix("mooncake://"), 0, self.BUFFER), {}

    def make(self, name):
        self.sizes[name] = []
        return [name, 0]

    def open(self, name):
        return [name, 0]

    def forget(self, name):
        """Does nothing: this system has no cache."""

    def write(self, fd, view):
        status = self.store.put(f"{fd[0]}.{fd[1]}", view)
        if status != 0:
            raise OSError(f"put of {fd[0]}.{fd[1]}: {status}")
        self.sizes[fd[0]].append(len(view))
        fd[1] += 1
        return len(view)

    def read(self, fd, buffer):
        if fd[1] == len(self.sizes[fd[0]]):
            return 0
        found = self.store.get(f"{fd[0]}.{fd[1]}")
        if len(found) != self.sizes[fd[0]][fd[1]]:
            raise OSError(f"get of {fd[0]}.{fd[1]}: {len(found)} bytes")
        buffer[:len(found)] = found
        fd[1] += 1
        return len(found)

    def close(self, fd):
        """Does nothing: there is no open file."""

    def unlink(self, name):
        """Does nothing: objects are not removed."""

    def another(self):
        return self


def store_client(address, lent_bytes, buffer_bytes):
    """Returns a client of Mooncake's store that lends `lent_bytes` to it."""
    from mooncake.store import MooncakeDistributedStore  # noqa: PLC0415
    store = MooncakeDistributedStore()
    status = store.setup(address, f"http://{address}:8080/metadata", lent_bytes, buffer_bytes, "tcp", "", f"{address}:50051")
    if status != 0:
        raise OSError(f"Mooncake's store: setup: {status}")
    return store


def lend(url, lent_bytes):
    """Lends memory to Mooncake's store until it is killed. Prints a line when the memory is lent."""
    keep = store_client(url.removeprefix("mooncake://"), lent_bytes, MIB)
    print("lends", flush=True)
    while keep:
        time.sleep(3600)


def place_of(word):
    """Returns the file system that the word names."""
    scheme = word.partition("://")[0] if "://" in word else ""
    return {"nfs": Nfs, "mooncake": Mooncake, "": Folder}[scheme](word)


def image_memory(size):
    """Random pages, aligned. stamp() makes each page different from all others."""
    memory, tile = mmap.mmap(-1, size), os.urandom(min(TILE, size))
    for at in range(0, size, len(tile)):
        memory[at:at + len(tile)] = tile[:size - at]
    return memory


def stamp(memory, number):
    """Gives each page a number that no other page of any image has, so that nothing occurs twice."""
    for at in range(0, len(memory), PAGE):
        struct.pack_into("<QQ", memory, at, number, at)


def write_image(place, name, view, block):
    """Writes the view; returns the seconds from open until close has returned."""
    began = time.monotonic()
    fd = place.make(name)
    at = 0
    while at < len(view):
        at += place.write(fd, view[at:at + block])
    place.close(fd)
    return time.monotonic() - began


def read_image(place, name, memory):
    """Reads and compares each byte; returns the seconds of opening and reading alone."""
    buffer = mmap.mmap(-1, MIB)
    began = time.monotonic()
    fd = place.open(name)
    took, at = time.monotonic() - began, 0
    while True:
        began = time.monotonic()
        got = place.read(fd, memoryview(buffer))
        took += time.monotonic() - began
        if got == 0:
            break
        if buffer[:got] != memory[at:at + got]:
            raise ValueError(f"{name} has other bytes than were written, after byte {at}")
        at += got
    place.close(fd)
    if at != len(memory):
        raise ValueError(f"{name} has {at} bytes, not {len(memory)}")
    return took


def images(place, size, checked):
    memory = image_memory(size)
    view, found = memoryview(memory), {}
    stamp(memory, 1)
    found["write of 1 MiB"] = size / 1e9 / write_image(place, "work.N0.T1", view, MIB)
    if checked:
        place.forget("work.N0.T1")
        for what in ("read, cold", "read, warm"):
            found[what] = size / 1e9 / read_image(place, "work.N0.T1", memory)
    place.unlink("work.N0.T1")
    stamp(memory, 2)
    found["write of 4 KiB"] = size / 1e9 / write_image(place, "small.N0.T1", view, PAGE)
    if checked:
        read_image(place, "small.N0.T1", memory)
    place.unlink("small.N0.T1")
    return found


def writers(place, size, checked):
    """Measures WRITERS threads that write at the same time, each to its own image."""
    memories = [image_memory(size // WRITERS) for _ in range(WRITERS)]
    places = [place.another() for _ in memories]
    for number, memory in enumerate(memories):
        stamp(memory, 10 + number)
    names = [f"many.N{number}.T1" for number in range(WRITERS)]
    with concurrent.futures.ThreadPoolExecutor(WRITERS) as threads:
        began = time.monotonic()
        list(threads.map(lambda number: write_image(places[number], names[number], memoryview(memories[number]), MIB),
                         range(WRITERS)))
        took = time.monotonic() - began
    for name, memory in zip(names, memories):
        if checked:
            read_image(place, name, memory)
        place.unlink(name)
    return {f"{WRITERS} writers": size / 1e9 / took}


def names(place, count, renamed):
    """Creates, looks up, renames and removes empty files in one folder."""
    def rate(work):
        began = time.monotonic()
        for number in range(count):
            work(number)
        return count / (time.monotonic() - began)
    found = {"create": rate(lambda number: place.close(place.make(f"name.{number}"))),
             "stat": rate(lambda number: place.stat(f"name.{number}"))}
    if renamed:
        found["rename"] = rate(lambda number: place.rename(f"name.{number}", f"other.{number}"))
    word = "other" if renamed else "name"
    found["unlink"] = rate(lambda number: place.unlink(f"{word}.{number}"))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("place")
    parser.add_argument("--size", type=int, required=True, help="bytes of all images of one measurement, a multiple of 4 MiB")
    parser.add_argument("--files", type=int, required=True, help="empty files")
    parser.add_argument("--lacks", action="append", default=[], choices=("content", "rename", "names"),
                        help="the system cannot do it")
    parser.add_argument("--lend", type=int, help="only lends so many bytes to Mooncake's store")
    options = parser.parse_args()
    checked = "content" not in options.lacks
    try:
        if options.lend:
            lend(options.place, options.lend)
        place = place_of(options.place)
        found = images(place, options.size, checked) | writers(place, options.size, checked)
        if "names" not in options.lacks:
            found |= names(place, options.files, "rename" not in options.lacks)
    except (OSError, ValueError) as why:
        sys.exit(f"{options.place}: {why}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
