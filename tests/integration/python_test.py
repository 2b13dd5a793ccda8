"""Tests of the Python package over a real pool: from the source tree, or with STDCHK_TEST_WHEEL set as installed."""

import array
import asyncio
import ctypes
import errno
import importlib
import io
import os
import pickle
import re
import subprocess
import sys
import threading

import pytest
from processes import BIN, ROOT, run

if not os.environ.get("STDCHK_TEST_WHEEL"):
    sys.path.insert(0, str(ROOT / "python"))
    os.environ["STDCHK_LIBRARY"] = str((BIN / "stdchk").resolve().parents[1] / "client" / "libstdchk.so.0")
import stdchk  # noqa: E402
from stdchk import _library  # noqa: E402


@pytest.fixture(scope="module")
def connected(module_pool):
    module_pool.up(benefactors=2)
    os.environ["XDG_RUNTIME_DIR"] = str(module_pool.runtime)
    with stdchk.Pool(module_pool.mount) as pool:
        yield pool


def declared():
    """Returns the number of parameters of each function of stdchk.h."""
    text = re.sub(r"/\*.*?\*/", "", (ROOT / "client/api/stdchk.h").read_text(), flags=re.DOTALL)
    found = re.findall(r"^[a-z][\w *]*?\b(stdchk_\w+)\(([^)]*)\);", text, re.MULTILINE)
    return {name: 0 if parameters == "void" else parameters.count(",") + 1 for name, parameters in found}


def test_the_package_calls_functions_as_the_header_declares_them():
    functions = declared()
    assert len(functions) > 50
    assert {name: len(arguments) for name, (_, arguments) in _library.FUNCTIONS.items()} == {
        name: functions[name] for name in _library.FUNCTIONS}


STRUCTURES = {"options": "Options", "attributes": "Attributes", "entry": "DirectoryEntry", "space": "SpaceFigures",
              "set": "SetEntry", "safety": "SafetyFigures", "completion": "Completion"}


def test_structures_are_laid_out_as_the_compiler_does(tmp_path):
    lines = []
    for name, ours in STRUCTURES.items():
        lines.append(f'printf("{ours} sizeof %zu\\n", sizeof(struct stdchk_{name}));')
        lines += [f'printf("{ours} {field[0]} %zu\\n", offsetof(struct stdchk_{name}, {field[0]}));'
                  for field in getattr(_library, ours)._fields_]
    source = tmp_path / "layout.c"
    source.write_text("#include <stddef.h>\n#include <stdio.h>\n#include <stdchk.h>\nint main(void) {\n"
                      + "\n".join(lines) + "\nreturn 0; }\n")
    run("cc", "-I", ROOT / "client/api", source, "-o", tmp_path / "layout")
    for line in run(tmp_path / "layout").stdout.splitlines():
        ours, field, number = line.split()
        structure = getattr(_library, ours)
        assert int(number) == (ctypes.sizeof(structure) if field == "sizeof" else getattr(structure, field).offset), line


def test_the_package_has_all_its_modules():
    build = (ROOT / "python/meson.build").read_text()
    for path in sorted((ROOT / "python/stdchk").glob("*.py")):
        assert f"'stdchk/{path.name}'" in build, path.name
        if path.stem not in ("__init__", "fork", "fsspec", "mpi", "torch"):  # these need further packages or libraries
            importlib.import_module(f"stdchk.{path.stem}")


def test_memory_of_any_kind_is_written_and_filled(connected):
    numbers = array.array("d", range(300000))
    with connected.open("memory.N0.T1", "wb") as file:
        assert file.write(numbers) == 2400000
        assert file.write(b"bytes") == 5
        assert file.write(memoryview(b"0123456789")[2:5]) == 3
        assert file.tell() == file.size == 2400008 and not hasattr(file, "fileno")
    with connected.open("memory.N0.T1") as file:
        got = array.array("d", bytes(2400000))
        assert file.readinto(got) == 2400000 and got == numbers
        assert file.read() == b"bytes234" and file.read() == b"" and file.read(5) == b""
        assert file.seek(-3, os.SEEK_END) == 2400005 and file.read(100) == b"234"
        assert file.seek(0) == 0 and len(file.readall()) == 2400008
        with pytest.raises(BufferError):
            file.readinto(b"read-only")
        with pytest.raises(BufferError):
            connected.open("never", "wb").write(memoryview(b"0123456789")[::2])
        with pytest.raises(TypeError):
            file.readinto("text")
    with pytest.raises(ValueError):
        file.read()
    assert not connected.exists("never")


def test_a_file_is_a_raw_stream_of_the_module_io(connected):
    with io.BufferedWriter(connected.open("stream", "wb"), 100) as file:
        for number in range(1000):
            file.write(b"%05d" % number)
    with connected.open("stream", buffering=64) as file:
        file.seek(995 * 5)
        assert file.read(5) == b"00995" and len(file.read()) == 20
    with connected.open("stream", "ab") as file:
        file.write(b"appended")
    with connected.open("stream", "r+b") as file:
        file.write(b"first")
        file.seek(5000)
        assert file.read() == b"appended"
        assert file.truncate(5) == 5
    assert connected.read_bytes("stream") == b"first"
    with pytest.raises(FileExistsError):
        connected.open("stream", "xb")
    with pytest.raises(ValueError):
        connected.open("stream", "nonsense-b")
    with connected.open("text", "w") as file:
        print("first line", file=file)
    with connected.open("text", "r") as file:
        assert file.readlines() == ["first line\n"]
    connected.write_bytes("pickled", pickle.dumps({"step": 3}))
    with connected.open("pickled") as file:
        assert pickle.load(file) == {"step": 3}


def test_what_a_failed_block_has_written_is_dropped(connected):
    connected.write_bytes("kept.N0.T1", b"old")
    with pytest.raises(KeyError), connected.open("kept.N0.T1", "wb") as file:
        file.write(b"new")
        raise KeyError
    assert connected.read_bytes("kept.N0.T1") == b"old"
    file = connected.open("kept.N0.T1", "wb")
    file.write(b"forgotten")
    del file
    assert connected.read_bytes("kept.N0.T1") == b"old"


def test_names(connected):
    connected.makedirs("names/a/b")
    connected.makedirs("names/a/b", exist_ok=True)
    with pytest.raises(FileExistsError):
        connected.makedirs("names/a/b")
    connected.write_bytes("names/a/file", b"123")
    connected.symlink("a/file", "names/link")
    assert connected.readlink("names/link") == "a/file"
    assert connected.stat("names/link").size == 3
    assert connected.stat("names/link", follow_symlinks=False).is_symlink()
    assert [(entry.path, entry.is_dir()) for entry in connected.scandir("names/a")] == [
        ("names/a/b", True), ("names/a/file", False)]
    connected.chmod("names/a/file", 0o600)
    connected.utime("names/a/file", (0, 1_000_000_007))
    connected.setxattr("names/a/file", "user.x", b"\0value")
    found = connected.stat("names/a/file")
    assert (found.mode & 0o777, found.mtime_ns, found.name) == (0o600, 1_000_000_007, "file")
    assert connected.listxattr("names/a/file") == ["user.x"]
    assert connected.getxattr("names/a/file", "user.x") == b"\0value"
    connected.removexattr("names/a/file", "user.x")
    connected.write_bytes("names/other", b"x")
    with pytest.raises(FileExistsError):
        connected.rename("names/a/file", "names/other", replace=False)
    connected.rename("names/a/file", "names/other")
    assert connected.read_bytes("names/other") == b"123"
    connected.write_bytes("names/\u00e4\udcff", b"")
    assert "\u00e4\udcff" in connected.listdir("names")
    with pytest.raises(OSError, match="not empty") as failed:
        connected.rmdir("names")
    assert failed.value.code == "NotEmpty" and failed.value.filename == "names"
    connected.rmtree("names")
    assert not connected.exists("names")
    assert connected.statfs().total_bytes >= 2 * 200 << 20


def test_sets_policy_and_safety(connected, module_pool):
    connected.mkdir("run")
    assert connected.sets("run") == [] and connected.latest("run") is None
    connected.set_policy("run", images=2, purge_after="12h")
    assert (connected.policy("run", "images"), connected.policy("run", "purge-after")) == ("2", "12h")
    with pytest.raises(OSError, match="purge-after"):
        connected.set_policy("run", purge_after="soon")
    # The manager explains which settings exclude each other.
    with pytest.raises(OSError, match=r"placement=node does not go with copies=ec\(2,1\)"):
        connected.set_policy("run", placement="node", copies="ec(2,1)")
    for name in ("heat.N0.T1", "heat.N1.T1", "heat.N0.T2"):
        connected.write_bytes(f"run/{name}", name.encode())
    connected.pin("run", "heat.*.T1")
    assert [(each.name, each.complete, each.pinned) for each in connected.sets("run")] == [
        ("heat.*.T2", False, False), ("heat.*.T1", True, True)]
    assert connected.latest("run", "heat").timestep == 1
    connected.wait("run", copies=True, drain=True)
    safety = connected.safe("run")
    assert safety and safety.files == 3
    assert (module_pool.drain / "run" / "heat.N0.T2").read_bytes() == b"heat.N0.T2"
    with pytest.raises(FileNotFoundError):
        connected.latest("none")


def test_directories_are_sets(connected, module_pool):
    connected.mkdir("train")
    connected.set_policy("train", preset="dcp", keep=5)
    assert (connected.policy("train", "set"), connected.policy("train", "keep")) == ("directory", "5")
    connected.makedirs("train/step-1")
    connected.write_bytes("train/step-1/rank-0.bin", b"1")
    assert connected.latest("train") is None
    connected.write_bytes("train/step-1/.metadata", b"1")
    assert (connected.latest("train").name, connected.latest("train").application) == ("step-1", "")
    connected.makedirs("train/step-2")
    connected.write_bytes("train/step-2/rank-0.bin", b"2")
    connected.commit("train/step-2")
    connected.pin("train", "step-1")
    assert [(each.name, each.complete, each.pinned) for each in connected.sets("train")] == [
        ("step-2", True, False), ("step-1", True, True)]
    assert connected.latest("train").name == "step-2"
    connected.wait("train", drain=True)
    # A later pool on the drain directory reads the settings there.
    assert "keep=5" in os.readlink(module_pool.drain / "train/.stdchk-policy")


def test_threads_write_parts_of_one_file_at_once(connected):
    parts = [os.urandom(3 << 20) for _ in range(4)]
    with connected.open("threads.N0.T1", "wb") as file:
        threads = [threading.Thread(target=file.pwrite, args=(part, number * len(part)))
                   for number, part in enumerate(parts)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert connected.read_bytes("threads.N0.T1") == b"".join(parts)


def test_a_queue_writes_and_reads_beside_the_program(connected):
    parts = [bytearray(os.urandom(1 << 20)) for _ in range(12)]
    with stdchk.Queue(connected, depth=4) as queue:
        image = connected.open("queued.N0.T1", "wb")
        written = [queue.pwrite(image, part, number << 20) for number, part in enumerate(parts)]
        closed = queue.close_file(image)
        with pytest.raises(ValueError):
            image.write(b"more")
        image.close()
        assert [each.result(60) for each in written] == [1 << 20] * 12 and closed.result(60) == 0
        with pytest.raises(BufferError):
            queue.pread_into(connected.open("queued.N0.T1"), b"read-only", 0)
        parts[0].append(0)  # no call holds the memory any more

        async def read(image):
            memory = [bytearray(1 << 20) for _ in range(3)]
            calls = [queue.pread_into(image, each, number << 20) for number, each in enumerate(memory)]
            assert await asyncio.gather(*map(asyncio.wrap_future, calls)) == [1 << 20] * 3
            return memory

        with connected.open("queued.N0.T1") as image:
            assert asyncio.run(read(image)) == [parts[0][:-1], parts[1], parts[2]]
            past = queue.pread_into(image, bytearray(10), 12 << 20)
            assert past.result(60) == 0
        with connected.open("plain", "wb") as file:
            queue.pwrite(file, b"synced", 0)
            queue.sync(file).result(60)
            assert connected.read_bytes("plain") == b"synced"
    with pytest.raises(ValueError):
        queue.sync(connected.open("queued.N0.T1"))


def test_the_end_of_a_file_waits_for_its_queued_calls(connected):
    with stdchk.Queue(connected, threads=1) as queue:
        with connected.open("waits.N0.T1", "wb") as image:
            calls = [queue.pwrite(image, bytes(1 << 20), number << 20) for number in range(16)]
        assert all(each.done() for each in calls) and connected.stat("waits.N0.T1").size == 16 << 20
        with pytest.raises(KeyError), connected.open("waits.N0.T1", "wb") as image:
            calls = [queue.pwrite(image, b"new", number << 20) for number in range(16)]
            raise KeyError
        assert all(each.done() for each in calls) and connected.stat("waits.N0.T1").size == 16 << 20


@pytest.mark.parametrize("beside", [True, False], ids=["by-the-queue", "by-the-program"])
def test_a_file_with_a_failed_call_keeps_its_old_content(connected, beside):
    connected.write_bytes("failed.N0.T1", b"old")
    with stdchk.Queue(connected) as queue:
        image = connected.open("failed.N0.T1", "wb")
        queue.pwrite(image, b"new", 0)
        too_far = queue.pwrite(image, b"new", 1 << 62)
        with pytest.raises(OSError, match="failed.N0.T1"):
            queue.close_file(image).result(60) if beside else image.close()
        assert too_far.exception(60).errno == errno.EFBIG and too_far.exception().code == "TooLarge"
        assert image.closed
    assert connected.read_bytes("failed.N0.T1") == b"old"


def test_a_queue_ends_with_its_pool_or_program(module_pool, connected, tmp_path):
    pool = stdchk.Pool(module_pool.mount)
    queue, file = stdchk.Queue(pool), pool.open("left.N0.T1", "wb")
    written = queue.pwrite(file, bytes(8 << 20), 0)
    pool.close()
    assert written.done()
    with pytest.raises(ValueError):
        queue.sync(file)
    program = tmp_path / "program.py"
    program.write_text(f"""
import stdchk
pool = stdchk.Pool({str(module_pool.mount)!r})
queue = stdchk.Queue(pool)
queue.close_file(pool.open("of-a-program.N0.T1", "wb"))
image = pool.open("by-a-program.N0.T1", "wb")
queue.pwrite(image, bytes(8 << 20), 0)
queue.close_file(image)
""")
    path = {} if os.environ.get("STDCHK_TEST_WHEEL") else {"PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, env=os.environ | path, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert connected.stat("by-a-program.N0.T1").size == 8 << 20 and connected.exists("of-a-program.N0.T1")


def test_a_forked_child_is_told_to_connect_again(connected, module_pool):
    file = connected.open("forked", "wb")
    file.write(b"parent")
    queue = stdchk.Queue(connected)
    queue.sync(file).result(60)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            with pytest.raises(RuntimeError, match="fork"):
                connected.stat("run")
            with pytest.raises(RuntimeError, match="fork"):
                file.write(b"child")
            with pytest.raises(RuntimeError, match="fork"):
                queue.sync(file)
            queue.close()
            file.close()
            connected.close()
            with stdchk.Pool(module_pool.mount) as again:
                again.write_bytes("of-the-child", b"x")
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    file.close()
    assert connected.read_bytes("forked") == b"parent" and connected.exists("of-the-child")


def test_errors_say_what_to_do(tmp_path, monkeypatch):
    monkeypatch.delenv("STDCHK_MANAGER", raising=False)
    with pytest.raises(OSError, match="STDCHK_MANAGER"):
        stdchk.Pool()
    with pytest.raises(FileNotFoundError, match="stdchk status"):
        stdchk.Pool(tmp_path)


def test_a_pool_of_this_program_goes_down_with_it(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("STDCHK_BIN", str(BIN))
    with stdchk.Pool.up(memory="64M") as pool:
        pool.write_bytes("x.N0.T1", b"123")
        assert pool.read_bytes("x.N0.T1") == b"123"
        assert list(tmp_path.glob("stdchk/*/pool.json"))
    assert not list(tmp_path.glob("stdchk/*/pool.json"))
    with pytest.raises(ValueError):
        pool.stat("x.N0.T1")


@pytest.mark.parametrize("begin,says", [
    ("import stdchk", "heat.*.T3 is complete, 2 images\n"), ("import asyncio", "8388608 bytes are stored\n")])
def test_the_examples_of_the_guide_run(module_pool, connected, tmp_path, begin, says):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/guide/python.md").read_text(), re.DOTALL)
    (example,) = (block for block in blocks if block.startswith(begin))
    program = tmp_path / "example.py"
    program.write_text(example.replace("/tmp/pool", str(module_pool.mount)))
    path = {} if os.environ.get("STDCHK_TEST_WHEEL") else {"PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, env=os.environ | path)
    assert (done.returncode, done.stdout) == (0, says), done.stderr


def test_numpy_arrays_are_read_in_rows(connected):
    numpy = pytest.importorskip("numpy")
    whole = numpy.arange(600000, dtype="f4").reshape(2000, 300)
    with connected.open("array.npy", "wb") as file:
        numpy.save(file, whole)
    lazy = stdchk.map("array.npy", connected)
    assert (lazy.shape, lazy.dtype, len(lazy)) == ((2000, 300), whole.dtype, 2000)
    assert (lazy[5:7] == whole[5:7]).all() and (lazy[-1] == whole[-1]).all() and lazy[3, 4] == whole[3, 4]
    assert (lazy[10:20, ::2] == whole[10:20, ::2]).all() and (lazy[::3] == whole[::3]).all()
    assert (numpy.asarray(lazy) == whole).all()
    with pytest.raises(IndexError):
        lazy[2000]
    connected.write_bytes("wrong.npy", b"no array at all, and longer than a header")
    with pytest.raises(ValueError, match="safetensors"):
        stdchk.map("wrong.npy", connected)
    connected.write_bytes("cut.npy", connected.read_bytes("array.npy")[:1000])
    with pytest.raises(EOFError):
        stdchk.map("cut.npy", connected)[1900:2000]


def test_safetensors_are_read_one_by_one(connected):
    numpy = pytest.importorskip("numpy")
    safetensors = pytest.importorskip("safetensors.numpy")
    tensors = {"a": numpy.arange(12, dtype="i8").reshape(3, 4), "b": numpy.ones(5, "f2")}
    connected.write_bytes("model.safetensors", safetensors.save(tensors, {"step": "3"}))
    lazy = stdchk.map("model.safetensors", connected)
    assert set(lazy) == {"a", "b"} and lazy.metadata == {"step": "3"}
    assert all((lazy[name] == tensor).all() for name, tensor in tensors.items())
    assert (lazy.lazy("a")[1:2] == tensors["a"][1:2]).all()


def test_fsspec_finds_stdchk_by_its_protocol(connected):
    fsspec = pytest.importorskip("fsspec")
    from stdchk.fsspec import StdchkFileSystem

    files = StdchkFileSystem(pool=connected)
    files.makedirs("stdchk://spec/sub", exist_ok=True)
    with files.open("stdchk://spec/file", "wb") as file:
        file.write(b"0123456789")
        file.flush()
    assert files.cat("spec/file") == b"0123456789" and files.cat_file("spec/file", 2, 5) == b"234"
    assert sorted(files.ls("stdchk://spec", detail=False)) == ["spec/file", "spec/sub"]
    assert files.info("spec/file")["size"] == 10 and files.isdir("spec") and files.exists("spec/file")
    assert files.find("spec") == ["spec/file"] and files.glob("spec/f*") == ["spec/file"]
    files.pipe("spec/new/folder/file", b"x")  # a new file brings its folders along
    with pytest.raises(FileNotFoundError):
        files.open("spec/none/file", "rb")
    assert not files.exists("spec/none")
    files.rm("spec/new", recursive=True)
    files.cp_file("spec/file", "spec/copy")
    files.mv("spec/copy", "spec/moved")
    files.pipe("spec/piped", b"xyz")
    assert files.cat("spec/moved") == b"0123456789" and files.cat("spec/piped") == b"xyz"
    files.rm("spec", recursive=True)
    assert not files.exists("spec")
    if os.environ.get("STDCHK_TEST_WHEEL"):
        assert fsspec.get_filesystem_class("stdchk") is StdchkFileSystem


DATA_LIBRARIES = {
    "pandas": '''
frame = pandas.DataFrame({"step": [1, 2], "loss": [0.5, 0.25]})
frame.to_csv("stdchk://data/frame.csv", index=False)
assert pandas.read_csv("stdchk://data/frame.csv").equals(frame)
''',
    "zarr": '''
import numpy
array = zarr.create_array("stdchk://data/array.zarr", shape=(100, 100), chunks=(10, 100), dtype="f4")
array[:] = numpy.arange(10000, dtype="f4").reshape(100, 100)
assert (zarr.open_array("stdchk://data/array.zarr", mode="r")[15:25] == array[15:25]).all() and array[99, 99] == 9999
''',
    "xarray": '''
pytest.importorskip("zarr")
data = xarray.Dataset({"heat": (("x", "y"), [[1.0, 2.0], [3.0, 4.0]])})
data.to_zarr("stdchk://data/set.zarr", consolidated=False)
assert xarray.open_zarr("stdchk://data/set.zarr", consolidated=False).load().equals(data)
''',
    "datasets": '''
datasets.Dataset.from_dict({"text": ["a", "b"]}).save_to_disk("stdchk://data/words")
assert datasets.load_from_disk("stdchk://data/words")["text"][:] == ["a", "b"]
''',
}


@pytest.mark.parametrize("library", DATA_LIBRARIES)
def test_a_data_library_reads_and_writes_paths_of_a_pool(connected, module_pool, tmp_path, monkeypatch, library):
    monkeypatch.setenv("HF_HOME", str(tmp_path))  # of datasets
    module = pytest.importorskip(library)
    fsspec = pytest.importorskip("fsspec")
    if not os.environ.get("STDCHK_TEST_WHEEL"):
        from stdchk.fsspec import StdchkFileSystem

        fsspec.register_implementation("stdchk", StdchkFileSystem, clobber=True)
    monkeypatch.setenv("STDCHK_MANAGER", module_pool.record["manager_address"])
    monkeypatch.setenv("STDCHK_SECRET_FILE", module_pool.record["secret_file"])
    connected.makedirs("data", exist_ok=True)
    exec(DATA_LIBRARIES[library], {library: module, "pytest": pytest})
