"""The owner of a folder in the drain directory attacks a pool of root that all users may read."""

import contextlib
import json
import os
import shutil
import stat
import subprocess
import sys
import time

import file_systems
import pytest
from processes import programs_for_all, run, wait_until

OWNER = 23101  # of the pool, where that is not root
ATTACKER = 23102
VICTIM = 23103
READERS = 80  # more than a mount had threads for all users
SECRET = b"only root may read this\n"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root acts as other users")

READ = """
import os, sys
try:
    with open(sys.argv[1], "rb") as file:
        sys.stdout.buffer.write(file.read())
except OSError as error:
    print(f"errno {error.errno}", file=sys.stderr)
    sys.exit(7)
"""


def start_as(user, code, *arguments):
    # The interpreter may lie where only root comes, so it changes its user itself.
    become = f"import os\nos.setgroups([])\nos.setgid({user})\nos.setuid({user})\n"
    return subprocess.Popen([sys.executable, "-c", become + code, *map(str, arguments)], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, cwd="/")


def run_as(user, code, *arguments, seconds=60):
    process = start_as(user, code, *arguments)
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out, err.decode()


def end(processes):
    for process in processes:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=5)


def logs_of(pool, role):
    return "".join(path.read_text(errors="replace") for path in (pool.runtime / "stdchk").glob(f"*/{role}*.log"))


@pytest.fixture
def shared(pool):
    """A pool of root. An earlier pool has drained a folder of the attacker."""
    pool.folder.chmod(0o755)
    pool.up("--allow-other", benefactors=1, memory="96M")
    for name, user in (("mine", ATTACKER), ("other", VICTIM)):
        (pool.mount / name).mkdir()
        os.chown(pool.mount / name, user, user)
        file = pool.mount / name / "file"
        file.write_bytes(name.encode() * 1000)
        os.chown(file, user, user)
        file.chmod(0o600)
    # A file of root that lies in the attacker's folder.
    (pool.mount / "mine" / "roots").write_bytes(SECRET)
    (pool.mount / "mine" / "roots").chmod(0o600)
    (pool.folder / "secret").write_bytes(SECRET)
    (pool.folder / "secret").chmod(0o600)
    pool.stdchk("drain", "--wait", "--timeout", 45, pool.mount)
    pool.down()
    return pool


def again(pool):
    """Starts a new pool. It has nothing in memory and no checksums, because the attacker has removed the folder's manifest."""
    (pool.drain / "mine" / ".stdchk-manifest").unlink(missing_ok=True)
    pool.up("--allow-other", benefactors=1, memory="96M")
    assert (pool.mount / "other" / "file").read_bytes() == b"other" * 1000


@pytest.mark.parametrize("how", ["link", "link above", "file of another"])
def test_the_mount_gives_nobody_what_a_drained_file_was_replaced_by(shared, how):
    again(shared)
    mine = shared.drain / "mine"
    (shared.folder / "outside").mkdir(mode=0o700)
    (shared.folder / "outside" / "file").write_bytes(SECRET)
    (shared.folder / "outside" / "file").chmod(0o600)
    replace = {
        "link": "os.unlink('file'); os.symlink(sys.argv[2] + '/secret', 'file')",
        "link above": "os.mkdir('d'); os.rename('file', 'd/file')",
        "file of another": "os.rename('roots', 'file')",
    }[how]
    code, _, err = run_as(ATTACKER, f"import os, sys\nos.chdir(sys.argv[1])\n{replace}", mine, shared.folder)
    assert code == 0, err
    name = "mine/file"
    if how == "link above":
        # The pool has seen d/file, and then d becomes a link.
        shared.down()
        again(shared)
        code, _, err = run_as(ATTACKER, "import os, sys\nos.chdir(sys.argv[1])\nos.rename('d', 'e')\n"
                              "os.symlink(sys.argv[2], 'd')", mine, shared.folder / "outside")
        assert code == 0, err
        name = "mine/d/file"
    code, out, err = run_as(ATTACKER, READ, shared.mount / name)
    assert SECRET not in out and b"only root" not in out
    assert (code, "errno 5" in err) == (7, True), (out, err)
    code, out, _ = run_as(VICTIM, READ, shared.mount / "other" / "file")
    assert (code, out) == (0, b"other" * 1000)
    assert "in the drain directory" in logs_of(shared, "mount")


WRITE_AND_REPLACE = """
import os, sys
mount, drain = sys.argv[1:]
file = os.open(mount + "/file", os.O_WRONLY)
os.pwrite(file, b"M", 0)
os.rename(drain + "/roots", drain + "/file")
os.close(file)
"""


def test_the_drain_gives_nobody_what_a_drained_file_was_replaced_by(shared):
    """The drain of a changed file reads the unchanged bytes from the version that it drained before."""
    again(shared)
    mine = shared.drain / "mine"
    for name in ("roots", "file"):
        os.truncate(mine / name, 4000)
    shared.down()
    again(shared)
    code, _, err = run_as(ATTACKER, WRITE_AND_REPLACE, shared.mount / "mine", mine)
    assert code == 0, err
    shared.stdchk("drain", "--wait", "--timeout", 10, shared.mount, check=False, seconds=60)
    assert (mine / "file").stat().st_uid == 0 and (mine / "file").read_bytes().startswith(SECRET)
    assert "it is not the file that was drained" in logs_of(shared, "manager") + logs_of(shared, "benefactor")


def test_fifos_in_place_of_files_stop_nobody_else(shared):
    for number in range(40):
        file = shared.drain / "mine" / f"f{number}"
        file.write_bytes(b"x" * 100)
        os.chown(file, ATTACKER, ATTACKER)
    again(shared)
    for number in range(40):
        file = shared.drain / "mine" / f"f{number}"
        file.unlink()
        os.mkfifo(file)
        os.chown(file, ATTACKER, ATTACKER)
    readers = [start_as(ATTACKER, READ, shared.mount / "mine" / f"f{number}") for number in range(40)]
    try:
        time.sleep(1)
        began = time.monotonic()
        code, out, _ = run_as(VICTIM, READ, shared.mount / "other" / "file", seconds=20)
        assert (code, out) == (0, b"other" * 1000)
        assert time.monotonic() - began < 10
        for reader in readers:
            _, err = reader.communicate(timeout=35)
            assert reader.returncode == 7 and b"errno 5" in err
    finally:
        end(readers)


@pytest.mark.parametrize("what", ["fifo", "link", "folder", "file of another"])
def test_what_stands_in_the_place_of_a_manifest_keeps_no_pool_from_its_start(shared, what):
    manifest = shared.drain / "mine" / ".stdchk-manifest"
    manifest.unlink(missing_ok=True)
    {"fifo": lambda: os.mkfifo(manifest),
     "link": lambda: manifest.symlink_to("/dev/zero"),
     "folder": manifest.mkdir,
     "file of another": lambda: manifest.write_text('{"format":1,"files":{}}')}[what]()
    os.chown(manifest, VICTIM if what == "file of another" else ATTACKER, ATTACKER, follow_symlinks=False)
    shared.up("--allow-other", benefactors=1, memory="96M")
    assert (shared.mount / "mine" / "file").read_bytes() == b"mine" * 1000
    assert "the manifest of" in logs_of(shared, "manager")
    # A later pool keeps drained files when foreign manifests are bad.
    (shared.mount / "other" / "new").write_bytes(b"new")
    shared.stdchk("drain", "--wait", "--timeout", 45, shared.mount, seconds=60)
    assert "new" in json.loads((shared.drain / "other" / ".stdchk-manifest").read_text())["files"]


def test_a_pool_starts_over_links_in_place_of_its_folders(shared):
    """The start removes left-over temporary files, and nothing outside the drain directory."""
    outside = shared.folder / "outside"
    outside.mkdir()
    (outside / "keep").write_text("kept")
    shutil.rmtree(shared.drain / ".stdchk-drain")
    (shared.drain / ".stdchk-drain").symlink_to(outside)
    closed = shared.drain / "mine" / "closed"
    closed.mkdir()
    shared.up("--allow-other", benefactors=1, memory="96M")
    assert (outside / "keep").read_text() == "kept"
    (shared.mount / "new").write_bytes(b"new")
    time.sleep(2)
    assert os.listdir(outside) == ["keep"]
    (shared.drain / ".stdchk-drain").unlink()
    shared.stdchk("drain", "--wait", "--timeout", 45, shared.mount)
    assert (shared.drain / "new").read_bytes() == b"new"


def test_verify_and_stage_in_follow_no_link_and_wait_for_no_fifo(shared):
    shared.up("--allow-other", benefactors=1, memory="96M")
    for name in ("a", "b"):
        (shared.mount / "mine" / name).write_bytes(SECRET)
    shared.stdchk("drain", "--wait", "--timeout", 45, shared.mount)
    mine = shared.drain / "mine"
    (mine / "a").unlink()
    (mine / "a").symlink_to(shared.folder / "secret")
    (mine / "b").unlink()
    os.mkfifo(mine / "b")
    done = shared.stdchk("verify", mine, check=False, seconds=20)
    assert done.returncode == 1
    assert "symbolic link" in done.stdout and "FIFO" in done.stdout
    done = shared.stdchk("stage-in", mine, "--to", shared.mount / "other", check=False, seconds=30)
    assert done.returncode == 1
    assert not (shared.mount / "other" / "a").exists()
    for name in ("a", "b"):
        done = shared.stdchk("safe", shared.mount / "mine" / name, check=False, seconds=20)
        assert done.returncode == 1 and "not safe" in done.stdout


def test_a_change_of_attributes_gives_no_file_of_another_away(shared):
    again(shared)
    mine = shared.drain / "mine"
    code, _, err = run_as(ATTACKER, "import os, sys\nos.chdir(sys.argv[1])\nos.rename('roots', 'file')", mine)
    assert code == 0, err
    code, _, err = run_as(ATTACKER, "import os, sys\nos.chmod(sys.argv[1], 0o666)", shared.mount / "mine" / "file")
    assert code == 0, err
    wait_until(lambda: "keeps its owner and mode" in logs_of(shared, "benefactor"), "the change", seconds=20)
    there = (mine / "file").lstat()
    assert (there.st_uid, stat.S_IMODE(there.st_mode)) == (0, 0o600)
    # Root may give a file to another user all the same.
    os.chown(shared.mount / "other" / "file", ATTACKER, ATTACKER)
    wait_until(lambda: (shared.drain / "other" / "file").stat().st_uid == ATTACKER, "the new owner")
    assert (shared.mount / "other" / "file").read_bytes() == b"other" * 1000


def test_files_that_hang_keep_no_other_user_waiting(pool, tmp_path):
    pool.folder.chmod(0o755)
    with file_systems.troubled(tmp_path) as troubled:
        pool.drain = troubled.point / "drain"
        for name, user, content in (("mine", ATTACKER, b"hang"), ("other", VICTIM, b"good")):
            folder = troubled.behind / "drain" / name
            folder.mkdir(parents=True)
            os.chown(folder, user, user)
            for number in range(READERS if user == ATTACKER else 4):
                (folder / f"f{number}").write_bytes(content * 50000)
                os.chown(folder / f"f{number}", user, user)
        (troubled.behind / "drain" / ".stdchk-drain").mkdir(mode=0o711)
        pool.up("--allow-other", benefactors=1, memory="96M")
        troubled.rules("read hang")
        readers = [start_as(ATTACKER, READ, pool.mount / "mine" / f"f{number}") for number in range(READERS)]
        try:
            wait_until(lambda: len(troubled.held("read")) >= 10, "reads that hang")
            for number in range(4):
                began = time.monotonic()
                code, out, err = run_as(VICTIM, READ, pool.mount / "other" / f"f{number}", seconds=40)
                assert (code, out) == (0, b"good" * 50000), err
                assert time.monotonic() - began < 15
            for reader in readers:
                _, err = reader.communicate(timeout=60)
                assert reader.returncode == 7 and b"errno 5" in err
            assert "does not answer" in logs_of(pool, "mount")
            began = time.monotonic()
            assert pool.down(check=False).returncode in (0, 1)
            assert time.monotonic() - began < 60
        finally:
            troubled.rules()
            end(readers)


STORE = """
import os, sys
os.umask(0)
for text in sys.argv[2:]:
    mode = int(text, 8)
    name = f"{sys.argv[1]}/m{mode:o}"
    with open(name, "wb") as file:
        file.write(b"#!/bin/sh\\nid -u\\n")
    os.chmod(name, mode)
"""


def test_what_the_drain_cannot_give_to_its_owner_gets_no_privilege_and_no_more_readers(pool):
    """The pool of a user, mounted for all by root. Its benefactors cannot give files to their owners."""
    modes = [0o4755, 0o2755, 0o6711, 0o640, 0o604, 0o660, 0o644, 0o600, 0o077]
    pool.folder.chmod(0o755)
    programs = programs_for_all(pool.folder / "bin")
    for path in (pool.runtime, pool.folder / "a", pool.folder / "a" / "drain"):
        path.mkdir(exist_ok=True)
        os.chown(path, OWNER, OWNER)
    pool.mount, pool.drain = pool.folder / "a" / "mount", pool.folder / "a" / "drain"
    pool.environment["STDCHK_BIN"] = str(programs)
    as_owner = ("setpriv", f"--reuid={OWNER}", f"--regid={OWNER}", "--clear-groups")
    run(*as_owner, programs / "stdchk", "up", "--no-mount", "--mount", pool.mount, "--benefactors", 1, "--memory",
        "96M", "--drain", pool.drain, env=pool.environment)
    secret = pool.folder / "roots.secret"
    secret.touch(0o600)
    secret.write_bytes(open(pool.record["secret_file"], "rb").read())
    point = pool.mount_of(pool.record["manager_address"], secret, "roots", "--allow-other")
    (point / "mine").mkdir()
    os.chown(point / "mine", ATTACKER, ATTACKER)
    code, _, err = run_as(ATTACKER, STORE, point / "mine", *(f"{mode:o}" for mode in modes))
    assert code == 0, err
    run(*as_owner, programs / "stdchk", "drain", "--wait", "--timeout", 45, pool.mount, env=pool.environment)
    for mode in modes:
        there = (pool.drain / "mine" / f"m{mode:o}").stat()
        assert (there.st_uid, there.st_gid) == (OWNER, OWNER)
        now = stat.S_IMODE(there.st_mode)
        assert now & 0o7000 == 0, f"{mode:o} became {now:o}"
        group, other = mode >> 3 & 7, mode & 7
        widest = group & other & (mode >> 6)
        assert now & 0o77 == widest << 3 | widest, f"{mode:o} became {now:o}"
    program = pool.drain / "mine" / "m4755"
    _, out, err = run_as(VICTIM, "import os, sys\nos.execv(sys.argv[1], sys.argv[1:])", program)
    assert out.decode().strip() == str(VICTIM), err
    # A later change of the mode gives no more.
    code, _, err = run_as(ATTACKER, "import os, sys\nos.chmod(sys.argv[1], 0o4711)", point / "mine" / "m644")
    assert code == 0, err
    wait_until(lambda: stat.S_IMODE((pool.drain / "mine" / "m644").stat().st_mode) == 0o711, "the new mode")
    run(*as_owner, programs / "stdchk", "down", pool.mount, env=pool.environment, check=False)


def test_what_root_drains_for_a_user_keeps_set_id_bits_and_gets_no_access_list(pool):
    pool.folder.chmod(0o755)
    pool.drain.mkdir()
    # acl(5): owner, VICTIM, group, mask, others.
    text = file_systems.access_list((1, 7), (2, 7, VICTIM), (4, 5), (16, 7), (32, 5))
    try:
        os.setxattr(pool.drain, "system.posix_acl_default", text)
    except OSError as error:
        pytest.skip(f"no access lists here: {error}")
    pool.up("--allow-other", benefactors=1, memory="96M")
    (pool.mount / "mine").mkdir(mode=0o755)
    os.chown(pool.mount / "mine", ATTACKER, ATTACKER)
    code, _, err = run_as(ATTACKER, STORE, pool.mount / "mine", "4755", "640")
    assert code == 0, err
    pool.stdchk("drain", "--wait", "--timeout", 45, pool.mount)
    for mode in (0o4755, 0o640):
        path = pool.drain / "mine" / f"m{mode:o}"
        there = path.stat()
        assert (there.st_uid, stat.S_IMODE(there.st_mode)) == (ATTACKER, mode)
        assert not [name for name in os.listxattr(path) if "acl" in name]
    assert not [name for name in os.listxattr(pool.drain / "mine") if "acl" in name]
    code, _, _ = run_as(VICTIM, READ, pool.drain / "mine" / "m640")
    assert code == 7
