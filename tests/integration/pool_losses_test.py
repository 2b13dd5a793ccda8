"""Kills writers of checkpoints, and then whole pools in the middle of the drain, again and again on one drain directory.
The directory that the pointer names can be loaded every time: in the pool, in the drain directory, and in the next pool.

STDCHK_TEST_LOSSES is the number of losses; `scripts/check recipes` takes 100. The writer imitates the layout of PyTorch's
Distributed Checkpoint. At most 10 losses are with PyTorch itself and the lines of docs/guide/recipes.md.
STDCHK_TEST_TORCH names a Python that has torch; `scripts/check recipes` installs it.
"""

import os
import pathlib
import random
import shutil
import subprocess
import sys
import time

import pytest
from pool_directory_sets_test import RULES, load, lose, set_rules, write_checkpoint
from pool_recipes_test import commands, in_pool, sections, shell
from processes import wait_until

LOSSES = int(os.environ.get("STDCHK_TEST_LOSSES", "3"))
TORCH = os.environ.get("STDCHK_TEST_TORCH")
TRAINER = pathlib.Path(__file__).parent / "dcp_trainer.py"
RECIPE = "PyTorch distributed checkpoints"


def write_for_ever(folder, step):
    """Saves one checkpoint after the other. A directory that a killed writer left is removed first, as trainers do."""
    while True:
        step += 1
        shutil.rmtree(folder / f"step-{step}", ignore_errors=True)
        write_checkpoint(folder, step, shards=3, size=1 << 20)
        print(step, flush=True)
        time.sleep(0.05)


class Imitation:
    """A writer of files as PyTorch's checkpoints have them."""

    def set_rules(self, pool, folder):
        set_rules(pool, folder, *RULES, "keep=3")

    def load(self, folder):
        """Returns the step that the pointer names, after a look at its bytes; 0 without a pointer."""
        name = load(folder)
        return 0 if name is None else int(name.removeprefix("step-"))

    def start(self, folder, step):
        """Starts processes that save the steps after `step`. The first prints each step that is saved."""
        program = (f"import pathlib, sys; sys.path[:0] = {sys.path!r}; import pool_losses_test; "
                   f"pool_losses_test.write_for_ever(pathlib.Path({str(folder)!r}), {step})")
        return [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)]


class PyTorch:
    """Two ranks that save by torch.distributed.checkpoint, and one process that loads."""

    def __init__(self, pool):
        self.pool = pool
        self.code = pool.folder / "save.py"
        lines = [line for line in sections()[RECIPE] if not line.startswith("stdchk ")]
        self.code.write_text("\n".join(in_pool(pool, line) for line in lines))
        # Else gloo looks for the address of the host's name.
        self.environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        self.loader = self.run("load", stdin=subprocess.PIPE)

    def run(self, *words, **options):
        return subprocess.Popen([TORCH, "-W", "ignore", TRAINER, *map(str, words)], stdout=subprocess.PIPE, text=True,
                                env=self.environment, **options)

    def set_rules(self, pool, folder):
        folder.mkdir()
        (line,) = commands(RECIPE, "stdchk policy set")
        shell(pool, line)

    def load(self, folder):
        print(folder, file=self.loader.stdin, flush=True)
        return int(self.loader.stdout.readline())

    def start(self, folder, step):
        rendezvous = self.pool.folder / "rendezvous"
        rendezvous.unlink(missing_ok=True)
        return [self.run("save", self.code, rank, rendezvous, step) for rank in range(2)]


def kill_a_writer(writer, folder, step, random_source):
    """Returns the last step that the writer has finished before SIGKILL ended it."""
    processes = writer.start(folder, step)
    try:
        assert int(processes[0].stdout.readline()) == step + 1
        time.sleep(random_source.uniform(0, 1))
        assert [one.poll() for one in processes] == [None] * len(processes)
    finally:
        for one in random_source.sample(processes, len(processes)):
            one.kill()
    finished = [step + 1, *map(int, processes[0].stdout.read().split())]
    for one in processes:
        one.wait()
    return finished[-1]


def lose_again_and_again(pool, writer, losses):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    random_source = random.Random(seed)
    there, safe = pool.drain / "run", 0
    for loss in range(losses):
        pool.up("--drain-rate", "8M", "--drain-yields", "off", benefactors=2, memory="128M")
        run = pool.mount / "run"
        if loss == 0:
            writer.set_rules(pool, run)
        assert writer.load(run) == safe
        finished = kill_a_writer(writer, run, safe, random_source)
        # SIGKILL may hit the writer between the rename of the pointer and the printed step number.
        assert writer.load(run) in (finished, finished + 1)
        if loss == 0:
            wait_until((there / "latest").exists, "the first pointer in the drain directory", 60)
        time.sleep(random_source.uniform(0, 1.5))
        lose(pool)
        before, safe = safe, writer.load(there)
        assert safe >= before, (loss, before, safe)


def test_what_the_pointer_names_can_be_loaded_after_each_loss(pool):
    lose_again_and_again(pool, Imitation(), LOSSES)


@pytest.mark.skipif(not TORCH, reason="STDCHK_TEST_TORCH names no Python with torch; scripts/check recipes installs it")
def test_pytorch_loads_what_the_pointer_names_after_each_loss(pool):
    writer = PyTorch(pool)
    try:
        lose_again_and_again(pool, writer, min(LOSSES, 10))
    finally:
        writer.loader.kill()
        writer.loader.wait()
