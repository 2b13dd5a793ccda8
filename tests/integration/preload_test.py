"""Tests of libstdchk-preload.so: programs of the system use a pool below a prefix, where nothing is mounted."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from processes import BIN, PATIENCE, ROOT, run

LIBRARY = (BIN / "stdchk").resolve().parents[1] / "preload" / "libstdchk-preload.so"
PREFIX = "/stdchk-prefix"


@pytest.fixture(scope="module")
def preloaded(module_pool):
    """A function that runs a command with the library; the pool is seen beside it by its mount."""
    module_pool.up(benefactors=2, drain=False)
    record = module_pool.record
    environment = module_pool.environment | {
        "LD_PRELOAD": str(LIBRARY), "STDCHK_PREFIX": PREFIX, "STDCHK_MANAGER": record["manager_address"],
        "STDCHK_SECRET_FILE": record["secret_file"]}

    def run_with_it(*command, check=True):
        done = subprocess.run([str(word) for word in command], env=environment, capture_output=True, text=True,
                              timeout=60 * PATIENCE)
        assert not check or (done.returncode, done.stderr) == (0, ""), (done.stdout, done.stderr)
        return done

    assert not os.path.exists(PREFIX)
    return run_with_it


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A folder with files, a link and times to keep."""
    folder = tmp_path_factory.mktemp("tree")
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "large").write_bytes(os.urandom(3_000_001))
    (folder / "a" / "b" / "small").write_bytes(b"small\n")
    (folder / "a" / "b" / "empty").write_bytes(b"")
    (folder / "a" / "link").symlink_to("b/small")
    os.chmod(folder / "a" / "b" / "small", 0o640)
    os.utime(folder / "a" / "large", (1_000_000_000, 1_000_000_000))
    return folder


def same(one, other):
    done = subprocess.run(["diff", "-r", "--no-dereference", one, other], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_dd_writes_and_reads(preloaded, module_pool, tree, tmp_path):
    preloaded("dd", f"if={tree}/a/large", f"of={PREFIX}/dd.N0.T1", "bs=64k", "status=none")
    assert (module_pool.mount / "dd.N0.T1").read_bytes() == (tree / "a" / "large").read_bytes()
    preloaded("dd", f"if={PREFIX}/dd.N0.T1", f"of={tmp_path}/back", "bs=1M", "skip=1", "status=none")
    assert (tmp_path / "back").read_bytes() == (tree / "a" / "large").read_bytes()[1 << 20:]


def test_cp_copies_a_tree_with_its_attributes_and_back(preloaded, module_pool, tree, tmp_path):
    preloaded("cp", "-a", tree, f"{PREFIX}/copied")
    same(tree, module_pool.mount / "copied")
    copied = module_pool.mount / "copied" / "a"
    assert (copied / "large").stat().st_mtime == 1_000_000_000 and (copied / "b" / "small").stat().st_mode & 0o777 == 0o640
    preloaded("cp", "-a", f"{PREFIX}/copied", tmp_path / "back")
    same(tree, tmp_path / "back")
    assert preloaded("ls", f"{PREFIX}/copied/a").stdout.split() == ["b", "large", "link"]
    preloaded("mv", f"{PREFIX}/copied", f"{PREFIX}/moved")
    preloaded("rm", "-r", f"{PREFIX}/moved")
    assert not (module_pool.mount / "moved").exists()


def test_tar_packs_and_unpacks(preloaded, module_pool, tree):
    preloaded("tar", "-cf", f"{PREFIX}/made.tar", "-C", tree, ".")
    preloaded("mkdir", f"{PREFIX}/unpacked")
    preloaded("tar", "-xf", f"{PREFIX}/made.tar", "-C", f"{PREFIX}/unpacked")
    same(tree, module_pool.mount / "unpacked")


PROGRAM = '''
import mmap, os, shutil, subprocess, sys, threading
top = sys.argv[1] + "/python"
os.makedirs(top + "/x")
with open(top + "/x/text", "w") as file:
    file.write("hello\\n" * 1000)
with open(top + "/x/text", "a") as file:
    file.write("more")
with open(top + "/x/text", "rb") as file:
    assert file.read(5) == b"hello" and file.seek(-4, 2) == 6000 and file.read() == b"more"
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert mapped[:5] == b"hello" and len(mapped) == 6004
assert os.listdir(top) == ["x"] and os.path.getsize(top + "/x/text") == 6004
with open(top + "/x/text", "r+b") as file:
    file.truncate(3)
assert open(top + "/x/text").read() == "hel"

# Threads share one descriptor; dup(2) shares its position.
fd = os.open(top + "/shared", os.O_RDWR | os.O_CREAT)
threads = [threading.Thread(target=os.pwrite, args=(fd, bytes([n]) * 100000, n * 100000)) for n in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
again = os.dup(fd)
assert os.lseek(fd, 300000, 0) == 300000 and os.read(again, 2) == b"\\3\\3" and os.lseek(fd, 0, 1) == 300002
os.close(fd)
os.write(again, b"end")
os.close(again)
expected = bytearray(b"".join(bytes([n]) * 100000 for n in range(8)))
expected[300002:300005] = b"end"
assert open(top + "/shared", "rb").read() == expected

# A forked child has no use of the parent's open files, and opens its own.
parent = open(top + "/parent", "wb", buffering=0)
parent.write(b"parent")
pid = os.fork()
if pid == 0:
    try:
        parent.write(b"child")
    except OSError as error:
        with open(top + "/child", "w") as file:
            file.write(str(error.errno))
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
parent.close()
assert open(top + "/parent").read() == "parent" and open(top + "/child").read() == "5"
assert subprocess.run(["cat", top + "/child"], capture_output=True).stdout == b"5"
for wrong in (lambda: os.chdir(top), lambda: os.link(top + "/child", top + "/other")):
    try:
        wrong()
        raise SystemExit("that cannot work")
    except OSError:
        pass
shutil.rmtree(top)
assert not os.path.exists(top)
open(sys.argv[1] + "/not-closed", "wb", buffering=0).write(b"committed by exit"); keep = os.dup(3)
'''


def test_python_uses_files_threads_and_fork(preloaded, module_pool, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    preloaded(sys.executable, tmp_path / "program.py", PREFIX)
    assert (module_pool.mount / "not-closed").read_bytes() == b"committed by exit"


def test_an_image_that_was_not_closed_before_the_program_was_killed_stays_away(preloaded, module_pool):
    preloaded(sys.executable, "-c", f"open('{PREFIX}/killed.N0.T1', 'wb').write(b'old')")
    done = preloaded(sys.executable, "-c", "import os, sys; f = open(sys.argv[1], 'wb', buffering=0); f.write(b'new');"
                     "os.kill(os.getpid(), 9)", f"{PREFIX}/killed.N0.T1", check=False)
    assert done.returncode == -9
    assert (module_pool.mount / "killed.N0.T1").read_bytes() == b"old"


def test_fio_verifies_what_it_wrote(preloaded):
    done = preloaded("fio", "--name=job", f"--filename={PREFIX}/fio.N0.T1", "--rw=randwrite", "--bs=16k", "--size=32M",
                     "--ioengine=psync", "--thread", "--verify=crc32c", "--do_verify=1", "--verify_state_save=0", check=False)
    assert done.returncode == 0 and "err= 0" in done.stdout, done.stdout + done.stderr


def test_large_and_small_calls_write_and_read_whole_images(preloaded, module_pool):
    """The program that bench/run measures, in place of ior."""
    bench = BIN / "io-bench"
    if not bench.exists():
        pytest.skip("the benches are not built")
    preloaded("mkdir", f"{PREFIX}/bench")
    for mode, block, keep in (("write", "4K", ["--keep"]), ("read", "1M", []), ("write", "1M", [])):
        done = preloaded(bench, mode, f"{PREFIX}/bench", "--size=8M", f"--block={block}", "--rounds=1", *keep)
        found = json.loads(done.stdout)
        assert found["what"] == mode and found["values"][0] > 0
    assert [each.name for each in (module_pool.mount / "bench").iterdir()] == []  # the last write removed its images


LAMMPS = """
units lj
atom_style atomic
{start}
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
fix 1 all nve
thermo 50
{restart}
run 100
"""
LAMMPS_START = """lattice fcc 0.8442
region box block 0 4 0 4 0 4
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287"""


def test_lammps_restarts_from_an_image(preloaded, module_pool, tmp_path):
    if shutil.which("lmp") is None:
        pytest.skip("lmp is absent; scripts/check recipes installs it")
    script = tmp_path / "in.melt"
    for start, restart in ((LAMMPS_START, f"restart 100 {PREFIX}/melt.*"), (f"read_restart {PREFIX}/melt.100", "")):
        script.write_text(LAMMPS.format(start=start, restart=restart))
        done = preloaded("lmp", "-in", script, "-log", "none", check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\s*200\s", done.stdout, re.MULTILINE), done.stdout
    assert (module_pool.mount / "melt.100").stat().st_size > 1000


def test_other_paths_are_the_kernels_and_an_absent_pool_is_an_error(preloaded, tmp_path):
    preloaded("cp", "/etc/passwd", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == open("/etc/passwd", "rb").read()
    assert preloaded("ls", PREFIX + "-other", check=False).returncode == 2
    done = preloaded("env", "STDCHK_MANAGER=/nonexistent", "cat", f"{PREFIX}/x", check=False)
    assert done.returncode == 1 and "stdchk_connect" in done.stderr


AROUND = '''
import os, sys
with open(sys.argv[1] + "/around.N0.T1", "wb", buffering=0) as image:
    assert os.readlink(f"/proc/self/fd/{image.fileno()}").startswith("/memfd:")
    image.write(b"by the library")
assert open(sys.argv[1] + "/by-the-kernel.N0.T1", "rb").read() == b"by the kernel"
assert "by-the-kernel.N0.T1" in os.listdir(sys.argv[1])
'''


def test_a_prefix_that_is_the_mount_point_goes_around_the_kernel(preloaded, module_pool, tmp_path):
    (module_pool.mount / "by-the-kernel.N0.T1").write_bytes(b"by the kernel")
    (tmp_path / "program.py").write_text(AROUND)
    preloaded("env", f"STDCHK_PREFIX={module_pool.mount}", sys.executable, tmp_path / "program.py", module_pool.mount)
    assert (module_pool.mount / "around.N0.T1").read_bytes() == b"by the library"


def test_the_commands_of_the_page(preloaded, module_pool, tree, tmp_path):
    (commands,) = re.findall(r"```sh\n(.*?)```", (ROOT / "docs/guide/preload.md").read_text(), re.DOTALL)
    shutil.copytree(tree, tmp_path / "results", symlinks=True)
    (tmp_path / "train.py").write_text("import sys; open(sys.argv[2] + '/step-1.pt', 'wb').write(b'state')\n")
    record = module_pool.record
    environment = module_pool.environment | {
        "ADDRESS": record["manager_address"], "FILE": record["secret_file"], "LD_LIBRARY_PATH": str(LIBRARY.parent)}
    done = run("bash", "-euc", commands, env=environment, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("a\nstep-1.pt\n", "")
    assert (module_pool.mount / "run-7/step-1.pt").read_bytes() == b"state"
    same(tree / "a", module_pool.mount / "run-7" / "a")
