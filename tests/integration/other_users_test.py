"""Tests attacks by another user of the host, who makes files and servers at the names where stdchk looks for its own.
The programs are those of clones, containers, machines and Python."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import uuid

import pytest
from processes import BIN, ROOT, programs_for_all, run, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")

# No other test uses these user ids, because the users' folders in /tmp have fixed names.
VICTIM, OTHER = 64711, 64712
LIBRARIES = (BIN / "stdchk").resolve().parents[1]

# Listens as the user `sys.argv[2]`, and writes what it was sent to a file beside its socket.
LISTENER = """
import os, socket, sys
os.setgid(int(sys.argv[2])), os.setuid(int(sys.argv[2]))
s = socket.socket(socket.AF_UNIX, getattr(socket, sys.argv[3]))
s.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o777)
s.listen(8)
while True:
    visitor, _ = s.accept()
    said = visitor.recv(4096)
    if said:
        open(sys.argv[1] + ".heard", "ab").write(said)
    visitor.close()
"""


def as_user(uid):
    return ("setpriv", "--reuid", uid, "--regid", uid, "--clear-groups")


@pytest.fixture
def tree():
    """A folder that all users may enter."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="stdchk-others-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def folder_of(uid, path, mode=0o755):
    path.mkdir(parents=True)
    path.chmod(mode)
    os.chown(path, uid, uid)
    return path


@contextlib.contextmanager
def listener(path, kind):
    """A server of another user at `path`. Yields a function that returns what it was sent."""
    process = subprocess.Popen([sys.executable, "-c", LISTENER, path, str(OTHER), kind])
    wait_until(lambda: path.exists() and path.stat().st_mode & 0o777 == 0o777, "the listener")
    heard = path.with_name(path.name + ".heard")
    try:
        yield lambda: heard.read_bytes() if heard.exists() else b""
    finally:
        process.kill()
        process.wait()


def test_a_planted_folder_of_jobs_has_nothing_removed_behind_its_link(tree):
    programs = programs_for_all(tree / "bin")
    precious = folder_of(VICTIM, tree / "home" / "precious")
    (precious / "file").write_text("before")
    os.chown(precious / "file", VICTIM, VICTIM)
    os.chown(tree / "home", VICTIM, VICTIM)
    planted = folder_of(OTHER, pathlib.Path(f"/tmp/stdchk-{VICTIM}"))
    try:
        (planted / "runs").symlink_to(tree / "home")
        os.lchown(planted / "runs", OTHER, OTHER)
        done = run(*as_user(VICTIM), programs / "stdchk", "jobs", "--forget", "precious", check=False)
        assert done.returncode != 0 and "no job of yours" in done.stderr
        assert (precious / "file").read_text() == "before"
        assert "precious" not in run(*as_user(VICTIM), programs / "stdchk", "jobs").stdout
    finally:
        shutil.rmtree(planted)


def test_a_job_is_not_asked_at_another_users_socket():
    planted = folder_of(OTHER, pathlib.Path(f"/tmp/stdchk-{VICTIM}"))
    programs = pathlib.Path(tempfile.mkdtemp(prefix="stdchk-others-"))
    try:
        programs.chmod(0o755)
        copies = programs_for_all(programs / "bin")
        job = folder_of(OTHER, planted / "runs" / "job")
        with listener(job / "control", "SOCK_STREAM") as heard:
            done = run(*as_user(VICTIM), copies / "stdchk", "checkpoint", "job", check=False)
            assert done.returncode != 0 and "cannot be used" in done.stderr
            assert heard() == b""
    finally:
        shutil.rmtree(planted)
        shutil.rmtree(programs)


def test_the_daemon_of_a_node_uses_no_work_folder_that_another_user_can_change(tree):
    planted = folder_of(OTHER, tree / "stdchk-0")
    words = ("--secret-file", "/dev/null", "--init", "/bin/true", "--tag", "oth1")
    for work in (planted / "runs" / "job" / "work-0-oth1", planted):
        done = run(BIN / "stdchk-container", *words, "--work", work, check=False)
        assert done.returncode == 1 and f"belongs to uid {OTHER}" in done.stderr
    assert list(planted.iterdir()) == []
    done = run(BIN / "stdchk-container", *words, "--work", "here", check=False, cwd=tree)
    assert done.returncode == 1 and "is not an absolute path" in done.stderr
    done = run(*as_user(OTHER), programs_for_all(tree / "bin") / "stdchk-container", *words, "--work", tree / "own", check=False)
    assert done.returncode == 1 and "containers need root on this host" in done.stderr


def test_a_job_saves_nothing_in_another_users_folder(pool):
    pool.up("--allow-other", benefactors=1, drain=False)
    pool.folder.chmod(0o755)
    name = f"oth{uuid.uuid4().hex[:6]}"
    run(*as_user(OTHER), "mkdir", pool.mount / name)
    done = run(BIN / "stdchk", "run", "-n", 1, "--name", name, "--", "true", check=False, env=pool.environment)
    assert done.returncode != 0
    assert "the folder of the job's sets" in done.stderr and f"belongs to uid {OTHER}" in done.stderr
    assert list((pool.mount / name).iterdir()) == []
    done = run(BIN / "stdchk", "jobs", "--forget", name, check=False, env=pool.environment)
    assert "no job of yours" in done.stderr, "a job that was refused leaves no record"


def test_in_a_shared_pool_nobody_renames_or_removes_what_another_user_keeps(pool):
    pool.up("--allow-other", benefactors=1, drain=False)
    pool.folder.chmod(0o755)
    mine = pool.mount / "mine"
    run(*as_user(VICTIM), "mkdir", mine)
    for command in (("mv", mine, pool.mount / "taken"), ("rmdir", mine)):
        done = run(*as_user(OTHER), *command, check=False)
        assert done.returncode != 0 and "Operation not permitted" in done.stderr
    run(*as_user(OTHER), "mkdir", pool.mount / "theirs")
    run(*as_user(VICTIM), "mv", mine, pool.mount / "still-mine")


def test_the_daemon_of_clones_has_its_socket_and_its_ready_file_only_where_others_cannot_write(tree):
    shared, victim = folder_of(OTHER, tree / "shared", 0o777), tree / "victim"
    victim.write_text("before")
    done = run(BIN / "stdchk-forkd", "--network", "none", "--socket", shared / "socket", check=False)
    assert done.returncode == 1 and "the socket's folder" in done.stderr
    assert not (shared / "socket").exists()
    ready = shared / "ready"
    ready.symlink_to(victim)
    os.lchown(ready, OTHER, OTHER)
    daemon = subprocess.Popen([BIN / "stdchk-forkd", "--network", "none", "--slots", "1", "--socket", tree / "own" / "socket",
                               "--ready-file", ready])
    try:
        wait_until(lambda: not ready.is_symlink() or victim.read_text() != "before", "the ready file")
        assert victim.read_text() == "before" and int(ready.read_text()) == daemon.pid
    finally:
        daemon.terminate()
        daemon.wait(20)


def test_clones_are_not_asked_for_at_another_users_socket(tree):
    library = LIBRARIES / "fork" / "libstdchk_fork.so.0"
    with listener(folder_of(OTHER, tree / "run") / "socket", "SOCK_SEQPACKET") as heard:
        done = run(sys.executable, "-c", "from stdchk import fork; fork.request_ticket(1)", check=False,
                   env=dict(os.environ, STDCHK_FORKD=str(tree / "run" / "socket"), STDCHK_FORK_LIBRARY=str(library),
                            PYTHONPATH=str(ROOT / "python")))
        assert done.returncode == 1 and "Operation not permitted" in done.stderr
        assert heard() == b""


def test_images_are_not_mapped_from_another_users_server(tree):
    """XDG_RUNTIME_DIR names another user's runtime folder, as after su(1) without a login."""
    library = LIBRARIES / "fork" / "pager" / "libstdchk-map.so.0"
    program = tree / "map_image"
    run("cc", "-O2", "-I", ROOT, ROOT / "tests" / "integration" / "map_image.c", library, f"-Wl,-rpath,{library.parent}",
        "-o", program)
    runtime = folder_of(OTHER, tree / "runtime", 0o700)
    environment = {name: value for name, value in os.environ.items() if name != "STDCHK_PAGER"}
    with listener(runtime / "stdchk-pager.socket", "SOCK_SEQPACKET") as heard:
        done = run(program, "image", input="", check=False, env=environment | {"XDG_RUNTIME_DIR": str(runtime)})
        assert f"is of user {OTHER}" in done.stdout + done.stderr
        assert heard() == b""


def test_machines_are_not_asked_for_at_another_users_socket(tree):
    runtime = folder_of(OTHER, tree / "runtime", 0o700)
    environment = dict(os.environ, XDG_RUNTIME_DIR=str(runtime))
    with listener(folder_of(OTHER, runtime / "stdchk-vm" / "first") / "control", "SOCK_STREAM") as heard:
        done = run(BIN / "stdchk", "vm", "kill", "first", check=False, env=environment)
        assert done.returncode != 0 and "There is no machine first" in done.stderr
        assert json.loads(run(BIN / "stdchk", "vm", "list", "--json", env=environment).stdout) == []
        assert heard() == b""


def test_no_machine_is_started_from_what_another_user_can_change(tree):
    """The image names the program that runs, so another user's image must not start."""
    ran, image = tree / "ran", folder_of(OTHER, tree / "image")
    settings = image / "machine.json"
    settings.write_text(json.dumps({"format": 1, "words": ["touch", str(ran)], "memory_bytes": 1 << 20, "disks": 0}))

    def start():
        done = run(BIN / "stdchk", "vm", "start", image, "it", "--folder", tree / "machines", check=False)
        assert done.returncode != 0 and not ran.exists()
        return done.stderr

    assert "can be changed by others" in start()
    os.chown(image, 0, 0)
    settings.chmod(0o666)
    assert "can be changed by others" in start()
    settings.chmod(0o644)
    assert "can be changed by others" not in start()  # it is refused for its words


def test_images_of_clones_lie_in_no_folder_that_others_can_change(tree):
    images, hosts = folder_of(OTHER, tree / "images"), tree / "hosts"
    hosts.write_text("far slots=1 memory=1G\n")
    for command in ((BIN / "stdchk-forkd", "--network", "none", "--socket", tree / "own" / "socket", "--images", images),
                    (BIN / "stdchk", "vm", "run", "it", "--folder", tree / "machines", "--hosts", hosts, "--rsh", "true",
                     "--images", images, "--", "qemu-system-x86_64", "-m", "64M")):
        done = run(*command, check=False)
        assert done.returncode != 0 and "--images" in done.stderr and f"belongs to uid {OTHER}" in done.stderr
    assert list(images.iterdir()) == []


def test_python_believes_no_record_of_another_user(tree):
    runtime = folder_of(OTHER, tree / "runtime", 0o700)
    record = folder_of(OTHER, runtime / "stdchk" / "one") / "pool.json"
    record.write_text(json.dumps({"mount": str(tree), "manager_address": "tcp:127.0.0.1:9", "secret_file": "/etc/secret"}))
    program = f"from stdchk import pool; print(pool._record_of({str(tree)!r})['secret_file'])"
    environment = dict(os.environ, XDG_RUNTIME_DIR=str(runtime), PYTHONPATH=str(ROOT / "python"),
                       STDCHK_LIBRARY=str(LIBRARIES / "client" / "libstdchk.so.0"))

    def found():
        return run(sys.executable, "-c", program, check=False, env=environment)

    os.chown(record, 0, 0)
    os.chown(record.parents[1], OTHER, OTHER)
    assert "no pool of yours" in found().stderr
    os.chown(record, OTHER, OTHER)
    os.chown(record.parents[1], 0, 0)
    assert "no pool of yours" in found().stderr
    os.chown(record, 0, 0)
    assert found().stdout == "/etc/secret\n"
