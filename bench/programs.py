"""Measures programs that use a pool without its mount: PyTorch's checkpoints by the Python package, and plain POSIX
programs by the preload library. Used by bench/run."""

import contextlib
import json
import os
import pathlib
import subprocess
import tempfile
import time

from report import Aim, Failure, Series

ROOT = pathlib.Path(__file__).resolve().parent.parent
PREFIX = "/stdchk-bench"  # nothing is there
MINUTES = {"torch": 6, "preload": 3}  # on 2 processors
COPY = "one copy in memory (the ceiling)"
READ = "stdchk: read of one file by the C library"
LOAD = "stdchk: load"

TORCH_AIMS = {"stdchk: save": Aim(most=1.3), LOAD: Aim(least=0.8)}
TORCH_RATIOS = [f"stdchk: {what}" for what in ("save, 5 % changed", "async_save first (until it returns)",
                                               "async_save again (until it returns)", "  until it is saved")] + [
    f"{place}: {what}" for place in ("tmpfs", "disk")
    for what in ("save by torch's writer", "save by FsspecWriter", "torch.save", "safetensors", "load by torch's reader")]
TORCH_FIGURES = ["bytes stored by a save, 5 % changed"]

PRELOAD_AIMS = {f"write of {block}, against the mount": Aim(least=1.0) for block in ("1 MiB", "4 KiB")}
PRELOAD_RATIOS = [f"{what}, against {beside}" for what in ("write of 1 MiB", "write of 4 KiB", "read of 1 MiB", "read of 4 KiB")
                  for beside in ("the mount", "tmpfs")]


def say_how_long(section):
    print(f"  {section}: about {MINUTES[section]} minutes on 2 processors", flush=True)


# ---- PyTorch ------------------------------------------------------------------------------------


def torch_text(mebibytes):
    return f"""
        Two ranks (gloo, CPU tensors) save and load a state of {mebibytes} MiB in all, by `torch.distributed.checkpoint`. The figures are
        seconds that all ranks stand still. Each round has a new pool with two benefactors on this host, and naming is on.

        - The ceiling is a copy of the state in memory by the same ranks in the same round.
        - *until it is saved* runs beside the program, after `async_save` has returned.
        - *load*: the rate of all ranks. Its ceiling is reading the same files once by the C library.
        - *5 % changed*: one of 20 tensors of each rank differs from the save before.
        - *torch's writer* and *FsspecWriter* are PyTorch's own, into a folder of tmpfs or of the local disk. *torch.save* and
          *safetensors* write a file for each rank."""


def torch_round(bench, python, mebibytes):
    """Returns {what: (seconds, MiB that the pool has stored or None)} of one run with a new pool."""
    command = [python, ROOT / "bench" / "torch_checkpoint.py", "--json", "--mebibytes", str(mebibytes), "--disk", bench.scratch]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=240, check=False,
                          env=os.environ | {"STDCHK_BIN": str(bench.bin)})
    if done.returncode != 0:
        raise Failure(f"bench/torch_checkpoint.py: exit {done.returncode}\n{done.stdout}{done.stderr[-4000:]}")
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {line["what"]: (line["seconds"], line["stored_mib"]) for line in lines}


def torch(bench):
    mebibytes = bench.size_mib
    say_how_long("torch")
    found = subprocess.run([ROOT / "scripts" / "torch"], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        return bench.report.not_run("torch could not be installed: " + (found.stderr.strip().splitlines() or ["?"])[-1])
    taken = time.time()
    rounds = [torch_round(bench, found.stdout.strip(), mebibytes) for _ in range(min(bench.rounds, 3))]

    def series(what):
        return Series([each[what][0] for each in rounds], "s", taken)

    for what in rounds[0]:
        if what not in (COPY, READ, LOAD):
            bench.report.add(what, series(what), "a copy in memory", series(COPY))
    load, read = (Series([(mebibytes << 20) / 1e9 / seconds for seconds in series(what).values], "GB/s", taken)
                  for what in (LOAD, READ))
    bench.report.add(LOAD, load, "reading by the C library", read)
    grown = [each["stdchk: save, 5 % changed"][1] - each["stdchk: save"][1] for each in rounds]
    bench.report.add(TORCH_FIGURES[0], Series(grown, f"MiB, of {mebibytes} MiB", taken),
                     aim=Aim(most=0.10 * mebibytes))
    return None


# ---- the preload library ------------------------------------------------------------------------


def preload_text(size_mib):
    return f"""
        A program (`bench/io_bench.cpp`) writes a new file of {size_mib // 4} MiB by calls of 1 MiB, and one of {size_mib // 16} MiB by calls
        of 4 KiB. Then a new process reads the files. The rate includes open and close, and close() commits. The program writes in turns
        into a pool through `libstdchk-preload.so`, into the same pool through its mount, and into tmpfs. Naming is off in the mount. The library
        has its default, which stops naming a series without equal chunks. The goals of the library are 10 GB/s of writes of 1 MiB,
        and 1 GB/s of writes of 4 KiB.

        Debian has no package of ior, so this program takes its place: one process, a file of its own, calls of one size, data that differ in
        each round. The benefactors share the processors with the program."""


def preload(bench):
    say_how_long("preload")
    sizes_mib = {"1M": bench.size_mib // 4, "4K": bench.size_mib // 16}
    stored_mib = 2 * (bench.rounds + 1) * sum(sizes_mib.values())  # by the library and by the mount, on 4 benefactors
    pool = bench.pool("--naming", "off", memory_mib=stored_mib // 4 * 3 // 2 + 256)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as shm, pool as (mount, state, _):
        for block, size_mib in sizes_mib.items():
            where = {"preload": f"{PREFIX}/{block}", "the mount": mount / f"mount-{block}", "tmpfs": pathlib.Path(shm) / block}
            for folder in (mount / block, where["the mount"], where["tmpfs"]):
                folder.mkdir()
            for mode, flags in (("write", ["--keep"]), ("read", [])):
                drop_caches()
                found = io_bench(bench, state, mode, where, f"--size={size_mib}M", f"--block={block}", *flags)
                for beside in ("the mount", "tmpfs"):
                    bench.report.add(f"{mode} of {'1 MiB' if block == '1M' else '4 KiB'}, against {beside}",
                                     found["preload"], beside, found[beside])


def drop_caches():
    """The kernel forgets the pages of the mount, where this user may ask for that."""
    with contextlib.suppress(PermissionError), open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("3")


def io_bench(bench, state, mode, where, *flags):
    """Runs io-bench with the library. Returns {name of the place: Series}."""
    record = json.loads((state / "pool.json").read_text())
    library = (bench.bin / "stdchk").resolve().parents[1] / "preload" / "libstdchk-preload.so"
    preloaded = {"LD_PRELOAD": library, "STDCHK_PREFIX": PREFIX, "STDCHK_MANAGER": record["manager_address"],
                 "STDCHK_SECRET_FILE": record["secret_file"]}
    # `env` sets the variables, so that no other program gets the library.
    command = ["env", *(f"{name}={value}" for name, value in preloaded.items()), bench.bin / "io-bench", mode,
               *where.values(), f"--rounds={bench.rounds}", *flags]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        raise Failure(f"io-bench {mode}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    names = {str(place): name for name, place in where.items()}
    return {names[line["directory"]]: Series(line["values"], "GB/s", line["taken"])
            for line in map(json.loads, done.stdout.splitlines())}
