"""torch.distributed.checkpoint in a pool: StdchkWriter and StdchkReader.

    from stdchk.torch import StdchkReader, StdchkWriter

    writer = StdchkWriter("run/step-100")
    dcp.save(state, storage_writer=writer)                        # or dcp.async_save
    dcp.load(state, storage_reader=StdchkReader("run/step-100"))  # with any number of ranks

Each rank writes one file of plain bytes. A tensor of 1 MiB or more begins at a multiple of 1 MiB. So equal tensors of
two steps are equal chunks, and the pool stores equal chunks once. The writer renames `.metadata` into place last: a
folder without `.metadata` is no checkpoint. A load reads only the rows that its rank needs, straight into the tensors.

Trust: `.metadata` is a pickle, as torch's own; load only from pools whose writers you trust.
"""

import concurrent.futures
import dataclasses
import io
import math
import os
import pickle
import uuid

import torch
from torch.distributed.checkpoint import StorageReader, StorageWriter
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import LoadItemType, WriteItemType
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from stdchk.pool import Pool

_METADATA = ".metadata"
_CHUNK_BYTES = 1 << 20
_SMALL_ALIGNMENT = 64
_PIECE_BYTES = 16 << 20  # a longer tensor is written by several threads


@dataclasses.dataclass(frozen=True)
class Place:
    """The place of a tensor or object: `bytes` bytes from `offset` on, in a file of the checkpoint's folder."""

    file: str
    offset: int
    bytes: int
    shape: tuple = None  # of tensors
    dtype: torch.dtype = None


def _folder(checkpoint_id):
    text = os.fspath(checkpoint_id)
    return (text[len("stdchk://"):] if text.startswith("stdchk://") else text).strip("/")


def _bytes_of(tensor):
    """The tensor's bytes as a flat tensor. Copies only tensors that are not contiguous, and tensors of a GPU."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)


def _finished(value):
    future = Future()
    future.set_result(value)
    return future


class _Threads:
    """Threads that share the work of one call. The first failure ends the call, after all threads have stopped."""

    def __init__(self, count):
        self._count = count

    def run(self, work):
        if self._count == 1 or len(work) < 2:
            for each in work:
                each()
            return
        with concurrent.futures.ThreadPoolExecutor(self._count) as threads:
            for done in [threads.submit(each) for each in work]:
                done.result()


class _Connected:
    """A folder in a pool. `pool`: a Pool or a mount point; with None, the environment names the pool."""

    def __init__(self, path, pool, threads):
        self._pool_or_mount = pool
        self._threads = _Threads(threads or min(4, os.cpu_count() or 1))
        self.path = None if path is None else _folder(path)

    @property
    def pool(self):
        given = self._pool_or_mount
        return given if isinstance(given, Pool) else Pool.get(given)

    def reset(self, checkpoint_id=None):
        if checkpoint_id is not None:
            self.path = _folder(checkpoint_id)
        self._id = str(uuid.uuid4())

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        return str(checkpoint_id).startswith("stdchk://")


class StdchkWriter(_Connected, StorageWriter, BlockingAsyncStager):
    """Saves a state in the folder `path` of a pool, one file for each rank.

    `stage` copies tensors once, into memory that later saves use again; dcp.async_save returns after it.
    """

    def __init__(self, path=None, pool=None, threads=None):
        _Connected.__init__(self, path, pool, threads)
        BlockingAsyncStager.__init__(self, cache_staged_state_dict=True)
        self._id = str(uuid.uuid4())

    def stage(self, state_dict):
        if not torch.cuda.is_available() and self.state_dict_cache is None:
            from torch.distributed._state_dict_utils import _create_cpu_state_dict

            # torch can pin memory only where it finds a CUDA device.
            self.state_dict_cache = _create_cpu_state_dict(state_dict, pin_memory=False)
        return super().stage(state_dict)

    def set_up_storage_writer(self, is_coordinator, *_, **__):
        if is_coordinator:
            self.pool.makedirs(self.path, exist_ok=True)

    def prepare_local_plan(self, plan):
        return plan

    def prepare_global_plan(self, plans):
        self.pool.makedirs(self.path, exist_ok=True)
        return [dataclasses.replace(plan, storage_data=f"rank-{rank}.bin") for rank, plan in enumerate(plans)]

    def write_data(self, plan, planner):
        name = plan.storage_data
        results, work, at = [], [], 0
        with self.pool.open(f"{self.path}/{name}", "wb") as file:
            for item in plan.items:
                data = planner.resolve_data(item)
                if item.type == WriteItemType.BYTE_IO:
                    content, shape, dtype = torch.frombuffer(data.getbuffer(), dtype=torch.uint8), None, None
                else:
                    content, shape, dtype = _bytes_of(data), tuple(data.size()), data.dtype
                size = content.numel()
                at = _aligned(at, _CHUNK_BYTES if size >= _CHUNK_BYTES else _SMALL_ALIGNMENT)
                results.append(WriteResult(item.index, size, Place(name, at, size, shape, dtype)))
                work += [lambda piece=piece, to=at + first: file.pwrite(piece, to)
                         for first, piece in _pieces(content)]
                at += size
            self._threads.run(work)
        return _finished(results)

    def finish(self, metadata, results):
        metadata.storage_data = {each.index: each.storage_data for rank in results for each in rank}
        metadata.storage_meta = self.storage_meta()
        temporary = f"{self.path}/{_METADATA}.tmp"
        self.pool.write_bytes(temporary, pickle.dumps(metadata))
        self.pool.rename(temporary, f"{self.path}/{_METADATA}")

    def storage_meta(self):
        return StorageMeta(checkpoint_id=self.path, save_id=self._id)


class StdchkReader(_Connected, StorageReader):
    """Loads what StdchkWriter has saved, with any number of ranks and any sharding."""

    def __init__(self, path=None, pool=None, threads=None):
        super().__init__(path, pool, threads)
        self._id = str(uuid.uuid4())
        self._places = {}

    def read_metadata(self, *_, **__) -> Metadata:
        metadata = pickle.loads(self.pool.read_bytes(f"{self.path}/{_METADATA}"))
        if getattr(metadata, "storage_meta", None) is None:
            metadata.storage_meta = StorageMeta()
        metadata.storage_meta.load_id = self._id
        return metadata

    def set_up_storage_reader(self, metadata, is_coordinator, *_, **__):
        self._places = metadata.storage_data

    def prepare_local_plan(self, plan):
        return plan

    def prepare_global_plan(self, plans):
        return plans

    def read_data(self, plan, planner):
        files, targets, work = {}, [], []
        try:
            for item in plan.items:
                place = self._places[item.storage_index]
                if place.file not in files:
                    files[place.file] = self.pool.open(f"{self.path}/{place.file}")
                file = files[place.file]
                if item.type == LoadItemType.BYTE_IO:
                    content = bytearray(place.bytes)
                    _read(file, content, place.bytes, place.offset)
                    planner.load_bytes(item, io.BytesIO(content))
                    continue
                target = planner.resolve_tensor(item).detach()
                targets.append((item, target))
                work += _reads(file, place, item, target)
            self._threads.run(work)
        finally:
            for file in files.values():
                file.close()
        for item, target in targets:
            planner.commit_tensor(item, target)
        return _finished(None)


def _aligned(offset, alignment):
    return -(-offset // alignment) * alignment


def _pieces(content):
    """Parts of flat bytes, each with its offset, for several threads."""
    return [(first, content[first : first + _PIECE_BYTES]) for first in range(0, content.numel(), _PIECE_BYTES)]


def _read(file, memory, count, offset):
    if count and file.pread_into(memory, offset) != count:
        raise EOFError(f"{file.name} ends within a tensor")


def _reads(file, place, item, target):
    """The reads that fill `target` with the wanted part of the tensor at `place`.

    A part of whole rows is one run of bytes, and goes straight into a contiguous target of the same type.
    Otherwise the rows that hold the part are read into memory of their own, and the part is copied.
    """
    shape, offsets, lengths = place.shape, tuple(item.storage_offsets), tuple(item.lengths)
    if tuple(target.size()) != lengths:
        raise ValueError(f"{file.name}: the tensor to load has the size {tuple(target.size())}, not {lengths}")
    row_bytes = math.prod(shape[1:]) * place.dtype.itemsize
    first, rows = (offsets[0], lengths[0]) if shape else (0, 1)
    begin = place.offset + first * row_bytes
    whole_rows = not shape or (offsets[1:] == (0,) * (len(shape) - 1) and lengths[1:] == shape[1:])
    if whole_rows and target.is_contiguous() and target.device.type == "cpu" and target.dtype == place.dtype:
        return [lambda piece=piece, at=begin + start: _read(file, piece, piece.numel(), at)
                for start, piece in _pieces(target.reshape(-1).view(torch.uint8))]

    def copy():
        held = torch.empty((rows, *shape[1:]) if shape else (), dtype=place.dtype)
        _read(file, held, held.numel() * held.element_size(), begin)
        for dimension in range(1, len(shape)):
            held = held.narrow(dimension, offsets[dimension], lengths[dimension])
        target.copy_(held)

    return [copy]
