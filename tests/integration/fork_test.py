"""Clones of processes: the calls of python/stdchk/fork.py and of stdchk_fork.h against a real stdchk-forkd."""

import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from networks import Switch
from processes import BIN, PATIENCE, ROOT, run, wait_until

FORKD = BIN / "stdchk-forkd"
LIBRARY = FORKD.resolve().parent / "libstdchk_fork.so.0"

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make namespaces and overlays"),
    pytest.mark.skipif(not FORKD.exists(), reason="stdchk-forkd is not built"),
]


def ended(pid):
    """True when a process has ended. A zombie counts as ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


class Daemon:
    """Runs a stdchk-forkd whose files are in `folder`. With `prefix`, a command, it and its parents run there."""

    made = []

    def __init__(self, folder, *flags, prefix=()):
        self.folder, self.prefix = folder, prefix
        ready = folder / "ready"
        self.environment = dict(
            os.environ,
            STDCHK_FORKD=str(folder / "run" / "socket"),
            STDCHK_FORK_LIBRARY=str(LIBRARY),
            PYTHONPATH=str(ROOT / "python"),
        )
        with open(folder / "log", "w") as log:
            self.process = subprocess.Popen(
                [*prefix, FORKD, "--socket", folder / "run" / "socket", "--ready-file", ready, "--slots", "40",
                 "--clone-memory", "16M", *flags],
                stderr=log,
            )
        self.made.append(self)
        wait_until(lambda: ready.exists() or self.process.poll() is not None, "the daemon serves")
        assert self.process.poll() is None, (folder / "log").read_text()

    def start(self, program, *arguments):
        text = "import os, sys, time\nfrom stdchk import fork\n" + textwrap.dedent(program)
        return subprocess.Popen(
            [*self.prefix, sys.executable, "-c", text, *map(str, arguments)], env=self.environment, cwd=self.folder,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )

    def python(self, program, *arguments, status=0):
        """Runs a Python program to its end. Returns the JSON value of its last line."""
        process = self.start(program, *arguments)
        out, _ = process.communicate(timeout=40 * PATIENCE)
        assert process.returncode == status, out + (self.folder / "log").read_text()
        return json.loads(out.splitlines()[-1]) if out.strip() else None

    def processes(self):
        """Returns the pids of all processes of the daemon's clones. Their command lines name the daemon's socket."""
        word, found = str(self.folder / "run").encode(), []
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                inside = os.stat(entry / "ns" / "pid").st_ino != os.stat("/proc/self/ns/pid").st_ino
                if inside and word in (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes():
                    found.append(int(entry.name))
        return [pid for pid in found if not ended(pid)]

    def has_no_clones(self):
        return not self.processes()

    def end(self):
        self.process.terminate()
        assert self.process.wait(20) == 0


@pytest.fixture(autouse=True)
def daemons_end():
    """Ends the daemons that a failed test has left."""
    yield
    while Daemon.made:
        process = Daemon.made.pop().process
        process.kill()
        process.wait()


@pytest.fixture
def daemon(tmp_path):
    made = Daemon(tmp_path)
    yield made
    made.end()


def test_each_clone_has_the_parents_memory_and_its_id(daemon):
    results = daemon.python("""
        import json
        data = list(range(100000))
        ticket = fork.request_ticket(4)
        me = fork.clone(ticket)
        if me:
            fork.exit([me, fork.clone_id(), sum(data[me::100])])
        print(json.dumps([fork.clone_id(), fork.join(ticket)]))
        """)
    expected = {str(i): [i, i, sum(range(i, 100000, 100))] for i in range(1, 5)}
    assert results == [0, expected]
    wait_until(daemon.has_no_clones, "all processes of clones end")


def test_clones_change_neither_memory_nor_files_of_others(daemon):
    program = """
        import json, pathlib
        pathlib.Path("file").write_text("parent")
        pathlib.Path("removed").write_text("parent")
        state = {"who": "parent"}
        log = open("log-of-parent", "w+"); log.write("before "); log.flush()
        ticket = fork.request_ticket(2)
        me = fork.clone(ticket)
        if me:
            seen = pathlib.Path("file").read_text()
            state["who"] = me
            pathlib.Path("file").write_text(f"clone {me}"); pathlib.Path("new").write_text("x"); os.unlink("removed")
            log.write(f"clone {me}"); log.flush(); log.seek(0)
            time.sleep(0.3)
            fork.exit([seen, pathlib.Path("file").read_text(), state["who"], log.read(), sorted(os.listdir("."))])
        results = fork.join(ticket)
        log.write("after"); log.flush(); log.seek(0)
        print(json.dumps([results, pathlib.Path("file").read_text(), state["who"], log.read(), os.path.exists("new"),
                          os.path.exists("removed")]))
        """
    results, file, who, log, new, removed = daemon.python(program)
    for me in (1, 2):
        seen, changed, who_there, log_there, names = results[str(me)]
        assert (seen, changed, who_there, log_there) == ("parent", f"clone {me}", me, f"before clone {me}")
        assert "new" in names and "removed" not in names
    assert (file, who, log, new, removed) == ("parent", "parent", "before after", False, True)


def test_clones_have_their_own_namespaces_addresses_and_ports(daemon):
    program = """
        import fcntl, json, socket, struct
        server = socket.create_server(("", 0)); port = server.getsockname()[1]
        listener = socket.create_server(("", 0)); listening = listener.getsockname()[1]
        names = ("pid", "mnt", "ipc", "uts", "net")
        def spaces(): return [os.readlink(f"/proc/self/ns/{name}") for name in names]
        def address():
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:  # SIOCGIFADDR
                return socket.inet_ntoa(fcntl.ioctl(s, 0x8915, struct.pack("256s", b"eth0"))[20:24])
        ticket = fork.request_ticket(2)
        me = fork.clone(ticket)
        if me == 1:  # serves at the parent's port, on its own address
            peer = listener.accept()[0]; word = peer.recv(10).decode(); peer.close()
            fork.exit([spaces(), socket.gethostname(), address(), word])
        if me == 2:
            subnet = address().rsplit(".", 1)[0]
            for _ in range(200):
                try: other = socket.create_connection((subnet + ".2", listening), 5); break
                except OSError: time.sleep(0.05)
            other.sendall(b"sibling")
            home = socket.create_connection((subnet + ".1", port), 5); home.sendall(b"home"); home.close()
            fork.exit([spaces(), socket.gethostname(), address(), len(os.listdir("/proc/self/fd"))])
        heard = server.accept()[0].recv(10).decode()
        print(json.dumps([spaces(), socket.gethostname(), heard, fork.join(ticket)]))
        """
    spaces, name, heard, results = daemon.python(program)
    assert heard == "home" and results["1"][3] == "sibling"
    subnet = results["1"][2].rsplit(".", 1)[0]
    assert subnet.startswith("10.90.") and [results[i][2] for i in "12"] == [subnet + ".2", subnet + ".3"]
    assert len({name, results["1"][1], results["2"][1]}) == 3
    for three in zip(spaces, results["1"][0], results["2"][0]):
        assert len(set(three)) == 3, three


def test_clones_clone_themselves(daemon):
    program = """
        import json, pathlib
        ticket = fork.request_ticket(2)
        me = fork.clone(ticket)
        if me:
            pathlib.Path("trail").write_text(f"{me}")
            inner = fork.request_ticket(2)
            child = fork.clone(inner)
            if child:
                seen = pathlib.Path("trail").read_text()
                pathlib.Path("trail").write_text(f"{me}.{child}")
                fork.exit([seen, pathlib.Path("trail").read_text(), me * 10 + child])
            fork.exit([fork.join(inner), pathlib.Path("trail").read_text(), fork.clone_id()])
        print(json.dumps([fork.join(ticket), os.path.exists("trail")]))
        """
    results, trail = daemon.python(program)
    assert not trail
    for me in (1, 2):
        inner, own, number = results[str(me)]
        assert own == str(me) and number == me
        assert inner == {str(c): [str(me), f"{me}.{c}", me * 10 + c] for c in (1, 2)}
    wait_until(daemon.has_no_clones, "all processes of clones end")


def test_hierarchical_clones_share_one_set_of_namespaces(daemon):
    results = daemon.python("""
        import json
        ticket = fork.request_ticket(3, hierarchical=True)
        me = fork.clone(ticket)
        if me:
            fork.exit([os.readlink("/proc/self/ns/pid"), os.getpid()])
        print(json.dumps(fork.join(ticket)))
        """)
    assert len({results[i][0] for i in "123"}) == 1
    assert len({results[i][1] for i in "123"}) == 3


def test_a_clone_that_dies_or_is_killed_has_no_result(daemon):
    reasons, values = daemon.python("""
        import json, signal
        ticket = fork.request_ticket(4)
        me = fork.clone(ticket)
        if me == 1: os.kill(os.getpid(), signal.SIGKILL)
        if me == 2: time.sleep(100)
        if me == 3: os._exit(0)
        if me: fork.exit("fine")
        fork.kill(ticket, 2)
        try: fork.join(ticket)
        except fork.CloneFailed as failed: print(json.dumps([failed.reasons, failed.results]))
        """)
    assert reasons == {"1": "died", "2": "was killed", "3": "died"}
    assert values == {"4": "fine"}


def test_two_tickets_of_one_process_do_not_disturb_each_other(daemon):
    first, second = daemon.python("""
        import json
        a, b = fork.request_ticket(2), fork.request_ticket(3)
        if me := fork.clone(a): fork.exit(f"a{me}")
        if me := fork.clone(b): fork.exit(f"b{me}")
        second = fork.join(b)
        print(json.dumps([fork.join(a), second]))
        """)
    assert first == {"1": "a1", "2": "a2"} and second == {"1": "b1", "2": "b2", "3": "b3"}


def test_calls_that_make_no_sense_are_refused(daemon):
    errors = daemon.python("""
        import json
        errors = []
        def refused(call, *arguments):
            try: call(*arguments); errors.append(None)
            except OSError as error: errors.append(error.errno)
        refused(fork.request_ticket, 0)
        refused(fork.request_ticket, 100000)
        refused(fork.clone, fork.Ticket(77, 1))
        refused(fork.join, fork.Ticket(77, 1))
        ticket = fork.request_ticket(1)
        if not os.fork():  # another process than the owner
            refused(fork.clone, ticket); refused(fork.kill, ticket)
            os._exit(0 if errors[-2:] == [2, 2] else 1)
        errors.append(os.wait()[1])
        if fork.clone(ticket): fork.exit()
        refused(fork.clone, ticket)
        fork.join(ticket)
        print(json.dumps(errors))
        """)
    assert errors == [22, 22, 2, 2, 0, 16]


def test_a_ticket_has_no_more_clones_than_there_is_room_for(tmp_path):
    daemon = Daemon(tmp_path, "--slots", "3")
    counts = daemon.python("""
        import json
        a = fork.request_ticket(2); b = fork.request_ticket(2)
        try: fork.request_ticket(1); full = 0
        except OSError as error: full = error.errno
        fork.join(a)  # never used: it is given back
        time.sleep(0.2)
        print(json.dumps([a.count, b.count, full, fork.request_ticket(5).count]))
        """)
    daemon.end()
    assert counts == [2, 1, 11, 2]


SLEEPERS = """
    ticket = fork.request_ticket(3)
    me = fork.clone(ticket)
    if me:
        if not os.fork(): time.sleep(1000)
        inner = fork.request_ticket(1)
        fork.clone(inner)
        time.sleep(1000)
    print("cloned", flush=True)
    time.sleep(1000)
    """


def sleeping_clones(daemon):
    parent = daemon.start(SLEEPERS)
    assert parent.stdout.readline() == "cloned\n"
    # Three clones, each with a child and a clone, in six sandboxes.
    wait_until(lambda: len(daemon.processes()) == 15, "the clones run")
    return parent, daemon.processes()


def test_nothing_stays_when_the_parent_is_killed(daemon):
    parent, processes = sleeping_clones(daemon)
    parent.kill()
    parent.communicate()
    wait_until(lambda: all(map(ended, processes)), "all clones end with their parent")
    assert daemon.python("fork.request_ticket(40)\nprint(40)") == 40


def interfaces():
    """Returns the network interfaces of families of clones, by name and index. A later family may have the same name."""
    found = set()
    for folder in pathlib.Path("/sys/class/net").glob("sf*"):
        with contextlib.suppress(OSError):
            found.add((folder.name, (folder / "ifindex").read_text()))
    return found


def test_nothing_stays_when_the_daemon_is_killed(tmp_path):
    daemon = Daemon(tmp_path)
    others = interfaces()
    parent, processes = sleeping_clones(daemon)
    own = interfaces() - others
    assert len(own) == 1
    daemon.process.kill()
    daemon.process.wait()
    wait_until(lambda: all(map(ended, processes)), "all clones end with the daemon")
    parent.kill()
    parent.communicate()
    wait_until(lambda: not own & interfaces(), "the network of the clones goes")
    assert not os.listdir("/run/stdchk-fork/state")


def test_a_parent_that_waits_is_told_when_the_daemon_ends(tmp_path):
    daemon = Daemon(tmp_path)
    parent = daemon.start("""
        ticket = fork.request_ticket(1)
        if fork.clone(ticket): time.sleep(1000)
        print("cloned", flush=True)
        fork.join(ticket)
        """)
    parent.stdout.readline()
    time.sleep(0.2)
    daemon.process.kill()
    out, _ = parent.communicate(timeout=20 * PATIENCE)
    daemon.process.wait()
    assert parent.returncode == 1 and "stdchk-forkd has ended" in out


def test_another_user_is_refused(daemon):
    os.chmod(daemon.folder / "run" / "socket", 0o666)
    os.chmod(daemon.folder / "run", 0o755)
    # Each start of pytest closes the folder of all its temporary folders to other users. So the other user begins
    # in the folder of the socket.
    text = textwrap.dedent(f"""
        import os, socket
        os.chdir({str(daemon.folder / 'run')!r})
        os.setuid(65534)
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.connect("socket")
        print(int.from_bytes(s.recv(5000)[40:44], "little"))
        """)
    assert run(sys.executable, "-c", text).stdout.strip() == "1"  # EPERM


def test_who_holds_the_socket_of_an_ended_process_is_refused(daemon):
    text = textwrap.dedent(f"""
        import os, socket, time
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.connect({str(daemon.folder / 'run' / 'socket')!r})
        record = bytearray(64)
        record[0], record[4], record[36] = 1, 1, 1  # version 1, kTicket, one clone
        parent = os.getpid()
        if os.fork() == 0:
            while os.getppid() == parent: time.sleep(0.01)
            s.send(record)
            print(int.from_bytes(s.recv(5000)[40:44], "little"))
        """)
    assert run(sys.executable, "-c", text).stdout.strip() == "3"  # ESRCH


def test_the_parent_of_a_large_process_is_away_for_less_than_a_second(daemon):
    pause, ups = daemon.python("""
        import json
        memory = bytearray(256 << 20)
        for at in range(0, len(memory), 4096): memory[at] = 1
        ticket = fork.request_ticket(8)
        began = time.monotonic()
        if fork.clone(ticket):
            up = time.monotonic() - began
            assert sum(memory[::4096]) == len(memory) // 4096
            fork.exit(up)
        pause = time.monotonic() - began
        print(json.dumps([pause, sorted(fork.join(ticket).values())]))
        """)
    assert pause < PATIENCE, pause
    assert ups[-1] < 2 * PATIENCE, ups


def test_signals_do_not_reach_the_parent_for_its_frozen_copy(daemon):
    count = daemon.python("""
        import json, signal
        count = 0
        def on_child(*_):
            global count
            count += 1
        signal.signal(signal.SIGCHLD, on_child)
        ticket = fork.request_ticket(2)
        if fork.clone(ticket): fork.exit()
        fork.join(ticket)
        time.sleep(0.2)
        try: os.waitpid(-1, os.WNOHANG); count += 100
        except ChildProcessError: pass
        print(json.dumps(count))
        """)
    assert count == 0


def test_the_daemon_ends_when_it_is_told_to(daemon):
    parent, processes = sleeping_clones(daemon)
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(20) == 0
    wait_until(lambda: all(map(ended, processes)), "all clones end with the daemon")
    parent.kill()
    parent.communicate()


def test_memory_in_huge_pages_is_cloned_unchanged(daemon):
    huge, results = daemon.python("""
        import json
        memory = bytearray(64 << 20)
        for at in range(0, len(memory), 4096): memory[at] = at // 4096 % 251
        try: fork.prepare()
        except OSError: print(json.dumps([-1, {}])); sys.exit()
        with open("/proc/self/smaps_rollup") as f:
            huge = next(int(line.split()[1]) for line in f if line.startswith("AnonHugePages:"))
        ticket = fork.request_ticket(2)
        me = fork.clone(ticket)
        if me: fork.exit(sum(memory[::4096]))
        print(json.dumps([huge, fork.join(ticket)]))
        """)
    if huge < 0:
        pytest.skip("this kernel has no MADV_COLLAPSE")
    assert huge >= 32 << 10
    assert set(results.values()) == {sum(i % 251 for i in range(64 << 8))}


def example(daemon, name, *arguments):
    return run(sys.executable, ROOT / "examples" / "fork" / name, *arguments, env=daemon.environment).stdout


def test_the_patterns_of_the_paper(daemon):
    largest = max((n * 2654435761) % 1000003 for n in range(300_000))
    assert example(daemon, "parallel.py", 4) == f"4 clones, largest word {largest}\n"
    trusted = example(daemon, "sandbox.py", 20, "import os; state['answer'] = 1; result = os.getpid()")
    assert trusted == "result: 2\nstate of the parent: {'answer': 42}\n"
    endless = example(daemon, "sandbox.py", 1, "while True: pass")
    assert endless == "no result: clone 1: was killed\nstate of the parent: {'answer': 42}\n"
    answered = example(daemon, "load.py", 30)
    assert answered.startswith("30 requests answered, at most ") and int(answered.split()[-5]) > 1
    assert example(daemon, "opportunistic.py", 50).startswith(f"sum {sum(n * n for n in range(50))} after 2 rounds")


def python_with(module):
    """Finds a Python interpreter with that module."""
    for python in (sys.executable, "/usr/bin/python3"):
        with contextlib.suppress(OSError):
            if subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode == 0:
                return python
    pytest.skip(f"no Python here has {module}")


def test_clones_evaluate_a_numpy_model_as_their_parent_does(daemon):
    python = python_with("numpy")
    done = run(python, ROOT / "examples" / "fork" / "model.py", 4, env=daemon.environment)
    assert done.stdout == "4 clones, 256 scores, equal to the parent's\n"


def test_clones_price_options_by_quantlib_as_their_parent_does(daemon):
    python = python_with("QuantLib")
    done = run(python, ROOT / "examples" / "fork" / "prices.py", 4, env=daemon.environment)
    assert done.stdout.startswith("4 clones, 160 prices, equal to the parent's, sum ")


def test_clones_search_by_blast_as_one_program_does(daemon, tmp_path):
    if shutil.which("blastn") is None or shutil.which("makeblastdb") is None:
        pytest.skip("ncbi-blast+ is not installed")
    rng = random.Random(2)
    sequences = ["".join(rng.choices("ACGT", k=40_000)) for _ in range(6)]
    (tmp_path / "all.fa").write_text("".join(f">s{n}\n{text}\n" for n, text in enumerate(sequences)))
    run("makeblastdb", "-in", tmp_path / "all.fa", "-dbtype", "nucl", "-out", tmp_path / "db")
    queries = ""
    for n in range(12):
        at = rng.randrange(39_000)
        queries += f">q{n:02}\n{sequences[n % 6][at:at + 600]}\n"
    (tmp_path / "queries.fa").write_text(queries)
    alone, shared = (example(daemon, "search.py", tmp_path / "db", tmp_path / "queries.fa", clones) for clones in (1, 4))
    assert alone == shared
    assert [line.split()[:2] for line in shared.splitlines()] == [[f"q{n:02}", f"s{n % 6}"] for n in range(12)]


def test_four_parents_clone_themselves_at_the_same_time_again_and_again(daemon):
    """Section 5.2 of the paper: scale and agility."""
    program = """
        data = list(range(int(sys.argv[1]), 20000))
        for cycle in range(5):
            ticket = fork.request_ticket(8)
            me = fork.clone(ticket)
            if me: fork.exit(sum(data[me - 1 :: ticket.count]) + cycle)
            assert sum(fork.join(ticket).values()) == sum(data) + cycle * ticket.count
        print("right")
        """
    parents = [daemon.start(program, start) for start in range(4)]
    for parent in parents:
        out, _ = parent.communicate(timeout=60 * PATIENCE)
        assert out == "right\n", out
    wait_until(daemon.has_no_clones, "all processes of clones end")


# Stands in for other hosts: a remote shell that starts the daemon in new network and mount namespaces.


def criu_here():
    made = subprocess.run([ROOT / "scripts" / "trixie-root"], capture_output=True, text=True, timeout=900)
    if made.returncode == 125:
        pytest.skip("CRIU is absent: " + made.stderr.strip().splitlines()[-1])
    return pathlib.Path(made.stdout.strip()) / "criu-here"


def daemon_with_hosts(tmp_path, rsh, hosts, *flags, prefix=()):
    """A daemon with one slot here, and `hosts` that the script `rsh` reaches."""
    criu = criu_here()
    for name, text in {"rsh": rsh, "forkd": f'exec {FORKD} --criu {criu} "$@"'}.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "hosts").write_text(hosts)
    return Daemon(tmp_path, "--slots", "1", "--hosts", tmp_path / "hosts", "--rsh", tmp_path / "rsh", "--remote-program",
                  tmp_path / "forkd", "--criu", criu, *flags, prefix=prefix)


def far_daemon(tmp_path, *flags):
    """A daemon with one slot here and six on another host, whose network reaches nobody; the file "shell" has the
    remote shell's pid."""
    rsh = f'echo $$ >{tmp_path}/shell\nshift\nexec unshare --net --uts --mount --propagation slave bash -c "hostname far; $*"'
    return daemon_with_hosts(tmp_path, rsh, "127.0.0.9 slots=6 memory=1G\n", *flags)


@pytest.fixture
def far(tmp_path):
    daemon = far_daemon(tmp_path)
    yield daemon
    daemon.end()


def test_clones_on_another_host_fetch_the_memory_that_they_touch(far):
    results = far.python("""
        import ctypes, json, mmap, socket, subprocess
        memory = bytearray(32 << 20)
        for at in range(0, len(memory), 4096): memory[at] = at // 4096 % 251
        given_up = mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        given_up[::4096] = b"x" * (len(given_up) // 4096)
        ticket = fork.request_ticket(7)
        me = fork.clone(ticket)
        if me:
            given_up.madvise(mmap.MADV_DONTNEED, 0, 4 << 20)
            zero, kept = given_up[4096], given_up[(4 << 20) + 4096]
            child = os.fork()  # its memory comes from the parent's host, too
            if child == 0: os._exit(0 if memory[5 * 4096] == 5 and memory[1001 * 4096] == 1001 % 251 else 1)
            child = os.waitpid(child, 0)[1]
            memory[0] = me
            program = subprocess.run(["hostname"], capture_output=True, text=True).stdout.strip()
            fork.exit([me, socket.gethostname(), sum(memory[me * 4096 :: 4096]), zero, kept, child, program, memory[0]])
        print(json.dumps([fork.join(ticket), memory[0]]))
        """)
    values, own = results
    assert own == 0 and sorted(map(int, values)) == list(range(1, 8))
    for number, (me, name, total, zero, kept, child, program, first) in values.items():
        assert me == int(number) == first and program == name
        assert total == sum(i % 251 for i in range(me, 32 << 8))
        assert (zero, kept, child) == (0, ord("x"), 0)
    assert len([v for v in values.values() if v[1].startswith("far-")]) == 6
    wait_until(far.has_no_clones, "all processes of clones end")


def far_sleepers(far):
    parent = far.start("""
        ticket = fork.request_ticket(7)
        if fork.clone(ticket): open("/dev/shm/up", "w").close(); time.sleep(1000)
        print("cloned", flush=True)
        try: fork.join(ticket)
        except fork.CloneFailed as failed: print(len(failed.reasons), failed.reasons[1], failed.reasons[7], flush=True)
        """)
    assert parent.stdout.readline() == "cloned\n"
    # Seven clones and their first processes, and the first process around all clones of the far host.
    wait_until(lambda: len(far.processes()) == 15, "the clones run", 10)
    return parent


def fetched_bytes(daemon):
    """The bytes of the parent's memory that the other host has fetched: its daemon's last line says them."""
    log = daemon.folder / "log"
    wait_until(lambda: "bytes of the parent's memory were fetched" in log.read_text(), "the other host's daemon ends", 30)
    return int(re.search(r"(\d+) bytes of the parent's memory were fetched", log.read_text())[1])


def test_memory_that_the_parent_has_free_is_not_fetched(far):
    """Each clone fills memory that its parent had allocated, written and freed, and memory that nobody has touched."""
    results = far.python("""
        import ctypes, json, mmap
        libc = ctypes.CDLL(None)
        libc.malloc.restype = ctypes.c_void_p
        def fill(count):
            blocks = [libc.malloc(60000) for _ in range(count)]
            for number, block in enumerate(blocks): ctypes.memset(block, number % 251, 60000)
            return blocks
        freed = fill(1000)
        kept = fill(1)  # behind the free memory, so that the heap does not shrink
        for block in freed: libc.free(ctypes.c_void_p(block))
        untouched = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        ticket = fork.request_ticket(7)
        me = fork.clone(ticket)
        if me:
            blocks = fill(900)
            right = all(ctypes.string_at(block, 60000) == bytes([number % 251]) * 60000 for number, block in enumerate(blocks))
            zeros = sum(untouched[::4096])
            untouched[5 << 20] = me
            fork.exit([right, zeros, untouched[5 << 20], ctypes.string_at(kept[0], 60000) == bytes(60000)])
        print(json.dumps(fork.join(ticket)))
        """)
    assert results == {str(me): [True, 0, me, True] for me in range(1, 8)}
    # The blocks have 51 MiB, and the memory that nobody has touched has 64. The rest is Python's.
    assert fetched_bytes(far) < 24 << 20


def test_a_lost_host_fails_its_clones_and_no_others(far):
    parent = far_sleepers(far)
    os.kill(int((far.folder / "shell").read_text()), signal.SIGKILL)
    wait_until(lambda: len(far.processes()) == 2, "the clones of the lost host end")
    assert parent.poll() is None  # the clone on this host goes on
    parent.kill()
    parent.communicate()
    wait_until(far.has_no_clones, "all clones end with their parent")


def test_nothing_stays_on_another_host_when_the_parent_is_killed(far):
    parent = far_sleepers(far)
    parent.kill()
    parent.communicate()
    wait_until(far.has_no_clones, "all clones end with their parent", 30)
    assert not os.listdir("/run/stdchk-fork/state")


@contextlib.contextmanager
def pager_of(pool, folder):
    ready, socket = folder / "pager-ready", folder / "pager"
    process = subprocess.Popen([
        BIN / "stdchk-pager", "--socket", socket, "--ready-file", ready, "--manager", pool.record["manager_address"],
        "--secret-file", pool.record["secret_file"]])
    try:
        wait_until(ready.exists, "stdchk-pager")
        yield ["--pager", socket, "--pool-path", "/forks"]
    finally:
        process.terminate()
        process.wait(20)


@pytest.mark.parametrize("by_pager", [False, True])
def test_clones_go_on_when_the_host_of_their_parent_is_lost(pool, tmp_path, by_pager):
    pool.up(benefactors=2, drain=False)
    images = pool.mount / "forks"
    images.mkdir()
    with contextlib.ExitStack() as stack:
        flags = stack.enter_context(pager_of(pool, tmp_path)) if by_pager else []
        daemon = far_daemon(tmp_path, "--images", images, *flags)
        parent = daemon.start("""
            import mmap, pathlib
            folder = pathlib.Path(sys.argv[1])
            memory = bytearray(48 << 20)
            for at in range(0, len(memory), 4096): memory[at] = at // 4096 % 251
            zeros = bytearray(32 << 20)
            untouched = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            ticket = fork.request_ticket(7, outlive=True)
            me = fork.clone(ticket)
            if me:
                early = sum(memory[: 8 << 20 : 4096])
                while not (folder / "go").exists(): time.sleep(0.05)
                (folder / f"part-{me}").write_text(f"{early + sum(memory[8 << 20 :: 4096])} {sum(zeros[::4096]) + sum(untouched[::4096])}")
                os.rename(folder / f"part-{me}", folder / f"result-{me}")
                fork.exit()
            print("cloned", flush=True)
            fork.join(ticket)
            """, pool.mount)
        assert parent.stdout.readline() == "cloned\n"
        try:
            wait_until(lambda: "its copy is no longer needed" in (tmp_path / "log").read_text(), "the image", 30)
            (image,) = images.iterdir()
            # Memory without pages is not in the image, and pages of zeros are holes.
            assert 80 << 20 <= image.stat().st_size < 112 << 20 and image.stat().st_blocks * 512 < 80 << 20
            parent.kill()
            daemon.process.kill()
            daemon.process.wait()
            wait_until(lambda: len(daemon.processes()) == 13, "the clone of the lost host ends, and the others stay")
            (pool.mount / "go").touch()
            wait_until(lambda: len(list(pool.mount.glob("result-*"))) == 6, "the results", 30)
            total = sum(i % 251 for i in range(48 << 8))
            assert {path.read_text() for path in pool.mount.glob("result-*")} == {f"{total} 0"}
            wait_until(daemon.has_no_clones, "nothing stays on the other host", 30)
            wait_until(lambda: not list(images.iterdir()), "the image is removed")
            assert not os.listdir("/run/stdchk-fork/state")
        finally:
            for process in (parent, daemon.process):
                process.kill()
                process.wait()
            parent.stdout.close()


# Hosts that are network namespaces on one switch: the parent's, two more, and one outside, which has no clones.


@pytest.fixture
def switch():
    made = Switch(4)
    yield made
    made.end()


def daemon_on(switch, folder, *flags):
    """Starts a daemon on the first host of the switch, with one slot. Two other hosts have two slots each."""
    for number in (1, 2):
        (folder / f"net-{switch.address(number)}").write_text(switch.hosts[number].path)
    rsh = (f'host=$1; shift\nexec nsenter --net=$(cat {folder}/net-$host) unshare --uts --mount --propagation slave '
           'bash -c "hostname far-$host; $*"')
    hosts = "".join(f"{switch.address(number)} slots=2 memory=1G\n" for number in (1, 2))
    return daemon_with_hosts(folder, rsh, hosts, *flags, prefix=switch.hosts[0].prefix)


# In a clone: its address, and sockets of its network.
NETWORK = """
    import fcntl, json, socket, struct, threading
    def address():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:  # SIOCGIFADDR
            return socket.inet_ntoa(fcntl.ioctl(s, 0x8915, struct.pack("256s", b"eth0"))[20:24])
    def datagrams():
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0")
        s.bind(("", 7001))
        return s
    def hear(s, heard):
        while True: heard.add(s.recv(100).decode())
    def reach(host, port):
        try:
            with socket.create_connection((host, port), 20) as s: return s.recv(100).decode()
        except OSError: return None
    def serve(word):
        server = socket.create_server(("", 7000))
        def answer():
            while True:
                with server.accept()[0] as s: s.sendall(word.encode())
        threading.Thread(target=answer, daemon=True).start()
    def wait_at_home(home):  # until the parent has heard of all clones
        with socket.create_connection(home, 20) as s:
            s.sendall(b"done")
            s.settimeout(30)
            s.recv(10)
    def wait_for_clones(server, count):
        waiting = [server.accept()[0] for _ in range(count)]
        for one in waiting: one.recv(10)
        return waiting
    """


def family_on(daemon, word):
    """Starts a parent with five clones on all hosts. Each reaches all others, sends them the family's word, and prints
    what it has heard."""
    return daemon.start(textwrap.dedent(NETWORK) + textwrap.dedent("""
        home = socket.create_server(("", 0)); port = home.getsockname()[1]
        ticket = fork.request_ticket(5)
        me = fork.clone(ticket)
        if me:
            own, heard = address(), set()
            subnet = own.rsplit(".", 1)[0]
            serve(f"{me} {socket.gethostname()}")
            s = datagrams()
            threading.Thread(target=hear, args=(s, heard), daemon=True).start()
            wait_at_home((subnet + ".1", port))
            others = [reach(f"{subnet}.{last}", 7000) for last in range(2, 7)]
            for _ in range(5): s.sendto(sys.argv[1].encode(), ("255.255.255.255", 7001)); time.sleep(0.2)
            time.sleep(1)
            wait_at_home((subnet + ".1", port))
            fork.exit([own, others, sorted(heard)])
        for _ in range(2):
            for one in wait_for_clones(home, 5): one.close()
        print(json.dumps([ticket.count, fork.join(ticket)]))
        """), word)


def test_clones_on_all_hosts_are_in_their_parents_network_and_in_no_other(switch, tmp_path):
    daemons = []
    try:
        parents = []
        for word, network in (("one", "10.90.0.0/16"), ("two", "10.91.0.0/16")):
            folder = tmp_path / word
            folder.mkdir()
            daemons.append(daemon_on(switch, folder, "--network", network))
            parents.append(family_on(daemons[-1], word))
        for word, parent, own in zip(("one", "two"), parents, daemons, strict=True):
            out, _ = parent.communicate(timeout=60 * PATIENCE)
            assert parent.returncode == 0, out + (own.folder / "log").read_text()
            count, results = json.loads(out.splitlines()[-1])
            assert count == 5 and sorted(results) == list("12345")
            addresses = {value[0] for value in results.values()}
            assert len(addresses) == 5 and len({address.rsplit(".", 1)[0] for address in addresses}) == 1
            for _, others, heard in results.values():
                assert sorted(other.split()[0] for other in others) == list("12345"), others
                assert len({other.split()[1].rsplit("-", 2)[0] for other in others}) == 3, others
                assert heard == [word]
        for own in daemons:
            wait_until(own.has_no_clones, "all processes of clones end", 30)
    finally:
        for own in daemons:
            own.end()


def test_a_host_that_is_this_host_disturbs_no_clone(tmp_path):
    daemon = far_daemon(tmp_path)
    try:
        results = daemon.python(textwrap.dedent(NETWORK) + textwrap.dedent("""
            home = socket.create_server(("", 0)); port = home.getsockname()[1]
            ticket = fork.request_ticket(7)
            me = fork.clone(ticket)
            if me:
                try: own = address()
                except OSError: fork.exit("no network")
                fork.exit(reach(own.rsplit(".", 1)[0] + ".1", port))
            home.settimeout(30)
            with home.accept()[0] as peer: peer.sendall(b"here")
            print(json.dumps(fork.join(ticket)))
            """))
        assert sorted(results.values()) == ["here"] + 6 * ["no network"]
        assert "127.0.0.9 is this host" in (tmp_path / "log").read_text()
    finally:
        daemon.end()



OUTSIDE = """
import socket
server = socket.create_server(("", 8000))
while True:
    peer, address = server.accept()
    peer.sendall(address[0].encode())
    peer.close()
"""


@pytest.fixture
def outside(switch):
    """A server on the last host, which says from which address it was reached."""
    host = switch.hosts[3]
    server = subprocess.Popen([*host.prefix, sys.executable, "-c", OUTSIDE])
    wait_until(lambda: ":8000" in host.run("ss", "-tln").stdout, "the server outside")
    yield switch.address(3)
    server.kill()
    server.wait()


def reached_by_clones(daemon, outside, count):
    return daemon.python(textwrap.dedent(NETWORK) + textwrap.dedent(f"""
        ticket = fork.request_ticket({count})
        if fork.clone(ticket): fork.exit(reach("{outside}", 8000))
        print(json.dumps(list(fork.join(ticket).values())))
        """))


def test_clones_reach_the_outside_only_when_asked_and_nobody_reaches_them(switch, outside, tmp_path):
    host = switch.hosts[0]
    forwards = "/proc/sys/net/ipv4/ip_forward"
    (tmp_path / "plain").mkdir()
    daemon = Daemon(tmp_path / "plain", prefix=host.prefix)
    assert reached_by_clones(daemon, outside, 2) == [None, None]
    daemon.end()
    before = host.run("cat", forwards).stdout
    (tmp_path / "nat").mkdir()
    daemon = Daemon(tmp_path / "nat", "--nat", prefix=host.prefix)
    assert reached_by_clones(daemon, outside, 2) == [switch.address(0)] * 2
    (tmp_path / "second").mkdir()
    second = subprocess.run([*host.prefix, FORKD, "--socket", tmp_path / "second" / "run" / "socket", "--nat"],
                            capture_output=True, text=True, timeout=60)
    assert second.returncode != 0 and "Another stdchk-forkd of this host has --nat" in second.stderr
    # Nobody outside reaches a clone, and this host forwards nothing else, as before.
    parent = daemon.start(textwrap.dedent(NETWORK) + textwrap.dedent("""
        ticket = fork.request_ticket(1)
        if fork.clone(ticket):
            serve("a clone")
            print(address(), flush=True)
            time.sleep(1000)
        fork.join(ticket)
        """))
    clone = parent.stdout.readline().strip()
    switch.hosts[3].run("ip", "route", "add", "10.90.0.0/16", "via", switch.address(0))
    reach = f"import socket; print(socket.create_connection(('{clone}', 7000), 2).recv(10))"
    assert "a clone" in host.run(sys.executable, "-c", reach).stdout
    assert switch.hosts[3].run(sys.executable, "-c", reach, check=False).returncode != 0
    # Nobody outside uses a clone's address to have this host forward packets.
    switch.hosts[2].run("nft", "-f", "-", input="""table inet seen {
        chain in { type filter hook input priority 0; udp dport 7002 counter; }
    }""")
    host.run("sh", "-c", "for each in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 >$each; done")
    switch.hosts[3].run("ip", "address", "add", "10.90.200.7/32", "dev", "lo")
    switch.hosts[3].run("ip", "route", "add", f"{switch.address(2)}/32", "via", switch.address(0), "src", "10.90.200.7")
    switch.hosts[3].run(sys.executable, "-c", textwrap.dedent(f"""
        import socket, time
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for _ in range(10): s.sendto(b"forged", ("{switch.address(2)}", 7002)); time.sleep(0.05)
        """))
    assert "packets 0 " in switch.hosts[2].run("nft", "list", "table", "inet", "seen").stdout
    parent.kill()
    parent.communicate()
    # A killed daemon leaves no rules, and takes none from the next one.
    daemon.process.kill()
    daemon.process.wait()
    (tmp_path / "next").mkdir()
    daemon = Daemon(tmp_path / "next", "--nat", prefix=host.prefix)
    assert reached_by_clones(daemon, outside, 2) == [switch.address(0)] * 2
    daemon.end()
    wait_until(lambda: "stdchk_fork" not in host.run("nft", "list", "tables").stdout, "the rules go")
    wait_until(lambda: host.run("cat", forwards).stdout == before, "forwarding is as before")


def test_clones_on_other_hosts_reach_the_outside_by_their_parents_host(switch, outside, tmp_path):
    daemon = daemon_on(switch, tmp_path, "--nat")
    assert reached_by_clones(daemon, outside, 5) == [switch.address(0)] * 5
    daemon.end()


def test_clones_may_outlive_their_parent_and_can_be_ended_then(daemon):
    parent = daemon.start("""
        ticket = fork.request_ticket(2, outlive=True)
        me = fork.clone(ticket)
        if me:
            time.sleep(0.5)
            os.write(1, f"alive {me}\\n".encode())  # one call, so that lines stay whole
            if me == 2: time.sleep(1000)
            fork.exit()
        print(ticket.number, flush=True)
        """)
    number = int(parent.stdout.readline())
    assert parent.wait(20 * PATIENCE) == 0
    assert sorted(parent.stdout.readline() for _ in range(2)) == ["alive 1\n", "alive 2\n"]
    wait_until(lambda: len(daemon.processes()) == 2, "the first clone ends")
    daemon.python(f"fork.kill(fork.Ticket({number}, 2))\nprint(0)")
    wait_until(daemon.has_no_clones, "the second clone ends")
    assert parent.stdout.read() == ""
    assert daemon.python("print(fork.request_ticket(40).count)") == 40
