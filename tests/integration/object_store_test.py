"""Tests the drain to an object store, against moto's server behind a proxy with faults (object_server.py).

STDCHK_TEST_MOTO names the Python of a virtual environment with moto[server]; scripts/object-stores makes one.
"""

import errno
import json
import os
import pathlib
import re
import subprocess
import time
import urllib.parse
import urllib.request
import xml.etree.ElementTree

import pytest
from conftest import BIN, Pool
from processes import run, wait_until

PYTHON = os.environ.get("STDCHK_TEST_MOTO")
pytestmark = pytest.mark.skipif(not PYTHON, reason="STDCHK_TEST_MOTO is not set: scripts/object-stores sets it")

HERE = pathlib.Path(__file__).parent
SECRET = "a/secret+of=the test"
BUCKET = "bucket"
MIB = 1 << 20


class Server:
    """moto behind its proxy, and what the store has."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen([PYTHON, HERE / "object_server.py", *(arguments or [BUCKET])],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.port, self.moto_port = self.process.stdout.readline().split()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.behind = f"http://127.0.0.1:{self.moto_port}/{BUCKET}"

    def end(self):
        self.process.stdin.close()
        self.process.wait(60)

    def faults(self, *faults):
        request = urllib.request.Request(f"{self.endpoint}/-/faults", json.dumps(faults).encode(), method="POST")
        urllib.request.urlopen(request).read()

    def faults_left(self):
        return json.load(urllib.request.urlopen(f"{self.endpoint}/-/faults"))

    def requests(self):
        return json.load(urllib.request.urlopen(f"{self.endpoint}/-/requests"))

    def ask(self, key, method="GET", body=None, **headers):
        """Asks moto, past the proxy. moto wants a signature, and does not check it."""
        headers["Authorization"] = ("AWS4-HMAC-SHA256 Credential=TESTKEY/20260101/us-east-1/s3/aws4_request, "
                                    "SignedHeaders=host, Signature=0")
        headers.setdefault("Content-Type", "application/octet-stream")  # moto takes a form's body away
        request = urllib.request.Request(f"{self.behind}/{urllib.parse.quote(key, safe='/?=&-')}", body, headers,
                                         method=method)
        return urllib.request.urlopen(request)

    def read(self, key):
        return self.ask(key).read()

    def metadata(self, key):
        headers = self.ask(key, "HEAD").headers
        return {name.lower().removeprefix("x-amz-meta-stdchk-"): value for name, value in headers.items()
                if name.lower().startswith("x-amz-meta-stdchk-")}

    def lifetime(self, seconds):
        """Sets the seconds that temporary credentials stay valid; 0 means that the server has none."""
        request = urllib.request.Request(f"{self.endpoint}/-/lifetime", json.dumps(seconds).encode(), method="POST")
        urllib.request.urlopen(request).read()

    def issued(self):
        """Returns how often temporary credentials were given out, and how many requests came with ended ones."""
        return json.load(urllib.request.urlopen(f"{self.endpoint}/-/issued"))

    def keys(self, prefix=""):
        text = self.ask(f"?list-type=2&prefix={prefix}").read()
        return sorted(element.text for element in xml.etree.ElementTree.fromstring(text).iter()
                      if element.tag.endswith("}Key"))

    def uploads(self):
        text = self.ask("?uploads=").read()
        return [element.text for element in xml.etree.ElementTree.fromstring(text).iter()
                if element.tag.endswith("}Key")]


@pytest.fixture(name="server", scope="module")
def server_fixture():
    server = Server()
    yield server
    server.end()


@pytest.fixture(name="store")
def store_fixture(server, pool, request):
    """The place to which `pool` drains: a prefix of its own. The pool knows the credentials."""
    name = re.sub(r"\W", "-", request.node.name)[:40].strip("-")
    server.faults()
    give_credentials(pool, server)
    pool.drain = f"s3://{BUCKET}/{name}"
    yield server, name
    server.faults()


def give_credentials(pool, server):
    pool.environment.update(AWS_ACCESS_KEY_ID="TESTKEY", AWS_SECRET_ACCESS_KEY=SECRET, AWS_REGION="us-east-1",
                            STDCHK_DRAIN_ENDPOINT=server.endpoint, HOME="/nonexistent")


def write(path, size):
    content = os.urandom(size)
    path.write_bytes(content)
    return content


def drain(pool, *paths, seconds=60):
    return pool.stdchk("drain", "--wait", "--timeout", seconds, *(pool.mount / path for path in paths or [""]))


def is_safe(pool, path):
    return pool.stdchk("safe", pool.mount / path, check=False).returncode == 0


def verify(pool, check=True):
    done = pool.stdchk("verify", "--json", pool.drain, check=False)
    assert done.returncode in ((0,) if check else (0, 1)), done.stdout + done.stderr
    return json.loads(done.stdout)


def test_the_client_of_object_stores_passes_the_cases_of_all_stores(server):
    server.faults()
    environment = os.environ | {"AWS_ACCESS_KEY_ID": "TESTKEY", "AWS_SECRET_ACCESS_KEY": SECRET,
                                "STDCHK_TEST_S3": f"s3://{BUCKET}/cases?endpoint={server.endpoint}"}
    program = next(path for path in (BIN / "object-store-test",
                                     BIN.parent / "release/tests/conformance/object-store-test") if path.exists())
    done = subprocess.run([program], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-5000:]


def test_images_become_objects_with_their_bytes_and_attributes(pool, store):
    server, prefix = store
    pool.up(benefactors=3, memory="128M")
    contents = {}
    (pool.mount / "run").mkdir()
    for name, size in {"run/app.N0.T1": 3 * MIB + 5, "run/app.N1.T1": 40 * MIB + 1, "empty": 0, "a b&c=d": 100}.items():
        contents[name] = write(pool.mount / name, size)
    os.chmod(pool.mount / "run/app.N0.T1", 0o640)
    drain(pool)
    for name, content in contents.items():
        assert server.read(f"{prefix}/{name}") == content
        assert is_safe(pool, name)
    attributes = server.metadata(f"{prefix}/run/app.N0.T1")
    status = (pool.mount / "run/app.N0.T1").stat()
    assert attributes["mode"] == "640"
    assert int(attributes["mtime"]) == status.st_mtime_ns
    assert int(attributes["uid"]) == status.st_uid
    assert server.metadata(f"{prefix}/run/")["kind"] == "directory"
    assert not [key for key in server.keys(f"{prefix}/.stdchk-drain")]
    assert not server.uploads()
    found = verify(pool)
    assert found["files"] == len(contents) and not found["bad"]
    assert found["checked_bytes"] == sum(map(len, contents.values()))
    pool.down()


def test_changes_of_names_reach_the_store(pool, store):
    server, prefix = store
    pool.up(benefactors=2, memory="64M")
    (pool.mount / "d").mkdir()
    content = write(pool.mount / "d/one", 50_000)
    os.symlink("d/one", pool.mount / "latest-one")
    drain(pool)
    (pool.mount / "d").rename(pool.mount / "e")
    (pool.mount / "e/one").rename(pool.mount / "e/two")
    os.link(pool.mount / "e/two", pool.mount / "e/three")
    drain(pool)
    assert server.read(f"{prefix}/e/two") == server.read(f"{prefix}/e/three") == content
    assert server.read(f"{prefix}/latest-one") == b"d/one"
    (pool.mount / "e/three").unlink()
    (pool.mount / "e/two").unlink()
    (pool.mount / "e").rmdir()
    drain(pool)
    assert [key for key in server.keys(prefix) if ".stdchk" not in key] == [f"{prefix}/latest-one"]
    pool.down()


def test_a_renamed_pointer_stands_in_the_store_only_after_its_set(pool, store):
    server, prefix = store
    pool.up("--drain-rate", "3M", "--drain-yields", "off", benefactors=2, memory="128M")
    pool.stdchk("policy", "set", pool.mount, "set=directory", "set-names=step-*", "marker=.metadata", "pointer=latest")
    (pool.mount / "step-1").mkdir()
    (pool.mount / "step-1/.metadata.tmp").write_text("marker")
    (pool.mount / "latest.new").write_text("step-1")
    wait_until(lambda: {f"{prefix}/latest.new", f"{prefix}/step-1/.metadata.tmp"} <= set(server.keys(prefix)),
               "the temporary names", 40)
    for rank in range(4):
        write(pool.mount / f"step-1/{rank}", 4 * MIB)
    (pool.mount / "step-1/.metadata.tmp").rename(pool.mount / "step-1/.metadata")
    (pool.mount / "latest.new").rename(pool.mount / "latest")

    def there(name):
        return f"{prefix}/{name}" in server.keys(prefix)

    def is_whole():
        return all(there(f"step-1/{rank}") for rank in range(4))

    until = time.monotonic() + 60
    while not there("latest"):
        assert time.monotonic() < until, "no pointer in the store"
        # The order of the questions matters: the drain goes on between them.
        assert not there("step-1/.metadata") or is_whole()
        time.sleep(0.1)
    assert there("step-1/.metadata") and is_whole()
    drain(pool)
    assert server.read(f"{prefix}/latest") == b"step-1"
    assert not there("latest.new") and not there("step-1/.metadata.tmp")
    pool.down()


def test_a_new_pool_shows_and_reads_the_files_of_an_earlier_one(pool, store, tmp_path):
    server, prefix = store
    pool.up(benefactors=2, memory="64M")
    (pool.mount / "d").mkdir(mode=0o711)
    contents = {name: write(pool.mount / name, size)
                for name, size in {"d/app.N0.T1": 20 * MIB, "small": 1000}.items()}
    os.symlink("small", pool.mount / "link")
    (pool.mount / "empty").mkdir(mode=0o750)
    for name in ("link", "empty"):
        os.utime(pool.mount / name, ns=(10**18, 10**18 + 7), follow_symlinks=False)
    times = {name: (pool.mount / name).stat().st_mtime_ns for name in contents}
    drain(pool)
    other = Pool(tmp_path)
    give_credentials(other, server)
    other.drain = pool.drain
    with pytest.raises(AssertionError) as refused:
        other.up(benefactors=1, memory="64M")
    assert "is in use by another pool" in str(refused.value)
    pool.down()
    try:
        other.up(benefactors=1, memory="64M")
        for name, content in contents.items():
            assert (other.mount / name).read_bytes() == content
            assert (other.mount / name).stat().st_mtime_ns == times[name]
        assert os.readlink(other.mount / "link") == "small"
        assert os.lstat(other.mount / "link").st_mtime_ns == 10**18 + 7
        assert (other.mount / "empty").stat().st_mtime_ns == 10**18 + 7
        assert (other.mount / "empty").stat().st_mode & 0o7777 == 0o750
        assert (other.mount / "d").stat().st_mode & 0o7777 == 0o711
        # Bytes that were changed in the store are no content.
        key = f"{prefix}/small"
        headers = {f"x-amz-meta-stdchk-{name}": value for name, value in server.metadata(key).items()}
        server.ask(key, "PUT", b"x" + contents["small"][1:], **headers)
        other.down()
        other.up(benefactors=1, memory="64M")
        with pytest.raises(OSError):
            (other.mount / "small").read_bytes()
        assert [bad["path"] for bad in verify(other, check=False)["bad"]] == ["small"]
        other.down()
    finally:
        other.clean()


def test_drained_images_make_room_and_are_read_from_the_store(pool, store):
    pool.up(benefactors=1, memory="64M")
    contents = {}
    for number in range(5):
        name = f"app.N0.T{number}"
        contents[name] = write(pool.mount / name, 20 * MIB)
        drain(pool)
    pool.mount_by_hand("fresh")
    for name, content in contents.items():
        assert (pool.folder / "fresh" / name).read_bytes() == content
    pool.down()


def test_an_object_that_was_removed_or_replaced_is_not_safe_and_drained_again(pool, store):
    server, prefix = store
    pool.up(benefactors=1, memory="64M")
    content = write(pool.mount / "x", 100_000)
    drain(pool)
    assert is_safe(pool, "x")
    server.ask(f"{prefix}/x", "DELETE")
    assert not is_safe(pool, "x")
    drain(pool)
    assert server.read(f"{prefix}/x") == content
    server.ask(f"{prefix}/x", "PUT", b"other")
    assert not is_safe(pool, "x")
    drain(pool)
    assert server.read(f"{prefix}/x") == content
    pool.down()


FAULTS = {
    "500": [{"kind": "500", "count": 4}],
    "slow-down": [{"kind": "503", "count": 4, "method": "PUT"}],
    "reset": [{"kind": "reset", "count": 3}],
    "lost-answers": [{"kind": "lost-answer", "count": 1, "method": method} for method in ("PUT", "POST", "POST", "DELETE")],
    "slow": [{"kind": "slow", "count": 1, "method": "GET", "match": "stdchk-drain"}],
    "truncated": [{"kind": "truncated", "count": 3, "method": "GET", "match": "stdchk-drain/.*/"}],
    "damaged": [{"kind": "damaged", "count": 1, "method": "GET", "match": "stdchk-drain/.*/0"}],
    "bad-digest": [{"kind": "bad-digest", "count": 3, "method": "PUT"}],
    "expired": [{"kind": "expired", "count": 1}],
    # The answer to HEAD has no text, so a GET asks why.
    "expired-head": [{"kind": "expired", "count": 1, "method": method, "match": "/short$"} for method in ("HEAD", "GET")],
    "early": [{"kind": "early", "count": 2, "method": "POST", "match": "uploadId"}],
}


@pytest.mark.parametrize("kind", FAULTS)
def test_the_drain_survives_faults_of_the_store(pool, store, kind):
    server, prefix = store
    pool.up(benefactors=2, memory="64M")
    before = len(server.requests())
    server.faults(*FAULTS[kind])
    contents = {name: write(pool.mount / name, size) for name, size in {"long": 20 * MIB, "short": 70_000}.items()}
    drain(pool, seconds=90)
    for name, content in contents.items():
        assert server.read(f"{prefix}/{name}") == content
        assert is_safe(pool, name)
    assert not server.faults_left(), "\n".join(server.requests()[before:])
    if kind == "early":
        # The completion was repeated, not the drain.
        staged = [line for line in server.requests()[before:] if re.match("PUT .*/.stdchk-drain/.*/0", line)]
        assert len(staged) == len(set(staged)), staged
    assert not [key for key in server.keys(f"{prefix}/.stdchk-drain") if "upload" in key]
    assert not server.uploads()
    pool.down()


def test_a_store_that_hangs_delays_only_its_requests(pool, store):
    server, prefix = store
    pool.up(benefactors=1, memory="64M")
    server.faults({"kind": "hang", "count": 1, "method": "PUT", "match": "stdchk-drain/.*/"})
    content = write(pool.mount / "x", 100_000)
    assert (pool.mount / "x").read_bytes() == content
    drain(pool, seconds=60)
    assert server.read(f"{prefix}/x") == content
    pool.down()


KILLS = {
    "staging": {"method": "PUT", "match": "stdchk-drain/.*/"},
    "part": {"method": "PUT", "match": "partNumber=2"},
    "completion": {"method": "POST", "match": "uploadId"},
}


@pytest.mark.parametrize("moment", KILLS)
def test_a_killed_server_has_all_later(pool, store, moment):
    server, prefix = store
    front = Server("--front", "0", server.moto_port)
    pool.environment["STDCHK_DRAIN_ENDPOINT"] = front.endpoint
    try:
        pool.up(benefactors=2, memory="64M")
        front.faults({"kind": "hang", "count": 1, **KILLS[moment]})
        content = write(pool.mount / "x", 20 * MIB)
        pool.stdchk("drain", pool.mount)
        wait_until(lambda: not front.faults_left(), "the request", 60)
        front.process.kill()
        front.process.wait(60)
        front.process.stdin.close()
        # The pool goes on meanwhile, and calls nothing safe.
        later = write(pool.mount / "y", 50_000)
        assert (pool.mount / "x").read_bytes() == content and not is_safe(pool, "x")
        assert f"{prefix}/x" not in server.keys(prefix)
        time.sleep(3)
        front = Server("--front", front.port, server.moto_port)
        drain(pool, seconds=90)
        assert server.read(f"{prefix}/x") == content and server.read(f"{prefix}/y") == later
        assert is_safe(pool, "x") and is_safe(pool, "y")
        assert not server.uploads() and not server.keys(f"{prefix}/.stdchk-drain")
        assert not verify(pool)["bad"]
        pool.down()
    finally:
        if front.process.poll() is None:
            front.end()


def test_the_rate_of_the_drain_holds_for_a_store_too(pool, store):
    server, prefix = store
    pool.up("--drain-rate", "4M", "--drain-yields", "off", benefactors=1, memory="64M")
    content = write(pool.mount / "x", 16 * MIB)
    began = time.monotonic()
    drain(pool, seconds=60)
    # Two transfers count: to the staged pieces, and from the finishing benefactor to the object.
    assert time.monotonic() - began > 6
    assert server.read(f"{prefix}/x") == content
    pool.down()


def test_a_pool_drains_although_its_clock_differs_from_the_stores(pool, store):
    server, prefix = store
    server.faults({"kind": "skew"})
    try:
        pool.up(benefactors=1, memory="64M")
        content = write(pool.mount / "x", 1000)
        drain(pool)
        assert server.read(f"{prefix}/x") == content
        pool.down()
    finally:
        server.faults({"kind": "unskew"})


def test_what_a_store_says_is_not_believed(pool, store):
    server, prefix = store
    pool.up(benefactors=1, memory="64M")
    write(pool.mount / "x", 1000)
    drain(pool)
    server.faults({"kind": "foreign", "count": 1, "method": "GET", "match": "list-type"})
    done = pool.stdchk("verify", pool.drain, check=False)
    assert done.returncode == 2 and "cannot be understood" in done.stderr, done.stderr
    server.faults({"kind": "forged", "count": 1, "method": "PUT", "match": "stdchk-drain"})
    write(pool.mount / "y", 1000)
    drain(pool, "y")
    logs = "\n".join(file.read_text(errors="replace") for file in pool.runtime.rglob("*.log"))
    assert "first line?second line?[2J" in logs and "\nsecond line" not in logs
    pool.down()
    # The object has no checksums. Its bytes must come from the requested range.
    content = os.urandom(100_000)
    server.ask(f"{prefix}/foreign", "PUT", content)
    pool.up(benefactors=1, memory="64M")
    server.faults({"kind": "shifted", "count": 1, "method": "GET", "match": "/foreign"})
    try:
        assert (pool.mount / "foreign").read_bytes() == content
    except OSError:
        pass
    assert not server.faults_left()
    pool.down()


def test_names_that_are_no_text_are_refused(pool, store):
    pool.up(benefactors=1, memory="64M")
    for name in (b"caf\xe9", b"\xed\xa0\x80"):
        with pytest.raises(OSError) as refused:
            open(os.path.join(os.fsencode(pool.mount), name), "wb")
        assert refused.value.errno == errno.EINVAL
    write(pool.mount / "caf\u00e9", 10)
    drain(pool)
    pool.down()


@pytest.mark.parametrize("service", ["instance", "container"])
def test_temporary_credentials_of_the_host_are_renewed(pool, store, service):
    server, prefix = store
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        del pool.environment[name]
    # The proxy does not exist. A request for this second name of the host would go to the proxy.
    host = server.endpoint.replace("127.0.0.1", "localhost")
    pool.environment.update(http_proxy="http://127.0.0.1:1", all_proxy="http://127.0.0.1:1", no_proxy="127.0.0.1",
                            AWS_EC2_METADATA_SERVICE_ENDPOINT=host)
    if service == "container":
        pool.environment.update(AWS_CONTAINER_CREDENTIALS_FULL_URI=f"{host}/-/container",
                                AWS_CONTAINER_AUTHORIZATION_TOKEN="of the container")
    refused = pool.stdchk("up", "--mount", pool.mount, "--benefactors", 1, "--memory", "64M", "--drain", pool.drain,
                          check=False)
    assert "the services of this host" in refused.stderr
    server.lifetime(8)
    try:
        begun, ended_uses = server.issued()
        pool.up(benefactors=1, memory="64M")
        for number in range(4):
            content = write(pool.mount / f"x{number}", 1000)
            drain(pool)
            assert server.read(f"{prefix}/x{number}") == content
            time.sleep(3)
        issued, after = server.issued()
        assert issued - begun >= 4
        assert after == ended_uses  # renewed before their end
        pool.down()
    finally:
        server.lifetime(0)


def test_a_name_server_that_hangs_holds_up_for_its_time_only(pool, store):
    del store
    config = pool.folder / "resolv.conf"
    config.write_text("nameserver 127.0.0.2\noptions timeout:30 attempts:2\n")
    environment = pool.environment | {"STDCHK_DRAIN_ENDPOINT": "http://store.invalid"}
    script = ('ip link set lo up && mount --make-rprivate / && mount --bind "$1" /etc/resolv.conf && shift && '
              'python3 -c "import socket, sys, subprocess; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); '
              's.bind((\'127.0.0.2\', 53)); sys.exit(subprocess.call(sys.argv[1:]))" "$@"')
    begun = time.monotonic()
    done = subprocess.run(["unshare", "-mn", "sh", "-c", script, "sh", config, BIN / "stdchk", "up", "--benefactors", "1",
                           "--memory", "64M", "--mount", pool.mount, "--drain", pool.drain],
                          env=os.environ | environment, capture_output=True, text=True, timeout=120)
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip("needs namespaces of mounts and networks")
    assert done.returncode != 0 and "store" in done.stderr
    assert time.monotonic() - begun < 25


def test_uploads_that_a_crash_has_left_are_ended_by_the_next_pool(pool, store):
    server, prefix = store
    pool.up(benefactors=1, memory="64M")
    # The completion never comes, so the upload stays when all processes are killed.
    server.faults({"kind": "hang", "count": 100, "method": "POST", "match": "uploadId"})
    write(pool.mount / "long", 20 * MIB)
    pool.stdchk("drain", pool.mount)
    wait_until(lambda: server.uploads() == [f"{prefix}/long"], "the upload")
    for role in ("benefactor", "manager"):
        pool.kill(role)
    pool.down(check=False)
    server.faults()
    assert server.uploads() == [f"{prefix}/long"]
    pool.up(benefactors=1, memory="64M")
    assert server.uploads() == []
    assert not server.keys(f"{prefix}/.stdchk-drain")
    assert not (pool.mount / "long").exists()
    pool.down()


def test_no_log_and_no_command_line_has_the_secret(pool, store):
    pool.up("--log-level", "debug", benefactors=1, memory="64M")
    write(pool.mount / "x", 1000)
    drain(pool)
    pids = [member["pid"] for member in pool.record["members"]]
    for pid in pids:
        assert SECRET.encode() not in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    for file in pool.runtime.rglob("*"):
        if file.is_file():
            assert SECRET.encode() not in file.read_bytes(), file
    pool.down()


def test_the_commands_of_the_page(pool, store):
    server, _ = store
    page = (HERE.parent.parent / "docs/guide/object-stores.md").read_text()
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 3
    environment = {name: value for name, value in pool.environment.items()
                   if not name.startswith(("AWS_", "STDCHK_DRAIN"))}
    environment.update(KEY="TESTKEY", SECRET=SECRET, ENDPOINT=server.endpoint, MOUNT=str(pool.mount),
                       PATH=f"{BIN}:{os.environ['PATH']}")
    sum_before = 'cksum $MOUNT/app.N0.T1\n'
    first = blocks[0].replace("stdchk drain", sum_before + "stdchk drain", 1)
    done = subprocess.run(["bash", "-euc", first + blocks[1] + blocks[2]], env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    sums = re.findall(r"^(\d+ 20971520) ", done.stdout, re.MULTILINE)
    assert len(sums) == 3 and len(set(sums)) == 1, done.stdout
    assert "1 files, 0 bad" in done.stdout


def test_up_says_what_is_wrong_with_the_store(pool, store):
    server, prefix = store

    def refusal(**changes):
        pool.environment.update(changes)
        done = pool.stdchk("up", "--mount", pool.mount, "--benefactors", 1, "--memory", "64M", "--drain", pool.drain,
                           check=False)
        assert done.returncode != 0
        return done.stdout + done.stderr

    assert "SignatureDoesNotMatch" in (text := refusal(AWS_SECRET_ACCESS_KEY="wrong-secret"))
    assert "wrong-secret" not in text
    assert "There are no credentials" in refusal(AWS_SECRET_ACCESS_KEY="")
    pool.environment.update(AWS_SECRET_ACCESS_KEY=SECRET)
    pool.drain = "s3://no-such-bucket/x"
    assert "make the bucket" in refusal()
    pool.drain = "s3://bucket/../x"
    assert "write s3://BUCKET/PREFIX" in refusal()
    pool.drain = f"s3://{BUCKET}/{prefix}"
    assert "The endpoint of the object store must be" in refusal(STDCHK_DRAIN_ENDPOINT="http://key:secret@host")


def stage_in(pool, *options, wrong=()):
    """Returns the report. `wrong` are the names of the files that must be bad."""
    done = pool.stdchk("stage-in", "--json", *options, check=False, seconds=180)
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout)
    found["faults"] = {pathlib.Path(bad["path"]).name: bad["fault"] for bad in found["bad"]}
    assert found["faults"].keys() == set(wrong), found
    assert done.returncode == (1 if wrong else 0)
    return found


def newest_set(pool):
    """Returns the name of the set that `latest` names."""
    sets = json.loads(pool.stdchk("set", "list", "--json", pool.mount).stdout)["sets"]
    return [one["set"] for one in sets if one["latest"]]


def read_keys(server, before):
    """Returns the keys of the files whose bytes were read since then, below the prefix."""
    lines = [line.split(" ")[1] for line in server.requests()[before:] if line.startswith("GET ")]
    keys = {line.split("/", 3)[3] for line in lines if "?" not in line and ".stdchk" not in line}
    return keys - {"run/first", "run/latest"}


def without_drain(folder, server):
    """Returns a pool that may ask the store, and drains nowhere."""
    pool = Pool(folder)
    give_credentials(pool, server)
    pool.environment["AWS_ENDPOINT_URL_S3"] = pool.environment.pop("STDCHK_DRAIN_ENDPOINT")
    return pool


def drained_run(pool):
    """Drains two sets of two images, a link, and folders; then ends the pool. Returns the contents."""
    pool.up("--policy", "images=2", benefactors=2, memory="256M")
    run_folder = pool.mount / "run"
    run_folder.mkdir(mode=0o711)
    (run_folder / "empty").mkdir(mode=0o750)
    contents = {}
    for step in (1, 2):
        for rank in (0, 1):
            name = f"app.N{rank}.T{step}"
            contents[name] = os.urandom((1 if step == 1 else 17) * MIB + rank)
            if rank == 1 and step == 2:  # a hole
                contents[name] = contents[name][:MIB] + bytes(8 * MIB) + contents[name][9 * MIB:]
            (run_folder / name).write_bytes(contents[name])
    os.chmod(run_folder / "app.N0.T2", 0o640)
    os.chown(run_folder / "app.N0.T2", 1234, 5678)
    os.symlink("app.N0.T1", run_folder / "first")
    drain(pool, seconds=180)
    wait_until((run_folder / "latest").is_symlink, "the link of the newest set")
    drain(pool, seconds=180)
    status = {name: (run_folder / name).lstat() for name in [*contents, "first", "empty"]}
    pool.down()
    return contents, status


def test_stage_in_loads_the_newest_set_from_the_store(pool, store, tmp_path):
    server, prefix = store
    contents, status = drained_run(pool)
    other = without_drain(tmp_path, server)
    try:
        other.up("--policy", "images=2", benefactors=2, memory="256M", drain=False)
        server.faults({"kind": "truncated", "count": 2, "method": "GET", "match": "T2"},
                      {"kind": "damaged", "count": 1, "method": "GET", "match": "T2"},
                      {"kind": "503", "count": 2, "method": "GET", "match": "T2"})
        newest = ["app.N0.T2", "app.N1.T2"]
        found = stage_in(other, "--to", other.mount, f"{pool.drain}/run")
        assert not server.faults_left()
        assert (found["files"], found["links"]) == (2, 0)
        assert found["bytes"] == found["checked_bytes"] == sum(len(contents[name]) for name in newest)
        assert found["present_bytes"] == 0
        for name in newest:
            there = (other.mount / name).stat()
            assert (other.mount / name).read_bytes() == contents[name]
            for of in ("st_mode", "st_uid", "st_gid", "st_mtime_ns"):
                assert getattr(there, of) == getattr(status[name], of), (name, of)
        assert (other.mount / "app.N1.T2").stat().st_blocks * 512 < 10 * MIB
        assert not (other.mount / "app.N0.T1").exists()
        wait_until((other.mount / "latest").is_symlink, "the link, which the manager moves by itself")
        # Bytes in the pool are not fetched again.
        before = len(server.requests())
        found = stage_in(other, "--all", "--to", other.mount, f"{pool.drain}/run")
        older = [len(contents[name]) for name in ("app.N0.T1", "app.N1.T1")]
        assert found["present_bytes"] == found["bytes"] - sum(older)
        assert read_keys(server, before) == {"run/app.N0.T1", "run/app.N1.T1"}
        # The images of the first set were written later, and are older.
        wait_until(lambda: newest_set(other) == ["app.*.T2"], "the newest set of all")
        assert os.readlink(other.mount / "first") == "app.N0.T1" and found["links"] == 1
        assert (other.mount / "first").lstat().st_mtime_ns == status["first"].st_mtime_ns
        assert (other.mount / "empty").stat().st_mode & 0o7777 == 0o750
        assert (other.mount / "empty").stat().st_mtime_ns == status["empty"].st_mtime_ns
        for name, content in contents.items():
            assert (other.mount / name).read_bytes() == content
        other.down()
    finally:
        other.clean()


def test_stage_in_shows_no_file_whose_object_is_damaged(pool, store, tmp_path):
    server, prefix = store
    contents, _ = drained_run(pool)

    def key(name):
        return f"{prefix}/run/{name}"

    headers = {name: {f"x-amz-meta-stdchk-{of}": value for of, value in server.metadata(key(name)).items()}
               for name in contents}
    changed = bytearray(contents["app.N0.T2"])
    changed[16 * MIB + 7] ^= 1
    server.ask(key("app.N0.T2"), "PUT", bytes(changed), **headers["app.N0.T2"])
    server.ask(key("app.N1.T1"), "PUT", contents["app.N1.T1"][:-5], **headers["app.N1.T1"])
    server.ask(key("app.N0.T1"), "PUT", contents["app.N0.T1"],
               **headers["app.N0.T1"] | {"x-amz-meta-stdchk-crc32c": "no checksums"})
    server.ask(f"{prefix}/run/../escape", "PUT", b"no path")
    server.ask(f"{prefix}/run/plain", "PUT", b"of no pool")
    other = without_drain(tmp_path, server)
    try:
        other.up("--policy", "images=2", benefactors=2, memory="256M", drain=False)
        bad = ["app.N0.T1", "app.N0.T2", "app.N1.T1"]
        found = stage_in(other, "--all", pool.drain, wrong=bad)
        assert found["faults"] == {"app.N0.T1": "has an entry in its metadata that is damaged",
                                   "app.N0.T2": "is not what its metadata says",
                                   "app.N1.T1": "is not what its metadata says"}
        for name in bad:
            assert not (other.mount / "run" / name).exists()
        assert not (other.mount / "escape").exists()
        assert (other.mount / "run/app.N1.T2").read_bytes() == contents["app.N1.T2"]
        assert (other.mount / "run/plain").read_bytes() == b"of no pool" and found["unlisted"] == 1
        # The images are repaired in the store. Only these are fetched.
        for name in bad:
            server.ask(key(name), "PUT", contents[name], **headers[name])
        before = len(server.requests())
        stage_in(other, "--all", pool.drain)
        assert read_keys(server, before) == {"run/plain", *(f"run/{name}" for name in bad)}
        for name in bad:
            assert (other.mount / "run" / name).read_bytes() == contents[name]
        none = other.stdchk("stage-in", "--set", "none.*.T1", pool.drain, check=False)
        assert none.returncode == 2 and "no file in" in none.stderr
        other.down()
    finally:
        other.clean()


def test_stage_in_says_what_the_store_did(pool, store, tmp_path):
    server, prefix = store
    contents, _ = drained_run(pool)
    other = without_drain(tmp_path, server)
    try:
        other.up("--policy", "images=2", benefactors=2, memory="256M", drain=False)
        to = other.mount
        for fault, said in {"redirect": "answers 307", "shifted": "another range"}.items():
            server.faults({"kind": fault, "count": 1, "method": "GET", "match": "app.N1.T2"})
            found = stage_in(other, "--to", to, f"{pool.drain}/run", wrong=["app.N1.T2"])
            assert said in found["faults"]["app.N1.T2"]
            assert not server.faults_left() and not (to / "app.N1.T2").exists()
        # The store answers no request for the rest of a file.
        server.faults({"kind": "503", "count": 10**6, "method": "GET", "match": "app.N1.T2"})
        begun = time.monotonic()
        found = stage_in(other, "--to", to, f"{pool.drain}/run", wrong=["app.N1.T2"])
        assert "repeated until the deadline" in found["faults"]["app.N1.T2"]
        assert time.monotonic() - begun < 100
        assert not (to / "app.N1.T2").exists()
        assert (to / "app.N0.T2").read_bytes() == contents["app.N0.T2"]
        # The store refuses the listing, then the look at an object.
        for match in ("list-type", "app.N0.T2"):
            server.faults({"kind": "forged", "count": 2, "match": match})
            refused = other.stdchk("stage-in", f"{pool.drain}/run", check=False)
            assert refused.returncode == 2 and "AccessDenied" in refused.stderr
        server.faults()
        refused = other.stdchk("stage-in", "s3://no-such-bucket/run", check=False)
        assert refused.returncode == 2 and "NoSuchBucket" in refused.stderr
        refused = other.stdchk("stage-in", f"{pool.drain}/none", check=False)
        assert refused.returncode == 2 and "no file in" in refused.stderr
        stage_in(other, "--to", to, f"{pool.drain}/run")
        assert (to / "app.N1.T2").read_bytes() == contents["app.N1.T2"]
        other.down()
    finally:
        other.clean()


def test_what_the_pool_has_drained_to_the_store_is_loaded_and_stays_drained(pool, store):
    server, prefix = store
    contents, _ = drained_run(pool)
    pool.up("--policy", "images=2", benefactors=2, memory="256M")

    def only_drained(name):
        return json.loads(pool.stdchk("stat", "--json", pool.mount / "run" / name).stdout)["bytes_only_drained"]

    assert only_drained("app.N0.T2") > 0
    before = len(server.requests())
    found = stage_in(pool, f"{pool.drain}/run")
    assert found["files"] == 2 and only_drained("app.N0.T2") == only_drained("app.N1.T2") == 0
    assert only_drained("app.N0.T1") > 0
    drain(pool)
    assert not [line for line in server.requests()[before:] if line.startswith("PUT ") and "app." in line]
    assert is_safe(pool, "run/app.N0.T2")
    before = len(server.requests())
    found = stage_in(pool, f"{pool.drain}/run")
    assert found["present_bytes"] == found["bytes"] and not read_keys(server, before)
    for name in ("app.N0.T2", "app.N1.T2"):
        assert (pool.mount / "run" / name).read_bytes() == contents[name]
    pool.down()
