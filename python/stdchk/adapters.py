"""Pools in the checkpoint interfaces of training frameworks. Each class needs its framework only when it is used.

    Trainer(..., callbacks=[adapters.trainer_callback(pool)])                 # transformers
    Trainer(plugins=[adapters.lightning_io(pool)])                            # Lightning
    adapters.deepspeed_engine(pool)                                           # a CheckpointEngine of DeepSpeed
    Manager(..., checkpoint_transport=adapters.torchft_transport(pool))       # torchft
"""

import contextlib
import os
import time
import uuid

from stdchk.pool import Pool


def _save(pool, state, path):
    import torch

    folder = os.path.dirname(path)
    if folder:
        pool.makedirs(folder, exist_ok=True)
    with pool.open(path, "wb") as file:
        torch.save(state, file)


def _load(pool, path, map_location=None, weights_only=True):
    import torch

    with pool.open(path, buffering=1 << 20) as file:
        return torch.load(file, map_location=map_location, weights_only=weights_only)


def _inside(path):
    text = os.fspath(path)
    return (text[len("stdchk://"):] if text.startswith("stdchk://") else text).strip("/")


def lightning_io(pool=None):
    """A CheckpointIO of Lightning that saves whole checkpoints as files of the pool."""
    try:
        from lightning.fabric.plugins import CheckpointIO
    except ImportError:
        from lightning_fabric.plugins import CheckpointIO

    class StdchkCheckpointIO(CheckpointIO):
        def save_checkpoint(self, checkpoint, path, storage_options=None):
            _save(pool or Pool.get(), checkpoint, _inside(path))

        def load_checkpoint(self, path, map_location=None, weights_only=None):
            return _load(pool or Pool.get(), _inside(path), map_location, bool(weights_only))

        def remove_checkpoint(self, path):
            (pool or Pool.get()).unlink(_inside(path))

    return StdchkCheckpointIO()


def trainer_callback(pool=None, folder="trainer"):
    """A TrainerCallback of transformers that copies each checkpoint of a Trainer into the pool.

    Files of a checkpoint go to FOLDER/checkpoint-STEP; `.complete` is written last.
    """
    from transformers import TrainerCallback

    class StdchkTrainerCallback(TrainerCallback):
        def on_save(self, args, state, control, **_):
            if not state.is_world_process_zero:
                return
            to = pool or Pool.get()
            name = f"checkpoint-{state.global_step}"
            _copy_folder(to, os.path.join(args.output_dir, name), f"{folder}/{name}")
            to.write_bytes(f"{folder}/{name}/.complete", b"")

    return StdchkTrainerCallback()


def _copy_folder(pool, source, target):
    pool.makedirs(target, exist_ok=True)
    for entry in os.scandir(source):
        if entry.is_dir():
            _copy_folder(pool, entry.path, f"{target}/{entry.name}")
            continue
        with open(entry.path, "rb") as reader, pool.open(f"{target}/{entry.name}", "wb") as writer:
            while piece := reader.read(8 << 20):
                writer.write(piece)


def deepspeed_engine(pool=None):
    """A CheckpointEngine of DeepSpeed that saves its files in the pool."""
    from deepspeed.runtime.checkpoint_engine.checkpoint_engine import CheckpointEngine

    class StdchkCheckpointEngine(CheckpointEngine):
        def __init__(self):
            super().__init__(None)

        def create(self, tag):
            pass

        def makedirs(self, path, exist_ok=False):
            (pool or Pool.get()).makedirs(_inside(path), exist_ok=exist_ok)

        def save(self, state_dict, path):
            _save(pool or Pool.get(), state_dict, _inside(path))

        def load(self, path, map_location=None):
            return _load(pool or Pool.get(), _inside(path), map_location, weights_only=False)

        def commit(self, tag):
            return True

    return StdchkCheckpointEngine()


def torchft_transport(pool=None, folder="torchft"):
    """A CheckpointTransport of torchft: replicas that fell behind load the state of another replica from the pool.

    A replica writes its state once for all others, before send_checkpoint() returns. Afterwards the other replicas can
    load this state even if its writer dies. All replicas need the same pool.

    Trust: a state is a pickle, as in torchft's own transports; use pools whose writers you trust.
    """
    from torchft.checkpointing import CheckpointTransport

    class StdchkCheckpointTransport(CheckpointTransport):
        def __init__(self):
            self._folder = f"{folder}/{uuid.uuid4()}"
            self._sent = None

        @property
        def _pool(self):
            return pool or Pool.get()

        def metadata(self):
            return self._folder

        def send_checkpoint(self, dst_ranks, step, state_dict, timeout):
            path = _state_path(self._folder, step)
            # A new file is there, empty, from its beginning.
            _save(self._pool, state_dict, f"{path}.part")
            self._pool.rename(f"{path}.part", path)
            before, self._sent = self._sent, path
            if before not in (None, path):
                self._pool.unlink(before)  # who reads it now reads it to its end

        def recv_checkpoint(self, src_rank, metadata, step, timeout):
            path = _state_path(metadata, step)
            _wait_for(self._pool, path, timeout.total_seconds())
            return _load(self._pool, path, "cpu", weights_only=False)

        def shutdown(self, wait=True):
            with contextlib.suppress(FileNotFoundError):
                self._pool.rmtree(self._folder)

    return StdchkCheckpointTransport()


def _state_path(folder, step):
    return f"{folder}/step-{step}"


def _wait_for(pool, path, seconds):
    """Waits until a file is there. Errors: TimeoutError."""
    end = time.monotonic() + seconds
    pause = 0.002
    while not pool.exists(path):
        if time.monotonic() >= end:
            raise TimeoutError(f"timed out: {path} has not come to the pool within {seconds} s")
        time.sleep(pause)
        pause = min(2 * pause, 0.1)
