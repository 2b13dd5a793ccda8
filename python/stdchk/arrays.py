"""Arrays of files in a pool, read when they are touched: .npy and .safetensors."""

import json
import math
import struct
from collections.abc import Mapping

from stdchk.pool import Pool

_HEADER_BYTES_MAX = 100_000_000  # as the safetensors package
_NUMPY_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
                "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1"}
_TORCH_NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64",
                "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool",
                "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}


class Array:
    """An array in a file. Nothing is read until rows are asked for: array[10:20], numpy.asarray(array).

    `shape`, and `dtype` of numpy. An index takes rows of the first dimension; further indexes apply to them.
    """

    def __init__(self, file, offset, shape, dtype):
        import numpy

        self._file, self._offset, self.shape, self.dtype = file, offset, tuple(shape), numpy.dtype(dtype)

    def __len__(self):
        return self.shape[0]

    def _rows(self, first, count):
        import numpy

        out = numpy.empty((count, *self.shape[1:]), self.dtype)
        row_bytes = math.prod(self.shape[1:]) * self.dtype.itemsize
        _fill(self._file, out, self._offset + first * row_bytes)
        return out

    def __getitem__(self, key):
        if not self.shape:
            return self.__array__()[key]
        first, *others = key if isinstance(key, tuple) else (key,)
        others = tuple(others)
        if isinstance(first, slice) and first.step in (None, 1):
            start, stop, _ = first.indices(self.shape[0])
            rows = self._rows(start, max(stop - start, 0))
            return rows[(slice(None), *others)] if others else rows
        if isinstance(first, int):
            number = first + self.shape[0] if first < 0 else first
            if not 0 <= number < self.shape[0]:
                raise IndexError(f"row {first} of {self.shape[0]}")
            row = self._rows(number, 1)[0]
            return row[others] if others else row
        return self.__array__()[key]

    def __array__(self, dtype=None, copy=None):
        import numpy

        out = numpy.empty(self.shape, self.dtype)
        _fill(self._file, out, self._offset)
        return out if dtype is None else out.astype(dtype, copy=False)


class Tensors(Mapping):
    """The tensors of a safetensors file by name; each is read when it is asked for.

    tensors["weight"] is a numpy array; tensors.torch("weight") is a tensor, for types that numpy has not.
    """

    def __init__(self, file):
        self._file = file
        length = struct.unpack("<Q", _bytes(file, 0, 8))[0]
        if length > min(_HEADER_BYTES_MAX, file.size - 8):
            raise ValueError(f"{file.name} is not a safetensors file: its header is longer than the file")
        header = json.loads(_bytes(file, 8, length))
        self.metadata = header.pop("__metadata__", {})
        self._begin, self._tensors = 8 + length, header
        for name, about in header.items():
            first, end = about["data_offsets"]
            if not 0 <= first <= end <= file.size - self._begin:
                raise ValueError(f"{file.name}: the tensor {name} lies outside the file")

    def __iter__(self):
        return iter(self._tensors)

    def __len__(self):
        return len(self._tensors)

    def __getitem__(self, name):
        import numpy

        return numpy.asarray(self.lazy(name))

    def lazy(self, name):
        """Returns the tensor as an Array, which reads only the requested rows."""
        about = self._tensors[name]
        if about["dtype"] not in _NUMPY_TYPES:
            raise TypeError(f"numpy has no type {about['dtype']}: use torch({name!r})")
        return Array(self._file, self._begin + about["data_offsets"][0], about["shape"], _NUMPY_TYPES[about["dtype"]])

    def torch(self, name):
        import torch

        about = self._tensors[name]
        tensor = torch.empty(about["shape"], dtype=getattr(torch, _TORCH_NAMES[about["dtype"]]))
        first, end = about["data_offsets"]
        if end - first != tensor.numel() * tensor.element_size():
            raise ValueError(f"{self._file.name}: the tensor {name} has not the length of its shape")
        _fill(self._file, tensor, self._begin + first)
        return tensor


def _bytes(file, offset, count):
    content = bytearray(count)
    _fill(file, content, offset)
    return bytes(content)


def _fill(file, memory, offset):
    wanted = memoryview(memory).nbytes if not hasattr(memory, "data_ptr") else memory.numel() * memory.element_size()
    if wanted and file.pread_into(memory, offset) != wanted:
        raise EOFError(f"{file.name} ends within the array")


def _npy(file):
    import numpy

    file.seek(0)
    version = numpy.lib.format.read_magic(file)
    read = {(1, 0): numpy.lib.format.read_array_header_1_0, (2, 0): numpy.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"{file.name}: version {version} of .npy is not known")
    shape, fortran, dtype = read(file)
    if fortran or dtype.hasobject:
        raise ValueError(f"{file.name}: arrays in Fortran order, and arrays of objects, cannot be read in parts")
    return Array(file, file.tell(), shape, dtype)


def map(path, pool=None):
    """Opens an array file of a pool without reading it: an Array for .npy, Tensors for .safetensors.

    `pool`: a Pool; without it the one that the environment names.
    """
    file = (pool or Pool.get()).open(path)
    magic = bytearray(6)
    is_npy = file.pread_into(magic, 0) == len(magic) and magic == b"\x93NUMPY"
    return _npy(file) if is_npy else Tensors(file)
