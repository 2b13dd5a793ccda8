"""Kills writers of checkpoints, and then whole pools in the middle of the drain, again and again on one drain directory.
The directory that the pointer names can be loaded every time: in the pool, in the drain directory, and in the next pool.

STDCHK_TEST_LOSSES is the number of losses; `scripts/check all` takes 100.
"""

import os
import random
import shutil
import subprocess
import sys
import time

from pool_directory_sets_test import RULES, load, lose, set_rules, write_checkpoint
from processes import wait_until

LOSSES = int(os.environ.get("STDCHK_TEST_LOSSES", "3"))


def write_for_ever(folder, step):
    """Saves one checkpoint after the other. A directory that a killed writer left is removed first, as trainers do."""
    while True:
        step += 1
        shutil.rmtree(folder / f"step-{step}", ignore_errors=True)
        write_checkpoint(folder, step, shards=3, size=1 << 20)
        print(step, flush=True)
        time.sleep(0.05)


def step_of(name):
    return 0 if name is None else int(name.removeprefix("step-"))


def kill_a_writer(folder, step, random_source):
    """Returns the last step that the writer has finished before SIGKILL ended it."""
    program = (f"import pathlib, sys; sys.path[:0] = {sys.path!r}; import pool_losses_test; "
               f"pool_losses_test.write_for_ever(pathlib.Path({str(folder)!r}), {step})")
    writer = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert int(writer.stdout.readline()) == step + 1
    time.sleep(random_source.uniform(0, 1))
    assert writer.poll() is None
    writer.kill()
    finished = [step + 1, *map(int, writer.stdout.read().split())]
    writer.wait()
    return finished[-1]


def test_what_the_pointer_names_can_be_loaded_after_each_loss(pool):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    random_source = random.Random(seed)
    there, safe = pool.drain / "run", None
    for loss in range(LOSSES):
        pool.up("--drain-rate", "8M", "--drain-yields", "off", benefactors=2, memory="128M")
        run = pool.mount / "run"
        if loss == 0:
            set_rules(pool, run, *RULES, "keep=3")
        assert load(run) == safe
        finished = kill_a_writer(run, step_of(safe), random_source)
        # SIGKILL may hit the writer between the rename of the pointer and the printed step number.
        assert step_of(load(run)) in (finished, finished + 1)
        if loss == 0:
            wait_until((there / "latest").exists, "the first pointer in the drain directory", 60)
        time.sleep(random_source.uniform(0, 1.5))
        lose(pool)
        before, safe = safe, load(there)
        assert step_of(safe) >= step_of(before), (loss, before, safe)
