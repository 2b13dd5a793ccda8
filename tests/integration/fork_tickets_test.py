"""Tickets whose hosts a batch system, or a site's own program, gives: stdchk-forkd --hosts slurm, pbs, and --allocator."""

import json
import pathlib
import subprocess
import textwrap

import pytest
from clusters import cluster, needed  # noqa: F401
from fork_test import FORKD, LIBRARY, Daemon
from processes import ROOT, wait_until

pytestmark = needed

JOB = """
    import json, os, socket, sys, time
    from stdchk import fork
    memory = bytearray(16 << 20)
    for at in range(0, len(memory), 4096): memory[at] = at // 4096 % 251
    ticket = fork.request_ticket(int(sys.argv[1]))
    me = fork.clone(ticket)
    if me:
        fork.exit([socket.gethostname(), sum(memory[me * 4096 :: 4096])])
    print(json.dumps([ticket.count, fork.join(ticket)]), flush=True)
    """


def job_script(folder, criu, hosts, *flags):
    """A job that starts the daemon with the job's own hosts, and asks for more clones than these can have."""
    (folder / "job.py").write_text(textwrap.dedent(JOB))
    forkd = folder / "forkd"
    forkd.write_text(f"#!/bin/bash\nexec {FORKD.resolve()} --criu {criu} \"$@\"\n")
    forkd.chmod(0o755)
    words = " ".join(map(str, flags))
    return f"""
        rm -f ready
        {FORKD.resolve()} --hosts {hosts} --clone-memory 16M --remote-program {forkd} --criu {criu} --ready-file ready {words} &
        for _ in $(seq 300); do test -e ready && break; sleep 0.1; done
        STDCHK_FORK_LIBRARY={LIBRARY} PYTHONPATH={ROOT}/python python3 job.py 20
        kill %1
        wait
    """


@pytest.fixture(scope="module")
def criu():
    made = subprocess.run([ROOT / "scripts" / "trixie-root"], capture_output=True, text=True, timeout=900)
    if made.returncode == 125:
        pytest.skip("CRIU is absent: " + made.stderr.strip().splitlines()[-1])
    return pathlib.Path(made.stdout.strip()) / "criu-here"


def result_in(text):
    (line,) = [line for line in text.splitlines() if line.startswith("[")]
    return json.loads(line)


def test_a_job_of_slurm_gives_a_ticket_its_nodes_and_processors(cluster, criu):  # noqa: F811
    job = cluster.submit("--nodes=3", "--ntasks-per-node=2", "--exclusive", script=job_script(cluster.folder, criu, "slurm"))
    cluster.wait(job)
    count, results = result_in(cluster.output())
    names = [name.split("-")[0] for name, _ in results.values()]
    per_node = {name: names.count(name) for name in names}
    assert len(per_node) == 3 and len(set(per_node.values())) == 1 and sum(per_node.values()) == count, per_node
    for number, (_, total) in results.items():
        assert total == sum(i % 251 for i in range(int(number), 16 << 8))
    for node in cluster.nodes:
        wait_until(lambda node=node: cluster.left_behind(node) == "", f"nothing stays on {node}", 20)


def test_a_job_of_pbs_gives_a_ticket_the_hosts_of_its_node_file(tmp_path, criu):
    """No distribution has PBS, so the test uses its node file and a stand-in for pbs_tmrsh."""
    (tmp_path / "nodes").write_text("here\nother\nother\n")
    shell = tmp_path / "pbs_tmrsh"
    shell.write_text('#!/bin/bash\nname=$1\nshift\nexec unshare --net --uts --mount --propagation slave '
                     'bash -c "hostname $name; exec $*"\n')
    shell.chmod(0o755)
    (tmp_path / "job.sh").write_text(textwrap.dedent(job_script(tmp_path, criu, "pbs", f"--socket {tmp_path}/run/socket",
                                                                "--network none")))
    done = subprocess.run(
        ["unshare", "--uts", "bash", "-c", "hostname here; exec bash job.sh"], cwd=tmp_path, capture_output=True, text=True,
        timeout=120, env={"PATH": f"{tmp_path}:/usr/sbin:/usr/bin:/sbin:/bin", "PBS_NODEFILE": str(tmp_path / "nodes"),
                          "STDCHK_FORKD": f"{tmp_path}/run/socket"})
    count, results = result_in(done.stdout)
    names = [name.split("-")[0] for name, _ in results.values()]
    assert count == 3 and sorted(names) == ["here", "other", "other"], done.stderr


def test_a_sites_own_program_decides(tmp_path):
    program = tmp_path / "allocator"
    program.write_text(f"""#!/bin/bash
echo "$*" >>{tmp_path}/calls
case $1 in
  request) test $2 -lt 3 && echo ". 2" ;;
  describe) echo "two for each" ;;
esac
""")
    program.chmod(0o755)
    daemon = Daemon(tmp_path, "--allocator", program)
    counts = daemon.python("""
        import json
        ticket = fork.request_ticket(5)
        me = fork.clone(ticket)
        if me: fork.exit(me)
        fork.join(ticket)
        second = fork.request_ticket(1)
        try: fork.request_ticket(1)
        except OSError as error: print(json.dumps([ticket.count, second.count, error.errno, str(error)]))
        """)
    daemon.end()
    assert counts[:3] == [2, 1, 11] and "allocator failed" in counts[3]
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[:3] == ["request 1 5 16777216 anywhere", "release 1", "request 2 1 16777216 anywhere"]
