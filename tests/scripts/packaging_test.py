"""Tests what `meson install` installs: the packages divide it among them, a pool starts from it, and the examples for
Kubernetes use options that exist."""

import fnmatch
import http.server
import json
import os
import pathlib
import re
import shutil
import subprocess
import sysconfig
import threading
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release"
BIN = pathlib.Path(os.environ.get("STDCHK_BIN", ROOT / "build" / "bin"))
PATIENCE = int(os.environ.get("STDCHK_TEST_PATIENCE", "1"))
# Files that no package contains: the module serves installations with a prefix.
NOT_PACKAGED = ("usr/share/stdchk/modulefiles/stdchk.modulefile",)
MACROS = {
    "_bindir": "usr/bin", "_libdir": "usr/lib/*", "_includedir": "usr/include", "_datadir": "usr/share",
    "_mandir": "usr/share/man", "python3_sitelib": "usr/lib/python3*", "version": "*",
}
pytestmark = pytest.mark.skipif(not (BUILD / "build.ninja").exists(), reason="not built: build/release")


def installed_files():
    """Paths below the root when the prefix is /usr."""
    text = subprocess.run(["meson", "introspect", str(BUILD), "--installed"], check=True, capture_output=True,
                          text=True).stdout
    # Without dpkg-dev, meson puts libraries into lib64 on Debian, too.
    libraries = f"usr/lib/{sysconfig.get_config_var('MULTIARCH')}/"
    return [path.replace("/usr/local/", "usr/").replace("usr/lib64/", libraries) for path in json.loads(text).values()]


def matches(path, pattern):
    """True when a pattern of debhelper or rpm matches a path. The pattern of a folder matches all paths below it."""
    return fnmatch.fnmatch(path, pattern) or fnmatch.fnmatch(path, pattern + "/*")


def check_lists(packages):
    """Checks that each installed file is in one package, and that each pattern matches a file."""
    files = [path for path in installed_files() if path not in NOT_PACKAGED]
    for path in files:
        holders = [name for name, patterns in packages.items() if any(matches(path, each) for each in patterns)]
        assert len(holders) == 1, f"{path} is in the packages {holders}"
    for name, patterns in packages.items():
        for pattern in patterns:
            if "python3" not in pattern:  # only with -Dpython=enabled
                assert any(matches(path, pattern) for path in files), f"{name}: nothing matches {pattern}"


def test_debian_packages_divide_all_installed_files():
    packages = {}
    for path in (ROOT / "debian").glob("*.install"):
        # The file system of the tests has no links of libraries by architecture.
        packages[path.stem] = path.read_text().split()
    control = (ROOT / "debian" / "control").read_text()
    names = set(re.findall(r"^Package: (.*)$", control, re.MULTILINE))
    assert set(packages) == names - {"stdchk"}
    check_lists(packages)


def test_rpm_packages_divide_all_installed_files():
    packages, files = {}, None
    for line in (ROOT / "packaging" / "rpm" / "stdchk.spec").read_text().splitlines():
        if line.startswith("%files"):
            files = packages.setdefault(line, [])
        elif line.startswith("%changelog"):
            files = None
        elif files is not None and line and not line.startswith(("%doc", "%license", "%dir")):
            files.append(re.sub(r"%\{(\w+)\}", lambda found: MACROS[found[1]], line).replace(".1*", ".1").replace(".3*", ".3"))
    check_lists({name: patterns for name, patterns in packages.items() if patterns})


def test_versions_are_those_of_the_project():
    version = re.search(r"version : '(.*)'", (ROOT / "meson.build").read_text())[1]
    assert (ROOT / "debian" / "changelog").read_text().startswith(f"stdchk ({version})")
    assert f"\nVersion:        {version}\n" in (ROOT / "packaging" / "rpm" / "stdchk.spec").read_text()


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder of a complete installation. The prefix is /usr/local."""
    folder = tmp_path_factory.mktemp("installed")
    done = subprocess.run(["meson", "install", "-C", str(BUILD), "--no-rebuild", "--destdir", str(folder)],
                          capture_output=True, text=True)
    if "could not be found" in done.stdout + done.stderr:
        pytest.skip("not all is built")
    assert done.returncode == 0, done.stdout + done.stderr
    yield folder / "usr" / "local"
    shutil.rmtree(folder)


def test_a_pool_starts_from_what_is_installed(installed, tmp_path):
    if not os.access("/dev/fuse", os.W_OK):
        pytest.skip("/dev/fuse cannot be opened here")
    environment = {"PATH": f"{installed}/bin:/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}

    def stdchk(*words):
        return subprocess.run(["stdchk", *map(str, words)], env=environment, check=True, capture_output=True, text=True,
                              timeout=60 * PATIENCE)

    mount, drain = tmp_path / "mount", tmp_path / "drain"
    stdchk("up", "--benefactors", 2, "--memory", "64M", "--mount", mount, "--drain", drain)
    try:
        image = os.urandom(3 << 20)
        (mount / "app.N0.T1").write_bytes(image)
        assert (mount / "app.N0.T1").read_bytes() == image
        # Programs without a mount, by the library and the variables of a pool that others have started.
        (record,) = tmp_path.glob("stdchk/pool*/pool.json")
        others = environment | {
            "STDCHK_MANAGER": json.loads(record.read_text())["manager_address"],
            "STDCHK_SECRET_FILE": str(record.parent / "secret"), "XDG_RUNTIME_DIR": str(tmp_path / "none"),
            "HOME": "/nonexistent", "TMPDIR": str(tmp_path),
        }
        (library,) = installed.glob("lib*/**/libstdchk-preload.so")
        preloaded = others | {"LD_LIBRARY_PATH": str(library.parent), "LD_PRELOAD": str(library),
                              "STDCHK_PREFIX": "/stdchk"}
        shown = subprocess.run(["cat", "/stdchk/app.N0.T1"], env=preloaded, capture_output=True, timeout=60 * PATIENCE)
        assert shown.stdout == image, shown.stderr
    finally:
        stdchk("down", "--drain", mount)
    assert (drain / "app.N0.T1").read_bytes() == image


def test_bash_completes_subcommands_and_options(installed):
    script = f"""source {installed}/share/bash-completion/completions/stdchk
        COMP_WORDS=(stdchk dr) COMP_CWORD=1; _stdchk; echo "${{COMPREPLY[@]}}"
        COMP_WORDS=(stdchk drain --wi) COMP_CWORD=2; _stdchk; echo "${{COMPREPLY[@]}}" """
    done = subprocess.run(["bash", "-c", script], env={"PATH": f"{installed}/bin:/usr/bin:/bin"}, capture_output=True,
                          text=True)
    assert done.stdout.split("\n")[:2] == ["drain", "--within"], done.stderr


def test_the_scripts_of_sites_find_each_other(installed):
    for script in ("slurm/prolog", "slurm/epilog", "pbs/prologue", "pbs/epilogue"):
        text = (installed / "share/stdchk" / script).read_text()
        assert "../site" in text and os.access(installed / "share/stdchk" / script, os.X_OK)
    assert os.access(installed / "share/stdchk/site", os.X_OK)


def test_a_module_finds_the_programs(installed, tmp_path):
    command = shutil.which("modulecmd") or "/usr/lib/x86_64-linux-gnu/modulecmd.tcl"
    if not os.path.exists(command):
        pytest.skip("Environment Modules are not installed (environment-modules)")
    folder = tmp_path / "modulefiles" / "stdchk"
    folder.mkdir(parents=True)
    shutil.copy(installed / "share/stdchk/modulefiles/stdchk.modulefile", folder / "0.1.0")
    words = ["tclsh", command] if command.endswith(".tcl") else [command]
    done = subprocess.run([*words, "bash", "load", "stdchk"], capture_output=True, text=True,
                          env={"PATH": "/usr/bin:/bin", "MODULEPATH": str(folder.parent), "HOME": str(tmp_path)})
    assert re.search(r"\bPATH='?/usr/local/bin:", done.stdout), done.stderr
    assert "STDCHK_ROOT=/usr/local" in done.stdout.replace("'", "")
    assert "/usr/local/share/man" in done.stdout


def commands_of(node):
    """Yields all command lines in a document of Kubernetes."""
    if isinstance(node, dict):
        words = list(node.get("command", [])) + list(node.get("args", []))
        if words and all(isinstance(word, str) for word in words):
            yield " ".join(words)
        for each in node.values():
            yield from commands_of(each)
    if isinstance(node, list):
        for each in node:
            yield from commands_of(each)


@pytest.mark.skipif(not (BIN / "stdchk").exists(), reason="not built: stdchk")
def test_options_in_the_examples_for_kubernetes_exist():
    yaml = pytest.importorskip("yaml")
    helps = {}
    for path in (ROOT / "packaging/kubernetes").glob("*.yaml"):
        lines = [line for document in yaml.safe_load_all(path.read_text()) for line in commands_of(document)]
        assert lines
        for line in lines:
            for found in re.finditer(r"(stdchk(?: member-key|-\w+)) ((?:[^>&|\n]|\\\n)*)", line.replace("\\\n", " ")):
                program = found[1]
                if program not in helps:
                    words = program.split()
                    helps[program] = subprocess.run([BIN / words[0], *words[1:], "--help"], check=True,
                                                    capture_output=True, text=True).stdout
                for option in re.findall(r"--[a-z-]+", found[2]):
                    assert option in helps[program], f"{path.name}: {program} has no {option}"
    assert set(helps) == {"stdchk-manager", "stdchk-benefactor", "stdchk-mount", "stdchk member-key"}


class Server(http.server.BaseHTTPRequestHandler):
    """The API server, for one kind of request."""

    patches = []

    def do_PATCH(self):
        assert self.headers["Authorization"] == "Bearer token"
        assert self.headers["Content-Type"] == "application/merge-patch+json"
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.patches.append((self.path, json.loads(body)["metadata"]["annotations"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


def test_the_side_car_tells_the_time_of_the_safe_set(tmp_path):
    fake = tmp_path / "stdchk"
    fake.write_text("#!/bin/sh\nprintf '%s\\n' '{' ' \"pool\": {' '  \"safe_set\": {' '   \"time\": \"t\",' "
                    "'   \"time_ns\": 1764099600123456789' '  }' ' }' '}'\n")
    fake.chmod(0o755)
    (tmp_path / "token").write_text("token")
    (tmp_path / "ca.crt").write_text("")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    process = subprocess.Popen(
        [ROOT / "packaging/kubernetes/safe-set"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "ACCOUNT": str(tmp_path), "POD": "heat-1", "NAMESPACE": "stdchk",
             "KUBERNETES_URL": f"http://127.0.0.1:{server.server_port}", "no_proxy": "*"})
    try:
        end = time.monotonic() + 20 * PATIENCE
        while not Server.patches and time.monotonic() < end:
            time.sleep(0.05)
    finally:
        process.terminate()
        process.wait(20)
        server.shutdown()
    assert Server.patches == [
        ("/api/v1/namespaces/stdchk/pods/heat-1", {"stdchk.io/safe-set-time": "1764099600"})]
