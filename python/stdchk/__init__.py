"""stdchk: checkpoint storage, and clones of running processes.

    import stdchk

    pool = stdchk.Pool("/tmp/pool")              # of `stdchk up`; Pool() takes STDCHK_MANAGER from the environment
    with pool.open("run/heat.N0.T1", "wb") as image:
        image.write(array)                       # any object with the buffer protocol, or a CPU tensor
    newest = pool.latest("run")

A submodule is imported at its first use. stdchk.fork needs only libstdchk_fork; stdchk.torch needs torch; stdchk.fsspec
needs fsspec. The page docs/guide/python.md has examples.
"""

import importlib

_PLACES = {
    "Pool": "pool",
    "Entry": "pool",
    "Set": "pool",
    "Safety": "pool",
    "Space": "pool",
    "File": "file",
    "Queue": "queue",
    "map": "arrays",
    "library_version": "_library",
}
__all__ = ["Entry", "File", "Pool", "Queue", "Safety", "Set", "Space", "library_version", "map"]


def __getattr__(name):
    if name in _PLACES:
        return getattr(importlib.import_module(f"stdchk.{_PLACES[name]}"), name)
    if name in ("fork", "mpi", "job", "torch", "fsspec", "adapters"):
        return importlib.import_module(f"stdchk.{name}")
    raise AttributeError(f"module 'stdchk' has no attribute {name!r}")
