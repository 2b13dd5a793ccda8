"""Tests of torch.distributed.checkpoint in a real pool, with torch itself and gloo."""

import importlib.util
import os
import socket
import subprocess
import sys

import pytest
from processes import BIN, PATIENCE, ROOT

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed; `scripts/wheel --torch` tests with it")

# Runs as RANKS processes: save steps 1 and 2 with one number of ranks, then load with others.
PROGRAM = '''
import os, sys
import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
import torch.multiprocessing as processes
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from stdchk import Pool
from stdchk.torch import StdchkReader, StdchkWriter

def state(seed, mesh):
    random = torch.Generator().manual_seed(seed)
    rows = torch.rand(1025, 1000, generator=random)
    columns = torch.rand(300, 500, generator=random)
    everywhere = torch.rand(600, 700, generator=random)
    return {
        "rows": distribute_tensor(rows, mesh, [Shard(0)]), "columns": distribute_tensor(columns, mesh, [Shard(1)]),
        "everywhere": distribute_tensor(everywhere, mesh, [Replicate()]), "plain": torch.rand(7, generator=random),
        "short": torch.rand(3, 5, generator=random).bfloat16(), "scalar": torch.tensor(float(seed)),
        "transposed": torch.rand(40, 30, generator=random).t(), "empty": torch.empty(0, 3),
        "step": seed, "words": {"name": "x" * seed}}

def full(value):
    return value.full_tensor() if hasattr(value, "full_tensor") else value

def main(rank, ranks, port, phase, mount):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    mesh, pool = init_device_mesh("cpu", (ranks,)), Pool(mount)
    if phase == "save":
        if rank == 0:
            pool.mkdir("run")
            pool.set_policy("run", preset="dcp")
        dist.barrier()
        dcp.save(state(1, mesh), storage_writer=StdchkWriter("run/step-1", pool))
        writer = StdchkWriter("run/step-2", pool)
        changed = state(2, mesh)
        saved = dcp.async_save(changed, storage_writer=writer)
        changed["plain"].zero_()  # after async_save has returned: not in the checkpoint
        saved.result()
    else:
        assert pool.latest("run").name == "step-2"
        for step in (1, 2):
            expected, got = state(step, mesh), state(7, mesh)
            dcp.load(got, storage_reader=StdchkReader(f"stdchk://run/step-{step}", pool))
            for name, value in expected.items():
                if isinstance(value, torch.Tensor):
                    assert torch.equal(full(value), full(got[name])), (step, name)
                else:
                    assert value == got[name], (step, name)
    dist.barrier()
    dist.destroy_process_group()
    pool.close()

if __name__ == "__main__":
    ranks = int(sys.argv[1])
    processes.spawn(main, (ranks, *sys.argv[2:]), ranks)
'''


def environment(pool):
    record = pool.record
    more = {"XDG_RUNTIME_DIR": str(pool.runtime), "OMP_NUM_THREADS": "1", "STDCHK_BIN": str(BIN),
            "STDCHK_MANAGER": record["manager_address"], "STDCHK_SECRET_FILE": record["secret_file"]}
    if not os.environ.get("STDCHK_TEST_WHEEL"):
        more["PYTHONPATH"] = str(ROOT / "python")
        more["STDCHK_LIBRARY"] = str((BIN / "stdchk").resolve().parents[1] / "client" / "libstdchk.so.0")
    return os.environ | more


def run_python(pool, program, *arguments):
    done = subprocess.run([sys.executable, program, *arguments], capture_output=True, text=True, env=environment(pool),
                          timeout=120 * PATIENCE)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def test_a_state_is_loaded_with_other_numbers_of_ranks(pool, tmp_path):
    pool.up(benefactors=2, drain=False)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    for ranks, phase in (("2", "save"), ("3", "load"), ("1", "load")):
        run_python(pool, program, ranks, free_port(), phase, pool.mount)
    assert sorted(path.name for path in (pool.mount / "run/step-1").iterdir()) == [".metadata", "rank-0.bin", "rank-1.bin"]


FSSPEC = '''
import torch, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader, FsspecWriter
import fsspec
from stdchk.fsspec import StdchkFileSystem
fsspec.register_implementation("stdchk", StdchkFileSystem, clobber=True)
state = {"a": torch.arange(1000.0)}
dcp.save(state, storage_writer=FsspecWriter("stdchk://fsspec/step-1"))
got = {"a": torch.zeros(1000)}
dcp.load(got, storage_reader=FsspecReader("stdchk://fsspec/step-1"))
assert torch.equal(got["a"], state["a"])
with fsspec.open("stdchk://plain.pt", "wb") as file:
    torch.save(state, file)
with fsspec.open("stdchk://plain.pt") as file:
    assert torch.equal(torch.load(file, weights_only=True)["a"], state["a"])
'''


def test_torchs_own_fsspec_writer_saves_in_a_pool(pool, tmp_path):
    pytest.importorskip("fsspec")
    pool.up(benefactors=1, drain=False)
    program = tmp_path / "program.py"
    program.write_text(FSSPEC)
    run_python(pool, program)
    assert (pool.mount / "fsspec/step-1/.metadata").exists()


ADAPTER = {
    "lightning": '''
import sys, torch
from stdchk import Pool, adapters
pool = Pool(sys.argv[1])
checkpoints = adapters.lightning_io(pool)
checkpoints.save_checkpoint({"state": torch.arange(9)}, "light/step-1.ckpt")
assert torch.equal(checkpoints.load_checkpoint("light/step-1.ckpt", weights_only=True)["state"], torch.arange(9))
checkpoints.remove_checkpoint("light/step-1.ckpt")
assert not pool.exists("light/step-1.ckpt")
''',
    "transformers": '''
import os, sys, tempfile
from transformers import TrainerControl, TrainerState, TrainingArguments
from stdchk import Pool, adapters
pool, folder = Pool(sys.argv[1]), tempfile.mkdtemp()
os.makedirs(folder + "/checkpoint-3/inner")
for name in ("model.bin", "inner/rng"):
    open(f"{folder}/checkpoint-3/{name}", "wb").write(name.encode())
state = TrainerState(global_step=3)
state.is_world_process_zero = True
class Arguments:
    output_dir = folder
adapters.trainer_callback(pool).on_save(Arguments, state, TrainerControl())
assert pool.read_bytes("trainer/checkpoint-3/inner/rng") == b"inner/rng"
assert pool.exists("trainer/checkpoint-3/.complete")
''',
    "deepspeed": '''
import sys, torch
from stdchk import Pool, adapters
engine = adapters.deepspeed_engine(Pool(sys.argv[1]))
engine.save({"state": torch.arange(9)}, "speed/step-1.pt")
assert torch.equal(engine.load("speed/step-1.pt")["state"], torch.arange(9)) and engine.commit("step-1")
''',
    # First torchft's own test of transports. Then a receiver loads the state of a sender that has ended.
    "torchft": '''
import sys, unittest, torch
from datetime import timedelta
from torchft.checkpointing.transport_test import run_multi_recovery_test
from stdchk import Pool, adapters
pool, second = Pool(sys.argv[1]), timedelta(seconds=1)
run_multi_recovery_test(unittest.TestCase(), lambda *_: adapters.torchft_transport(pool), torch.device("cpu"))
assert pool.listdir("torchft") == []
with Pool(sys.argv[1]) as gone:
    transport = adapters.torchft_transport(gone)
    for step in (7, 8):
        transport.send_checkpoint([1], step, {"torchft": {"step": step}, "state": torch.arange(9) * step}, second)
receiver = adapters.torchft_transport(pool)
got = receiver.recv_checkpoint(0, transport.metadata(), 8, second)
assert got["torchft"] == {"step": 8} and torch.equal(got["state"], torch.arange(9) * 8)
try:
    receiver.recv_checkpoint(0, transport.metadata(), 7, second)
    raise AssertionError("the state of step 7 is still there")
except TimeoutError:
    pass
receiver.shutdown()
''',
}


@pytest.mark.parametrize("framework", ADAPTER)
def test_the_adapter_of_a_framework_saves_and_loads(pool, tmp_path, framework):
    pytest.importorskip("lightning_fabric" if framework == "lightning" else framework)
    pool.up(benefactors=1, drain=False)
    program = tmp_path / "program.py"
    program.write_text(ADAPTER[framework])
    run_python(pool, program, pool.mount)
