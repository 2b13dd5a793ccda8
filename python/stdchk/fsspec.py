"""stdchk:// for fsspec: stdchk://run/step-100 is the folder run/step-100 of the pool that the environment names.

The package's entry point makes the protocol known, so that pandas, zarr, datasets and others use it by themselves.
With the option mount="/tmp/pool" it is the pool of that mount point.
"""

import io

import fsspec

from stdchk.pool import Pool


class StdchkFileSystem(fsspec.AbstractFileSystem):
    """A pool as a file system of fsspec. Files become visible when they are closed. flush() does nothing.

    A file that is written brings its folders along.
    """

    protocol = "stdchk"
    root_marker = ""
    cachable = False  # a connection does not survive os.fork()

    def __init__(self, mount=None, pool=None, **options):
        super().__init__(**options)
        self._mount, self._given = mount, pool

    @property
    def pool(self):
        return self._given or Pool.get(self._mount)

    @classmethod
    def _strip_protocol(cls, path):
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        path = str(path)
        if path.startswith("stdchk://"):
            path = path[len("stdchk://"):]
        return path.strip("/")

    @staticmethod
    def _info(entry):
        kind = "directory" if entry.is_dir() else "link" if entry.is_symlink() else "file"
        return {"name": entry.path, "size": 0 if entry.is_dir() else entry.size, "type": kind,
                "mtime": entry.mtime_ns / 1e9, "mode": entry.mode, "version": entry.version, "drain": entry.drain}

    def info(self, path, **_):
        path = self._strip_protocol(path)
        return {**self._info(self.pool.stat(path)), "name": path}

    def ls(self, path, detail=True, **_):
        path = self._strip_protocol(path)
        try:
            found = [self._info(entry) for entry in self.pool.scandir(path)]
        except NotADirectoryError:
            found = [self.info(path)]
        return found if detail else [each["name"] for each in found]

    def exists(self, path, **_):
        return self.pool.exists(self._strip_protocol(path))

    def modified(self, path):
        import datetime

        return datetime.datetime.fromtimestamp(self.info(path)["mtime"], datetime.timezone.utc)

    created = modified

    def mkdir(self, path, create_parents=True, **_):
        path = self._strip_protocol(path)
        if create_parents and "/" in path:
            self.pool.makedirs(path.rpartition("/")[0], exist_ok=True)
        self.pool.mkdir(path)

    def makedirs(self, path, exist_ok=False):
        if path := self._strip_protocol(path):
            self.pool.makedirs(path, exist_ok=exist_ok)

    def rmdir(self, path):
        self.pool.rmdir(self._strip_protocol(path))

    def _rm(self, path):
        path = self._strip_protocol(path)
        if self.pool.stat(path, follow_symlinks=False).is_dir():
            self.pool.rmdir(path)
        else:
            self.pool.unlink(path)

    def rm_file(self, path):
        self._rm(path)

    def mv(self, path1, path2, recursive=False, maxdepth=None, **_):
        self.pool.rename(self._strip_protocol(path1), self._strip_protocol(path2))

    rename = mv

    def cp_file(self, path1, path2, **_):
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.pool.stat(source).is_dir():
            self.makedirs(target, exist_ok=True)
            return
        with self.pool.open(source) as reader, self.pool.open(target, "wb") as writer:
            while piece := reader.read(8 << 20):
                writer.write(piece)

    def _open(self, path, mode="rb", block_size=None, **_):
        path = self._strip_protocol(path)
        folder = path.rpartition("/")[0]
        try:
            file = self.pool.open(path, mode)
        except FileNotFoundError:
            if not folder or mode[0] == "r":
                raise
            # As in an object store, a file needs no folder before: zarr makes none.
            self.pool.makedirs(folder, exist_ok=True)
            file = self.pool.open(path, mode)
        return io.BufferedReader(file, block_size or 1 << 20) if mode == "rb" else file
