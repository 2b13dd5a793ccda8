#!/usr/bin/env python3
"""Measures torch.distributed.checkpoint in a pool beside files: how long a training loop stands still.

Usage: bench/torch_checkpoint.py [--mebibytes N] [--ranks N] [--disk FOLDER] [--json]

Ceiling: one copy of the state in memory, measured in the same run. Each rank has its part of the state, which random
numbers fill. Needs torch, and the programs of build/bin or STDCHK_BIN. Prints a line for each measurement: seconds, the
part of the ceiling, and what the pool stored. `bench/run --only torch` runs it with --json, and publishes the figures.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))
os.environ.setdefault("STDCHK_BIN", str(ROOT / "build" / "bin"))
os.environ.setdefault(
    "STDCHK_LIBRARY", str((pathlib.Path(os.environ["STDCHK_BIN"]) / "stdchk").resolve().parents[1] / "client/libstdchk.so.0"))
TENSORS = 20


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mebibytes", type=int, default=1024, help="size of the state of all ranks")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--disk", default="/var/tmp", help="a folder on a local disk")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each measurement")
    return parser.parse_args()


def state_of(rank, options):
    import torch

    random = torch.Generator().manual_seed(rank)
    count = (options.mebibytes << 20) // options.ranks // TENSORS // 4
    return {f"rank{rank}.tensor{number}": torch.rand(count, generator=random) for number in range(TENSORS)}


class Measured:
    """Times a call on all ranks; rank 0 prints the longest."""

    def __init__(self, rank, as_json):
        self.rank, self.as_json, self.ceiling = rank, as_json, None

    def __call__(self, what, call, stored_mib=lambda: None):
        import torch
        import torch.distributed as dist

        dist.barrier()
        began = time.perf_counter()
        result = call()
        took = torch.tensor(time.perf_counter() - began)
        dist.all_reduce(took, dist.ReduceOp.MAX)
        self.ceiling = self.ceiling or took.item()
        if self.rank != 0:
            return result
        stored = stored_mib()
        if self.as_json:
            print(json.dumps({"what": what, "seconds": took.item(), "stored_mib": stored}), flush=True)
        else:
            note = "" if stored is None else f"{stored} MiB stored"
            print(f"{what:44} {took.item():7.2f} s  {took.item() / self.ceiling:6.2f} copies  {note}", flush=True)
        return result


def rank_main(rank, options, mount, port):
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from stdchk import Pool
    from stdchk.torch import StdchkReader, StdchkWriter
    from torch.distributed.checkpoint._fsspec_filesystem import FsspecWriter

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=options.ranks)
    state, timed, pool = state_of(rank, options), Measured(rank, options.json), Pool(mount, naming="on")
    saving = dist.new_group(backend="gloo")  # async_save talks while this program does
    copy = {name: torch.zeros_like(tensor) for name, tensor in state.items()}

    def stored():
        return pool.statfs().stored_bytes >> 20

    timed("one copy in memory (the ceiling)", lambda: [copy[name].copy_(tensor) for name, tensor in state.items()])
    timed("stdchk: save", lambda: dcp.save(state, storage_writer=StdchkWriter("run/1", pool)), stored)
    changed = state["rank%d.tensor0" % rank]
    changed.add_(1)
    timed("stdchk: save, 5 % changed", lambda: dcp.save(state, storage_writer=StdchkWriter("run/2", pool)), stored)
    writer = StdchkWriter("run/3", pool)
    timed("stdchk: async_save first (until it returns)",
          lambda: dcp.async_save(state, storage_writer=writer, process_group=saving)).result()
    changed.add_(1)
    writer.reset("run/4")
    saved = timed("stdchk: async_save again (until it returns)",
                  lambda: dcp.async_save(state, storage_writer=writer, process_group=saving))
    timed("stdchk:   until it is saved", saved.result, stored)
    timed("stdchk: load", lambda: dcp.load(copy, storage_reader=StdchkReader("run/4", pool)))
    assert all(torch.equal(copy[name], tensor) for name, tensor in state.items())

    def read_through_c():
        with pool.open(f"run/4/rank-{rank}.bin") as file:
            memory = torch.empty(file.size, dtype=torch.uint8)
            file.pread_into(memory, 0)

    timed("stdchk: read of one file by the C library", read_through_c)
    for name, place in (("tmpfs", "/dev/shm"), ("disk", options.disk)):
        folder = f"{place}/stdchk-bench-{port}"
        timed(f"{name}: save by torch's writer", lambda folder=folder: dcp.save(state, checkpoint_id=f"{folder}/dcp"))
        timed(f"{name}: save by FsspecWriter",
              lambda folder=folder: dcp.save(state, storage_writer=FsspecWriter(f"file://{folder}/fsspec", sync_files=False)))
        timed(f"{name}: torch.save", lambda folder=folder: torch.save(state, f"{folder}/{rank}.pt"))
        if importlib.util.find_spec("safetensors"):  # scripts/torch installs it
            from safetensors.torch import save_file

            timed(f"{name}: safetensors", lambda folder=folder: save_file(state, f"{folder}/{rank}.safetensors"))
        timed(f"{name}: load by torch's reader", lambda folder=folder: dcp.load(copy, checkpoint_id=f"{folder}/dcp"))
        if rank == 0:
            shutil.rmtree(folder)
    dist.barrier()
    dist.destroy_process_group()
    pool.close()


def main():
    options = arguments()
    import socket

    import torch.multiprocessing as processes
    from stdchk import Pool

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    with tempfile.TemporaryDirectory() as runtime:
        os.environ["XDG_RUNTIME_DIR"] = runtime
        mount = f"{runtime}/pool"
        with Pool.up(benefactors=2, memory=f"{options.mebibytes * 2}M", mount=mount, arguments=["--no-mount"]):
            processes.spawn(rank_main, (options, mount, port), options.ranks)


if __name__ == "__main__":
    main()
