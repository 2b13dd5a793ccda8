"""The section `scale` of bench/run: the manager's code under many simulated clients, and the costs that this leaves out."""

import json
import subprocess

from report import Failure, Series

IMAGE_MIB = 256
CASES = (  # clients, folders that they share, MiB of a chunk, name of the rows
    (1000, 1000, 1, "1,000 clients, 1 MiB"),
    (1000, 1000, 16, "1,000 clients, 16 MiB"),
    (200, 1, 16, "200 clients in one folder, 16 MiB"),
)
QUICK_CASES = ((100, 100, 1, "100 clients, 1 MiB"), (100, 1, 16, "100 clients in one folder, 16 MiB"))

FIGURES = [f"{name}: {what}" for *_, name in CASES for what in ("busy", "an image", "longest answer")] + [
    "1,000 clients, 1 MiB: memory of a client that writes", "journal's thread, an image of * chunks*", "wire, 128 bytes"]

TEXT = f"""
The manager's real code (`manager::Service`) serves simulated clients in one thread. Each client writes 10 images of {IMAGE_MIB} MiB a
minute. Naming is on, and all chunks are new. It keeps two images, and removes older images by name. The calls are those of the client
library: open, the previous image's map, a Place for 16 chunks of 1 MiB or for one of 16 MiB, commit, and a heartbeat each second.
500 benefactors lend 64 GiB each, and three of them keep the log. Each chunk has one copy. Clients have a folder each, or share one folder.

Time is the processor time of the manager's thread: the clock advances by the time that the manager has used. Answers wait as behind a
manager that has one processor for itself. Other load on this machine has no part in the waiting.

- *Busy*: the share of one processor.
- *An image*: processor time for all its calls, without heartbeats; *a chunk*: that time divided by the image's chunks.
- *Answer*: from a request's arrival until its answer is sent. A commit waits 1 ms for the journal's disk.
- *Longest turn*: of the reactor. In this time the manager answers nobody.
- *Memory*: of a client with 64 remembered answers; of an image without its chunks, of a chunk in the table.

Left out: sockets and TLS, and the journal's own thread. They have rows of their own. *Wire* is the processor time of a thread that gets
a message over tcp with TLS, and sends 64 bytes, on 256 links. *Journal's thread* writes commits of images to a disk, with 64 waiting.
Also left out: copies, drain, scrub and garbage collection."""


def program(bin_dir, *arguments):
    """Runs scale-bench. Returns its figures."""
    done = subprocess.run([bin_dir / "scale-bench", *map(str, arguments)], capture_output=True, text=True, timeout=7200, check=False)
    if done.returncode != 0:
        raise Failure(f"scale-bench {' '.join(map(str, arguments))}: {done.stderr}")
    return json.loads(done.stdout)


def measure(report, bin_dir, scratch, quick):
    for clients, folders, chunk_mib, name in QUICK_CASES if quick else CASES:
        add_load(report, name, program(bin_dir, "load", "--clients", clients, "--folders", folders, "--chunk", chunk_mib,
                                       "--image", IMAGE_MIB, "--seconds", 5 if quick else 20))
    for chunks in (16, 256):
        folder = scratch / f"journal{chunks}"
        folder.mkdir()
        found = program(bin_dir, "journal", "--directory", folder, "--chunks", chunks, "--records", 2000 if quick else 20000)
        for what, of, unit in ((", processor", "cpu_us_a_record", "us"), (", rate", "records_per_s", "a second")):
            report.add(f"journal's thread, an image of {chunks} chunks{what}", Series([found[of]], unit, found["taken"]))
    for size in (128, 24000):
        found = program(bin_dir, "wire", "--bytes", size, "--messages", 20000 if quick else 200000)
        report.add(f"wire, {size} bytes", Series([found["us_a_message"]], "us", found["taken"]))


def add_load(report, name, found):
    """Adds the rows of a run. A manager that has more work than time has no answers to tell of, and no memory."""
    def add(what, value, unit):
        report.add(f"{name}: {what}", Series([value], unit, found["taken"]))
    add("registration of a client", found["register_us"], "us")
    add("a client's heartbeats, a second", found["idle_us_a_client_s"], "us")
    add("busy", found["busy"] * 100, "%")
    add("images", found["images_per_s"], "a second")
    add("calls", found["calls_per_s"], "a second")
    add("an image", found["us_an_image"], "us")
    add("a chunk", found["us_an_image"] / found["chunks_an_image"], "us")
    add("notices an image", found["notices_an_image"], "")
    add("journal", found["journal_bytes_per_s"] / 1e6, "MB/s")
    add("longest turn", found["longest_turn_ms"], "ms")
    if found["overloaded"]:
        report.add(f"{name}: longest answer", Series([4000.0], "ms or more: overloaded", found["taken"]))
        return
    add("median answer", found["answer_ms"]["median"], "ms")
    add("99th percentile of answers", found["answer_ms"]["p99"], "ms")
    add("longest answer", found["answer_ms"]["longest"], "ms")
    add("memory of an idle client", found["idle_client_bytes"], "bytes")
    add("memory of a client that writes", found["client_bytes"], "bytes")
    add("memory of an image with its map", found["image_bytes"], "bytes")
    add("memory of a chunk in the table", found["table_bytes_a_chunk"], "bytes")
