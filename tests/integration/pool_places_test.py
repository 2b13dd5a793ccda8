"""Tests the directories of a pool: mount, state and exchange. Other users, other sessions and killed commands reach
such directories, too."""

import contextlib
import json
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import pytest
from processes import BIN, PATIENCE, ROOT, is_running, programs_for_all, run, wait_until

NOBODY, DAEMON = (pwd.getpwnam(name).pw_uid for name in ("nobody", "daemon"))
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
SMALL = ("--benefactors", 1, "--memory", "64M")


def is_mounted(path):
    """True when `path` is a mount point. Reads mountinfo, because a user's mount refuses access even to root."""
    lines = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
    return any(line.split()[4] == str(path) for line in lines)


def as_user(uid):
    return ("setpriv", "--reuid", uid, "--regid", uid, "--clear-groups")


@pytest.fixture(scope="module", autouse=True)
def fuse_for_all():
    """Lets every user open /dev/fuse during the tests, as distributions do."""
    device = pathlib.Path("/dev/fuse")
    mode = device.stat().st_mode & 0o777
    if os.geteuid() == 0:
        device.chmod(0o666)
    yield
    if os.geteuid() == 0:
        device.chmod(mode)


@pytest.fixture(scope="module")
def programs():
    """Copies the programs and the scripts of sites to a folder where all users may run them."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="stdchk-programs-"))
    folder.chmod(0o755)
    for name in ("site", "slurm/prolog"):
        (folder / "scripts" / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / "scripts" / name, folder / "scripts" / name)
    yield programs_for_all(folder / "bin")
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def tree(programs):
    """A folder that all users may enter."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="stdchk-places-"))
    folder.chmod(0o755)
    (folder / "bin").symlink_to(programs)
    (folder / "scripts").symlink_to(programs.parent / "scripts")
    yield folder
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        if line.split()[4].startswith(f"{folder}/"):
            run("umount", "--lazy", line.split()[4], check=False)
    end_all(folder)
    shutil.rmtree(folder, ignore_errors=True)


def processes_of(folder):
    """Returns the pids of stdchk's processes with `folder` in their command lines."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        if f"{folder}/".encode() in words and pathlib.Path(words.split(b"\0")[0].decode()).name.startswith("stdchk"):
            found.append(int(path.parent.name))
    return [pid for pid in found if is_running(pid)]


def end_all(folder):
    """Kills all processes of `folder` by SIGKILL. Their mounts stay, and every access to them fails."""
    def have_ended():
        # Since the last look a process may have started another process.
        left = processes_of(folder)
        for pid in sorted(left, reverse=True):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left

    wait_until(have_ended, "the end of all processes")


class User:
    """A user of this machine, with a separate runtime folder. Starts pools as this user."""

    def __init__(self, tree, uid, name="runtime"):
        self.tree, self.uid = tree, uid
        self.runtime = tree / f"{name}-{uid}"
        self.runtime.mkdir(mode=0o700)
        os.chown(self.runtime, uid, uid)
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("STDCHK_")}
        self.environment.update(XDG_RUNTIME_DIR=str(self.runtime), STDCHK_BIN=str(tree / "bin"))

    def words(self, *arguments):
        prefix = as_user(self.uid) if self.uid != os.geteuid() else ()
        return [str(word) for word in (*prefix, self.tree / "bin" / "stdchk", *arguments)]

    def stdchk(self, *arguments, check=True):
        return run(*self.words(*arguments), check=check, env=self.environment, cwd="/")

    def start(self, *arguments):
        return subprocess.Popen(self.words(*arguments), env=self.environment, cwd="/", text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def folder(self, name, mode=0o700):
        path = self.tree / name
        path.mkdir()
        path.chmod(mode)
        os.chown(path, self.uid, self.uid)
        return path


@needs_root
def test_a_mount_point_of_another_user_is_refused(tree):
    owner, user = User(tree, DAEMON), User(tree, NOBODY)
    mount = owner.folder("predictable", 0o777)
    done = user.stdchk("up", "--mount", mount, *SMALL, check=False)
    assert done.returncode == 2
    assert f"the mount point {mount} cannot be used: it belongs to daemon (uid {DAEMON})" in done.stderr
    assert "make it a folder of your own" in done.stderr
    assert not is_mounted(mount) and not list(mount.iterdir()) and not processes_of(tree)
    # A mount point in a folder that its owner can rename is refused, too.
    inner = mount / "inner"
    inner.mkdir()
    os.chown(inner, NOBODY, NOBODY)
    done = user.stdchk("up", "--mount", inner, *SMALL, check=False)
    assert done.returncode == 2 and f"{mount} belongs to daemon" in done.stderr
    # Root's pool in a user's folder is that user's, too.
    root = User(tree, 0)
    inner.rmdir()
    for path in (mount, mount / "new"):
        done = root.stdchk("up", "--mount", path, *SMALL, check=False)
        assert done.returncode == 2 and "belongs to daemon" in done.stderr
    assert not (mount / "new").exists()


@needs_root
def test_a_mount_daemon_by_hand_refuses_the_same(tree):
    owner, user = User(tree, DAEMON), User(tree, NOBODY)
    mount = user.folder("mount")
    user.stdchk("up", "--mount", mount, *SMALL)
    theirs = owner.folder("theirs", 0o777)
    (state,) = user.runtime.glob("stdchk/pool*")
    record = json.loads((state / "pool.json").read_text())
    done = run(*as_user(NOBODY), tree / "bin" / "stdchk-mount", "--manager", record["manager_address"], "--secret-file",
               record["secret_file"], "--ready-file", state / "second.ready", theirs, check=False, seconds=20)
    assert done.returncode == 1 and "belongs to daemon" in done.stderr
    assert not is_mounted(theirs)
    user.stdchk("down", mount)


@needs_root
def test_users_cannot_take_each_others_mount_points_below_a_sticky_folder(tree):
    sticky = tree / "tmp"
    sticky.mkdir()
    sticky.chmod(0o1777)
    user = User(tree, NOBODY)
    mount = user.folder("tmp/mine")
    user.stdchk("up", "--mount", mount, *SMALL)
    for other in (User(tree, DAEMON), User(tree, 0)):
        done = other.stdchk("up", "--mount", mount, *SMALL, check=False)
        assert done.returncode == 2
    assert is_mounted(mount)
    user.stdchk("down", mount)
    assert not is_mounted(mount)


@needs_root
def test_links_that_another_user_planted_lead_nowhere(tree):
    """The other user plants links at every predictable name below /tmp. A project may share the job's folder."""
    user, other = User(tree, NOBODY), User(tree, DAEMON)
    user.environment.pop("XDG_RUNTIME_DIR")
    victim = user.folder("victim")
    (victim / "file").write_text("before")
    os.chown(victim / "file", NOBODY, NOBODY)
    mount = user.folder("mount")
    guards = pathlib.Path("/proc/sys/fs/protected_symlinks")
    before = guards.read_text()
    for name in (f"/tmp/stdchk-{NOBODY}", f"/tmp/stdchk-{NOBODY}-hosts", f"/tmp/stdchk-{NOBODY}-jobs"):
        path, aside = pathlib.Path(name), pathlib.Path(f"{name}.aside")
        if path.exists() or path.is_symlink():
            path.rename(aside)
        try:
            guards.write_text("0")  # the kernel's own rule is not everywhere
            path.symlink_to(victim)
            os.lchown(path, DAEMON, DAEMON)
            hosts = tree / "hosts"
            hosts.write_text("one address=127.0.0.1 benefactors=1\n")
            shell = tree / "shell"
            shell.write_text('#!/bin/sh\nshift\nexec "$@"\n')
            shell.chmod(0o755)
            words = {"hosts": ("--hosts", hosts, "--rsh", shell, "--state", user.runtime / "state"),
                     "jobs": ("--node", "--job-id", "7", "--nodes", socket.gethostname(), "--lenders",
                              socket.gethostname(), "--exchange", user.runtime / "x", "--detach")}
            done = user.stdchk("up", "--mount", mount, *SMALL, *words.get(name.rpartition("-")[2], ()), check=False)
            if name.endswith("-hosts"):
                assert done.returncode == 2 and "must be a directory of your own" in done.stderr
            else:
                assert done.returncode == 2 and "it is a link" in done.stderr, done.stderr
            assert not is_mounted(mount)
            assert [one.name for one in victim.iterdir()] == ["file"]
        finally:
            guards.write_text(before)
            path.unlink(missing_ok=True)
            if aside.exists():
                aside.rename(path)
    assert (victim / "file").read_text() == "before"
    assert other.uid != user.uid


@needs_root
@pytest.mark.parametrize("plant", ["whole folder", "link to a folder of the user"])
def test_a_prepared_exchange_folder_is_not_used(tree, plant):
    """A job's nodes trust no files of another user there, and write through no links of that user."""
    user = User(tree, NOBODY)
    exchange, victim = tree / "exchange", user.folder("victim")
    (victim / "precious").write_text("before")
    os.chown(victim / "precious", NOBODY, NOBODY)
    planted = tree / "planted"
    planted.mkdir()
    (planted / "address").write_text("tcp:127.0.0.1:1\n")
    (planted / "secret").write_text("ab" * 16 + "\n")
    node = socket.gethostname()
    for name in (f"new.ready.{node}", f"ready.{node}", f"new.failed.{node}", f"failed.{node}", "new.address"):
        (planted / name).symlink_to(victim / "precious")
    planted.chmod(0o777)
    os.chown(planted, DAEMON, DAEMON)
    if plant == "whole folder":
        planted.rename(exchange)
    else:
        for entry in planted.iterdir():
            os.lchown(entry, DAEMON, DAEMON)
        exchange.symlink_to(planted)
        os.lchown(exchange, DAEMON, DAEMON)
    mount = user.folder("mount")
    # The second node of a job waits for the first node's message.
    done = user.stdchk("up", "--mount", mount, *SMALL, "--node", "--job-id", "stdchk-test-7", "--nodes", f"first,{node}",
                       "--lenders", "first", "--exchange", exchange, "--detach", check=False)
    assert done.returncode == 2
    assert f"the exchange folder {exchange} cannot be used" in done.stderr
    assert (victim / "precious").read_text() == "before"
    assert not is_mounted(mount)


@contextlib.contextmanager
def notes_of_jobs(owner, mode, mount):
    """The folder where the site keeps notes on NOBODY's jobs, with those of a job at `mount`; another one is set aside."""
    notes = pathlib.Path(f"/tmp/stdchk-{NOBODY}-jobs")
    aside = notes.with_suffix(".aside")
    if notes.exists():
        notes.rename(aside)
    try:
        notes.mkdir(mode=mode)
        home = mount.parent / "home"
        (notes / "stdchk-test-9.site").write_text(f"{home}\n{home}\n{mount}\n{socket.gethostname()}\n")
        for path in (notes / "stdchk-test-9.site", notes):
            os.chown(path, owner, owner)
        yield
    finally:
        shutil.rmtree(notes)
        if aside.exists():
            aside.rename(notes)


def end_the_job(tree):
    return run(tree / "scripts" / "site", "end", "stdchk-test-9", NOBODY, NOBODY, socket.gethostname(),
               env={"PATH": os.environ["PATH"], "STDCHK_BIN": str(tree / "bin"), "STDCHK_END_SECONDS": "15"})


@needs_root
def test_the_sites_end_of_a_job_believes_nobody_elses_notes(tree):
    """The notes name the folders to remove. Another user can predict the job's number, and so the notes' name."""
    user = User(tree, NOBODY)
    home = user.folder("home")
    (home / "precious").write_text("before")
    with notes_of_jobs(DAEMON, 0o755, tree / "nowhere"):
        assert end_the_job(tree).returncode == 0
    assert (home / "precious").exists()


@needs_root
def test_the_sites_end_of_a_job_leaves_the_mount_of_a_later_pool(tree):
    user = User(tree, NOBODY)
    mount, _ = user.folder("mount"), user.folder("home")
    user.stdchk("up", "--mount", mount, *SMALL)
    with notes_of_jobs(NOBODY, 0o700, mount):
        end_the_job(tree)
        assert is_mounted(mount)
    user.stdchk("status", mount)
    for pid in processes_of(tree):
        os.kill(pid, signal.SIGSTOP)  # so that none can still unmount
    end_all(tree)
    assert is_mounted(mount)
    with notes_of_jobs(NOBODY, 0o700, mount):
        end_the_job(tree)
        assert not is_mounted(mount)


@needs_root
def test_a_site_whose_script_no_job_can_read_is_told_why(tree):
    hidden = tree / "hidden"
    shutil.copytree(tree / "scripts", hidden)
    hidden.chmod(0o700)
    said, programs = tree / "said", tree / "fake"
    programs.mkdir()
    (programs / "logger").write_text(f'#!/bin/sh\necho "$@" >>{said}\n')
    (programs / "logger").chmod(0o755)
    run(hidden / "site", "begin", "stdchk-test-9", NOBODY, NOBODY, "node", "node", tree, "mem=64M",
        env={"PATH": f"{programs}:{os.environ['PATH']}"})
    assert f"given up: the job's user cannot read {hidden}/site" in said.read_text()


@needs_root
@pytest.mark.parametrize("by", ["option", "comment"])
def test_the_prologue_of_root_runs_nothing_that_a_jobs_options_say(tree, by):
    user = User(tree, NOBODY)
    work, ran, programs = user.folder("home"), tree / "ran", tree / "fake"
    programs.mkdir()
    said = tree / "said"
    for name, script in (("scontrol", "hostname"), ("logger", f'echo "$@" >>{said}')):
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    said.touch()
    said.chmod(0o666)
    tree.chmod(0o777)  # whoever runs it can leave the mark
    touch = f"touch$IFS{ran}"
    options = f"mount={tree}/$({touch}),a[$({touch})]=1,`{touch}`,mem=64M;{touch}"
    wish = {"SPANK_STDCHK": options} if by == "option" else {"SLURM_JOB_COMMENT": f"x stdchk={options}"}
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "STDCHK_BIN": str(tree / "bin"),
                   "SLURM_JOB_ID": "stdchk-test-9", "SLURM_JOB_UID": str(NOBODY), "SLURM_JOB_GID": str(NOBODY),
                   "SLURM_JOB_NODELIST": "x", "SLURMD_NODENAME": socket.gethostname(), "SLURM_JOB_WORK_DIR": str(work), **wish}
    with notes_of_jobs(NOBODY, 0o700, tree / "mount"):
        assert run(tree / "scripts" / "slurm" / "prolog", env=environment).returncode == 0
        end_the_job(tree)
    assert "no pool: no option is called" in said.read_text()
    assert not ran.exists()


@needs_root
def test_a_report_is_not_written_through_another_users_link(tree):
    user = User(tree, NOBODY)
    mount, shared = user.folder("mount"), user.folder("shared", 0o777)
    victim = user.folder("home") / "precious"
    victim.write_text("before")
    os.chown(victim, NOBODY, NOBODY)
    report = shared / "report"
    report.symlink_to(victim)
    os.lchown(report, DAEMON, DAEMON)
    user.stdchk("up", "--mount", mount, *SMALL, "--report", report)
    run(*as_user(NOBODY), "dd", "if=/dev/urandom", f"of={mount}/app.N0.T1", "bs=1M", "count=1")
    done = user.stdchk("down", mount)
    assert f"{report} cannot be written" in done.stdout
    assert victim.read_text() == "before"


@needs_root
def test_no_file_that_an_option_names_is_written_through_another_users_link(tree):
    user = User(tree, NOBODY)
    mount, drain, shared = user.folder("mount"), user.folder("drain"), user.folder("shared", 0o777)
    victim = user.folder("home") / "precious"
    victim.write_text("before")
    os.chown(victim, NOBODY, NOBODY)
    options = {name: shared / name for name in ("undrained", "safe")}
    images = [f"app.N{rank}.T1" for rank in range(2)]
    for name in (*options, *images, "plot"):
        for link in (shared / name, shared / f"{name}.new"):
            link.symlink_to(victim)
            os.lchown(link, DAEMON, DAEMON)
    user.stdchk("up", "--mount", mount, "--drain", drain, *SMALL, "--policy", "images=2", "--safe-file", options["safe"])
    recorder = user.start("report", "--undrained", options["undrained"], mount)
    for name in images:
        run(*as_user(NOBODY), "dd", "if=/dev/urandom", f"of={mount}/{name}", "bs=1M", "count=1")
    wait_until(lambda: options["safe"].is_file() and not options["safe"].is_symlink(), "the file of the safe set")
    wait_until(lambda: not options["undrained"].is_symlink(), "the list of undrained images")
    recorder.terminate()
    recorder.communicate(timeout=10)
    user.stdchk("restart", "--run", "one", "--rank", 0, "--ranks", 1, "--to", shared, mount, "--", "true")
    assert all((shared / name).stat().st_size == 1 << 20 and not (shared / name).is_symlink() for name in images)
    user.stdchk("advise", "--plot", shared / "plot", "--nodes", 2, "--table", 8)
    assert "<svg" in (shared / "plot").read_text()
    user.stdchk("down", mount)
    assert victim.read_text() == "before"


@needs_root
def test_roots_commands_use_no_record_of_another_user(tree):
    """The record names a remote shell, and a command that trusts the record would run it."""
    state = User(tree, NOBODY).folder("state")
    ran = tree / "ran"
    record = {"format": 1, "mount": str(tree / "mount"), "drain": "", "created": "", "manager_address": "x",
              "remote_shell": ["sh", "-c", f"touch {ran}"], "transport": "auto", "members": [
                  {"role": "benefactor", "host": "one", "pid": 4000000, "start_ticks": 1, "boot_id": "", "log": "",
                   "mount": "", "directory": "/tmp/nowhere", "metrics": ""}]}
    (state / "pool.json").write_text(json.dumps(record))
    done = User(tree, 0).stdchk("down", "--pool", state, check=False)
    assert done.returncode == 2 and "belongs to nobody" in done.stderr
    assert not ran.exists()


@pytest.mark.parametrize("change", [
    {"members": [{"pid": -1}]}, {"members": [{"pid": 1}]}, {"members": [{"pid": 2**32 + 5}]}, {"mount": "relative"},
    {"mount": "/a/../etc"}, {"members": [{"host": "-oProxyCommand=touch /tmp/x"}]}, {"members": [{"directory": "x"}]},
    {"members": 7}, {"format": 99}, {"remote_shell": []}, {"host_folders": [{"host": "a b", "directory": "/x"}]},
])
def test_a_record_that_up_would_not_write_is_damaged(pool, change):
    state = pool.folder / "state"
    state.mkdir(mode=0o700)
    member = {"role": "benefactor", "host": "one", "pid": 4000000, "start_ticks": 1, "boot_id": "", "log": "",
              "mount": "", "directory": "/tmp/nowhere", "metrics": ""}
    record = {"format": 1, "mount": str(pool.mount), "drain": "", "created": "", "manager_address": "x",
              "remote_shell": ["false"], "transport": "auto", "members": []} | change
    if isinstance(record["members"], list):
        record["members"] = [member | one for one in record["members"]]
    (state / "pool.json").write_text(json.dumps(record))
    done = pool.stdchk("down", "--pool", state, check=False)
    assert done.returncode == 2
    assert "is damaged" in done.stderr or "another version" in done.stderr


def sessions(tree):
    return [User(tree, os.geteuid(), name) for name in ("first", "second")]


@pytest.mark.parametrize("leftover", [False, True], ids=["empty", "dead mount"])
def test_of_two_ups_at_once_from_two_sessions_one_wins_and_the_other_says_who(tree, leftover):
    one, two = sessions(tree)
    mount = tree / "mount"
    mount.mkdir()
    for turn in range(4 if leftover else 20):
        if leftover:
            one.stdchk("up", "--mount", mount, *SMALL)
            end_all(tree)
        both = [user.start("up", "--mount", mount, *SMALL) for user in (one, two)]
        said = [process.communicate(timeout=60 * PATIENCE) for process in both]
        ends = sorted(zip((process.returncode for process in both), said, (one, two)), key=lambda end: end[0])
        assert [end[0] for end in ends] == [0, 2], (turn, said)
        (_, _, winner), (_, (_, why), _) = ends
        assert "another stdchk up is at work" in why or "another pool has" in why or "up at" in why, why
        assert f"state directory {winner.runtime}" in why and "pid " in why and "since 20" in why, why
        assert is_mounted(mount)
        (mount / "file").write_bytes(b"in the pool")
        assert (mount / "file").read_bytes() == b"in the pool"
        winner.stdchk("down", mount)
        assert not is_mounted(mount) and not list(mount.iterdir())
        assert not processes_of(tree)


def test_another_session_finds_the_pool_and_does_not_take_it_for_its_own(tree):
    one, two = sessions(tree)
    mount = tree / "mount"
    one.stdchk("up", "--mount", mount, *SMALL)
    done = two.stdchk("up", "--mount", mount, *SMALL, check=False)
    assert done.returncode == 2 and "a pool is up at" in done.stderr
    assert f"state directory {one.runtime}" in done.stderr
    assert two.stdchk("status", mount).returncode == 0
    two.stdchk("down", mount)
    assert not is_mounted(mount) and not processes_of(tree)


def test_down_for_an_old_record_leaves_the_mount_of_a_later_pool(tree):
    """The pool of the first session has died. The pool of the second session uses its mount point."""
    one, two = sessions(tree)
    mount = tree / "mount"
    one.stdchk("up", "--mount", mount, *SMALL)
    (old,) = one.runtime.glob("stdchk/pool*/pool.json")
    kept = {path.name: path.read_bytes() for path in old.parent.iterdir() if path.is_file()}
    end_all(tree)
    two.stdchk("up", "--mount", mount, *SMALL)
    (mount / "file").write_bytes(b"later")
    old.parent.mkdir(exist_ok=True, mode=0o700)
    for name, content in kept.items():
        (old.parent / name).write_bytes(content)
    done = one.stdchk("down", "--pool", old.parent, check=False)
    assert "is the mount of another pool, and stays" in done.stdout
    assert is_mounted(mount) and (mount / "file").read_bytes() == b"later"
    two.stdchk("down", mount)
    assert not is_mounted(mount)


def test_a_second_mount_daemon_does_not_get_the_mount_point(pool):
    pool.up(benefactors=1, memory="64M", drain=False)
    second = pool.mount_by_hand("second")
    record = pool.record
    for point in (pool.mount, second):
        done = run(BIN / "stdchk-mount", "--manager", record["manager_address"], "--secret-file", record["secret_file"],
                   "--ready-file", pool.folder / "third.ready", point, check=False, seconds=20)
        assert done.returncode == 1 and "in use" in done.stderr
        assert is_mounted(point)
    (pool.mount / "file").write_bytes(b"x")
    assert (second / "file").read_bytes() == b"x"


@pytest.mark.parametrize("removed", ["all", "record and secret"])
def test_a_pool_is_found_after_its_state_directory_was_removed(pool, removed):
    pool.up(benefactors=2, memory="64M")
    pids = [member["pid"] for member in pool.record["members"]]
    (pool.mount / "app.N0.T1").write_bytes(os.urandom(1 << 20))
    state = pathlib.Path(pool.record["directory"])
    if removed == "all":
        shutil.rmtree(pool.runtime / "stdchk")
    else:
        (state / "pool.json").unlink()
        (state / "secret").unlink()
    done = pool.stdchk("status", pool.mount)
    assert f"{state} was removed, and was made again" in done.stderr
    assert "4 " in done.stdout or "benefactors" in done.stdout
    assert state.stat().st_mode & 0o777 == 0o700
    if removed == "all":
        shutil.rmtree(state)
    done = pool.down("--drain")
    assert (pool.drain / "app.N0.T1").exists()
    assert not any(is_running(pid) for pid in pids) and not is_mounted(pool.mount)
    assert not state.exists()


def test_without_any_memory_of_the_record_down_ends_what_runs(pool):
    pool.up(benefactors=2, memory="64M", drain=False)
    pids = [member["pid"] for member in pool.record["members"]]
    second = pool.mount_by_hand("second")  # has the secret of the same directory, and no record
    [first] = pool.pids("mount")
    os.kill(first, signal.SIGTERM)
    wait_until(lambda: not is_running(first), "the end of the mount, which keeps the record")
    shutil.rmtree(pool.runtime / "stdchk")
    done = pool.stdchk("down", second)
    assert "no process keeps its record" in done.stderr
    assert not any(is_running(pid) for pid in pids) and not is_mounted(second)


def test_a_pool_without_a_mount_is_found_after_its_state_directory_was_removed(pool):
    pool.stdchk("up", "--no-mount", "--mount", pool.mount, *SMALL)
    pids = [member["pid"] for member in pool.record["members"]]
    shutil.rmtree(pool.runtime / "stdchk")
    pool.stdchk("status", pool.mount)
    pool.down()
    assert not any(is_running(pid) for pid in pids)


def test_recover_works_after_the_state_directory_was_removed(pool):
    pool.up(benefactors=2, memory="64M", drain=False)
    data = os.urandom(1 << 20)
    (pool.mount / "app.N0.T1").write_bytes(data)
    shutil.rmtree(pool.runtime / "stdchk")
    pool.stdchk("status", pool.mount)
    pool.kill("manager")
    pool.stdchk("recover", pool.mount)
    assert (pool.mount / "app.N0.T1").read_bytes() == data
    shutil.rmtree(pool.runtime / "stdchk")
    pids = [member["pid"] for member in json.loads(pool.stdchk("status", "--json", pool.mount).stdout)["members"]]
    assert all(is_running(pid) for pid in pids)
    pool.down()


def says_it_is_up(user):
    """True when the record of the user's only pool says that the pool was usable once."""
    for record in (user.runtime / "stdchk").glob("pool*/pool.json"):
        return json.loads(record.read_text())["ready"]
    return False


@pytest.mark.parametrize("point", [*range(10), "usable"])
def test_up_cleans_up_after_an_up_that_was_killed_anywhere(tree, point):
    """A pool that was usable may store images already, so the next `up` ends only a pool that never was."""
    user = User(tree, os.geteuid())
    mount = tree / "mount"
    running = user.start("up", "--mount", mount, "--benefactors", 2, "--memory", "64M")
    if point == "usable":
        # `up` has told nobody yet.
        while not says_it_is_up(user) and running.poll() is None:
            time.sleep(0.0005)
    else:
        began, length = time.monotonic(), 0.9
        # The first points lie close to each other, where files and processes come fast.
        while time.monotonic() - began < length * (point / 9) ** 2 and running.poll() is None:
            time.sleep(0.002)
    running.kill()
    running.communicate()
    was_up = says_it_is_up(user)
    again = user.stdchk("up", "--mount", mount, *SMALL, check=False)
    if was_up:
        assert again.returncode == 2 and "a pool is up at" in again.stderr
    else:
        assert again.returncode == 0, again.stderr
    assert is_mounted(mount)
    (mount / "file").write_bytes(b"x")
    status = json.loads(user.stdchk("status", "--json", mount).stdout)
    told = {member["pid"] for member in status["members"]}
    guarded = {int(child) for pid in told for child in
               pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}
    assert set(processes_of(tree)) <= told | guarded, "something runs that nobody knows of"
    user.stdchk("down", mount)
    assert not is_mounted(mount) and not processes_of(tree)
    assert not list((user.runtime / "stdchk").glob("pool*"))


@pytest.mark.parametrize("point", [0.05, 0.15, 0.3])
def test_down_cleans_up_after_an_up_that_was_killed(tree, point):
    user = User(tree, os.geteuid())
    mount = tree / "mount"
    running = user.start("up", "--mount", mount, "--benefactors", 2, "--memory", "64M")
    time.sleep(point)
    running.kill()
    running.communicate()
    done = user.stdchk("down", mount, check=False)
    assert done.returncode == 0 or "there is no pool" in done.stderr, done.stderr
    assert not is_mounted(mount) and not processes_of(tree)


def test_a_killed_up_leaves_nothing_on_other_hosts(tree):
    user = User(tree, os.geteuid())
    shell, hosts = tree / "shell", tree / "hosts"
    shell.write_text('#!/bin/sh\necho "$1" >>"$0.asked"\nshift\nexec "$@"\n')
    shell.chmod(0o755)
    hosts.write_text("one address=127.0.0.1\ntwo address=127.0.0.1\n")
    words = ("up", "--mount", tree / "mount", "--hosts", hosts, "--rsh", shell, *SMALL, "--listen", "127.0.0.1")
    running = user.start(*words)
    wait_until(lambda: pathlib.Path(f"{shell}.asked").exists(), "the first host")
    running.kill()
    running.communicate()
    (begun,) = user.runtime.glob("stdchk/pool*")
    folder = f"/tmp/stdchk-{os.geteuid()}-hosts/{begun.name}"
    # The remote scripts run on for some seconds. Processes that start after the next `up` has looked do not count here.
    seen = [None]
    wait_until(lambda: seen.append(processes_of(folder)) or time.sleep(1.5) or seen[-1] == processes_of(folder),
               "the end of the scripts on the hosts")
    again = user.stdchk(*words)
    assert "had not ended; its rest was removed" in again.stderr
    (state,) = user.runtime.glob("stdchk/pool*")
    told = {member["pid"] for member in json.loads((state / "pool.json").read_text())["members"]}
    folder = f"/tmp/stdchk-{os.geteuid()}-hosts/{state.name}"
    there = {pid for pid in processes_of(folder) if b"benefactor" in
             pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()}
    assert there <= told
    user.stdchk("down", tree / "mount")
    assert not processes_of(tree) and not processes_of(folder)


def test_a_mount_point_that_is_a_link_is_the_directory_that_it_leads_to(pool):
    pool.mount.mkdir()
    link = pool.folder / "link"
    link.symlink_to(pool.mount)
    pool.stdchk("up", "--mount", link, *SMALL, "--drain", pool.drain)
    (link / "x").write_bytes(b"content")
    pool.stdchk("drain", "--wait", link)
    for folder in (link, pool.mount):
        done = run(BIN / "stdchk", "safe", "x", cwd=folder, env=pool.environment)
        assert done.returncode == 0, done.stderr
        pool.stdchk("safe", folder / "x")
    pool.stdchk("status", link)
    pool.stdchk("down", link)
    assert not is_mounted(pool.mount)


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as one:
            one.bind(("::1", 0))
        return True
    except OSError:
        return False


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="::1 cannot be bound here: this machine has no IPv6")


@needs_ipv6
@pytest.mark.parametrize("listen", ["::1", "[::1]"])
def test_a_pool_listens_on_an_ipv6_address(pool, listen):
    pool.up("--listen", listen, "--standby", "--metrics", "[::1]:0", benefactors=2, memory="64M")
    assert "[::1]:" in pool.record["manager_address"]
    data = os.urandom(3 << 20)
    (pool.mount / "app.N0.T1").write_bytes(data)
    second = pool.mount_by_hand("second")
    assert (second / "app.N0.T1").read_bytes() == data
    assert (pool.stdchk("status", pool.mount)).returncode == 0


@needs_ipv6
def test_a_manager_on_an_ipv6_address_is_recovered_there(pool):
    pool.up("--listen", "::1", "--transport", "tcp", benefactors=2, memory="64M", drain=False)
    (pool.mount / "file").write_bytes(b"before")
    address = pool.record["manager_address"]
    pool.kill("manager")
    pool.stdchk("recover", pool.mount)
    assert pool.record["manager_address"] == address
    assert (pool.mount / "file").read_bytes() == b"before"


@needs_ipv6
def test_hosts_have_ipv6_addresses(pool):
    shell, hosts = pool.folder / "shell", pool.folder / "hosts"
    shell.write_text('#!/bin/sh\nshift\nexec "$@"\n')
    shell.chmod(0o755)
    hosts.write_text("one address=[::1]\ntwo address=::1\n")
    pool.stdchk("up", "--mount", pool.mount, "--hosts", hosts, "--rsh", shell, *SMALL, "--listen", "[::1]",
                "--transport", "tcp")
    (pool.mount / "file").write_bytes(b"x" * 100000)
    assert (pool.mount / "file").read_bytes() == b"x" * 100000
    pool.down()


@needs_root
def test_a_runtime_folder_of_another_user_is_not_used(tree):
    """su(1) without a login leaves XDG_RUNTIME_DIR of the other user in the environment."""
    root, user = User(tree, 0), User(tree, NOBODY)
    root.environment["XDG_RUNTIME_DIR"] = str(user.runtime)
    mount = tree / "mount"
    done = root.stdchk("up", "--mount", mount, *SMALL)
    assert "/tmp/stdchk-0/" in done.stdout
    assert not list(user.runtime.iterdir())
    root.stdchk("down", mount)




@contextlib.contextmanager
def folder_of_jobs(make):
    """The folder of NOBODY's jobs in /tmp, as `make(path)` makes it; an existing folder is set aside."""
    jobs = pathlib.Path(f"/tmp/stdchk-{NOBODY}-jobs")
    aside = jobs.with_suffix(".aside")
    if jobs.exists():
        jobs.rename(aside)
    try:
        make(jobs)
        yield jobs
    finally:
        jobs.unlink() if jobs.is_symlink() else shutil.rmtree(jobs)
        if aside.exists():
            aside.rename(jobs)


def renamed_to(user, shared, name):
    """A folder of the user in another user's folder, which the other user has renamed. Returns a file in it."""
    precious = user.folder(shared / "precious")
    (precious / "file").write_text("before")
    os.chown(precious / "file", user.uid, user.uid)
    run(*as_user(DAEMON), "mv", precious, shared / name)
    return shared / name / "file"


@needs_root
def test_a_job_removes_no_folder_that_another_user_renamed_to_an_exchange_folder(tree):
    """The job starts in a folder of DAEMON, who guesses the job's number."""
    user = User(tree, NOBODY)
    shared = User(tree, DAEMON).folder("shared", 0o777)
    (shared / "nodes").write_text("localhost\n")
    precious = renamed_to(user, shared, ".stdchk-job-77")
    environment = user.environment | {"PBS_JOBID": "77", "PBS_NODEFILE": str(shared / "nodes"), "PATH": "/usr/bin:/bin"}
    with folder_of_jobs(lambda jobs: (jobs.mkdir(mode=0o700), os.chown(jobs, NOBODY, NOBODY))):
        done = run(*user.words("up", "--job", "--rsh", "false", *SMALL), check=False, env=environment, cwd=shared)
    assert precious.read_text() == "before"
    assert done.returncode != 0 and "is no exchange folder" in done.stderr, done.stderr


@needs_root
def test_the_sites_scripts_remove_no_folder_that_another_user_renamed_to_an_exchange_folder(tree):
    user = User(tree, NOBODY)
    shared = User(tree, DAEMON).folder("shared", 0o777)
    precious = renamed_to(user, shared, ".stdchk-site-stdchk-test-9")
    environment = {"PATH": os.environ["PATH"], "STDCHK_BIN": str(tree / "bin"), "STDCHK_END_SECONDS": "15"}
    node = socket.gethostname()
    with folder_of_jobs(lambda jobs: None if jobs.exists() else jobs.mkdir()) as jobs:
        os.chown(jobs, NOBODY, NOBODY)
        jobs.chmod(0o700)
        run(ROOT / "scripts" / "site", "begin", "stdchk-test-9", NOBODY, NOBODY, node, node, shared, "mem=64M", env=environment)
        assert precious.read_text() == "before"
        assert not processes_of(tree)
        (jobs / "stdchk-test-9.site").write_text(f"{shared}\n{precious.parent}\n\n{node}\n")
        os.chown(jobs / "stdchk-test-9.site", NOBODY, NOBODY)
        end_the_job(tree)
        assert precious.read_text() == "before"


@needs_root
def test_the_end_of_a_job_removes_nothing_behind_a_planted_link_of_jobs(tree):
    user = User(tree, NOBODY)
    scratch = user.folder("scratch", 0o755)
    precious = user.folder(scratch / "77", 0o755) / "file"
    precious.write_text("before")

    def plant(jobs):
        jobs.symlink_to(scratch)
        os.lchown(jobs, DAEMON, DAEMON)

    with folder_of_jobs(plant):
        done = user.stdchk("down", "--node-of", "77", check=False)
    assert precious.read_text() == "before"
    assert done.returncode != 0 and "cannot be used" in done.stderr


@needs_root
def test_a_manager_by_hand_uses_no_state_directory_of_another_user(tree):
    user = User(tree, NOBODY)
    secret = user.runtime / "secret"
    secret.write_text("0123456789abcdef" * 2 + "\n")
    secret.chmod(0o600)
    os.chown(secret, NOBODY, NOBODY)
    theirs = User(tree, DAEMON).folder("state", 0o777)
    own = user.folder("own")
    (own / "journal.db").symlink_to(theirs / "journal.db")
    os.lchown(own / "journal.db", DAEMON, DAEMON)
    for state in (theirs, own):
        done = run(*as_user(NOBODY), "timeout", "5", tree / "bin" / "stdchk-manager", "--state", state, "--secret-file", secret,
                   "--address-file", user.runtime / "address", check=False, env=user.environment)
        assert done.returncode == 1 and "cannot be used" in done.stderr
    assert list(theirs.iterdir()) == []
