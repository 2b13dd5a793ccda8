"""A trainer that saves by torch.distributed.checkpoint, for pool_losses_test.py. It needs torch.

`dcp_trainer.py save CODE RANK RENDEZVOUS STEP` is a rank. It saves the steps after STEP until its end. Rank 0 prints each
saved step. The file CODE has the lines of Python that save a step, from docs/guide/recipes.md.

`dcp_trainer.py load` reads names of folders from its standard input. It loads what `latest` of a folder names, and prints
the step. It prints 0 where `latest` is absent.
"""

import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

RANKS = 2


def state_of(step):
    random = torch.Generator().manual_seed(step)
    return {"weights": torch.rand(1024, 512, generator=random), "moments": torch.rand(1001, 300, generator=random),
            "bias": torch.rand(777, generator=random), "step": step}


def save(code, rank, rendezvous, step):
    """Saves one step after the other. A step that a killed trainer began is saved over what is there."""
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    program = compile(pathlib.Path(code).read_text(), code, "exec")
    while True:
        step += 1
        state = state_of(step)
        for name in ("weights", "moments"):
            state[name] = distribute_tensor(state[name], mesh, [Shard(0)])
        exec(program, {"state": state, "rank": rank, "step": step})
        if rank == 0:
            print(step, flush=True)
        time.sleep(0.05)


def load(folder):
    """Returns the step that `latest` names, when its state is that of the step."""
    latest = folder / "latest"
    if not latest.exists():
        return 0
    name = latest.read_text()
    expected = state_of(int(name.removeprefix("step-")))
    got = {key: torch.zeros_like(value) if torch.is_tensor(value) else 0 for key, value in expected.items()}
    dcp.load(got, checkpoint_id=folder / name)
    for key, value in expected.items():
        assert torch.equal(value, got[key]) if torch.is_tensor(value) else value == got[key], (name, key)
    return expected["step"]


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "save":
        save(sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
    for line in sys.stdin:
        print(load(pathlib.Path(line.rstrip("\n"))), flush=True)
