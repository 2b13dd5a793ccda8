"""Tests that scripts/layers refuses includes that go up: between folders, between rooms, and to the files of a folder itself."""

import pathlib
import subprocess

import pytest

LAYERS = pathlib.Path(__file__).resolve().parents[2] / "scripts/layers"


def complaints(folder, name, header, listed=None):
    """Returns what scripts/layers prints about a repository where `name` includes `header`. Its folder may have a README
    that lists `listed`."""
    path = folder / name
    path.parent.mkdir(parents=True)
    if listed is not None:
        (path.parent / "README.md").write_text(f"# A room\n\n{listed}\n")
    path.write_text(f'#include "{header}"\n')
    for words in (("init", "-q"), ("add", ".")):
        subprocess.run(["git", *words], cwd=folder, check=True, timeout=20)
    return subprocess.run([LAYERS], cwd=folder, capture_output=True, text=True, timeout=60).stdout


@pytest.mark.parametrize("name, header", [
    ("core/base/error.cpp", "transport/transport.h"),
    ("manager/state/file.cpp", "manager/service/service.h"),
    ("transport/secure/keyring.h", "transport/transport.h"),
    ("transport/transport.h", "transport/tcp/tcp.h"),
    ("transport/ofi/connection.h", "transport/verbs/device.h"),
    ("transport/shm/link.cpp", "transport/choice/factory.h"),
    ("client/api/filesystem.h", "client/main.h"),
])
def test_an_include_that_goes_up_or_sideways_is_refused(tmp_path, name, header):
    assert f"{name}:1:" in complaints(tmp_path, name, header)


@pytest.mark.parametrize("name, header", [
    ("transport/transport.h", "transport/secure/keyring.h"),
    ("transport/verbs/device.h", "transport/transport.h"),
    ("transport/verbs/device.h", "transport/verbs/region.h"),
    ("transport/choice/factory.cpp", "transport/tcp/tcp.h"),
    ("client/main.cpp", "client/library/stdchk.h"),
])
def test_an_include_that_goes_down_or_stays_in_its_room_is_accepted(tmp_path, name, header):
    assert complaints(tmp_path, name, header) == ""


def unlike(folder, listed, header, name="client/write/session.cpp"):
    return complaints(folder, name, header, listed)


@pytest.mark.parametrize("listed, header", [
    ("May include: core/base/, client/api.", "core/values/types.h"),
    ("May include: core/, transport/transport.h.", "transport/rpc.h"),
    ("May include: core/, `net/` and below. Not read/.", "client/read/reader.h"),
    ("May include: core/, the files of transport/.", "transport/secure/ticket.h"),
    ("May include: nothing of other rooms.", "core/base/log.h"),
])
def test_an_include_that_the_readme_does_not_list_is_refused(tmp_path, listed, header):
    assert f"client/write/session.cpp:1: client/write/README.md does not list {header}" in unlike(tmp_path, listed, header)


@pytest.mark.parametrize("listed, header", [
    ("May include: core/{base,values}, client/api.", "core/values/types.h"),
    ("May include: core/, transport/{transport,rpc}.h and the C library.", "transport/rpc.h"),
    ("Threads: any. May include: core/,\nread/ and below. Begin here.", "client/net/shared.h"),
    ("May include: the files of transport/.", "transport/rpc.h"),
    ("May include: the rooms below.", "client/read/reader.h"),
    ("May include: nothing.", "client/write/window.h"),
])
def test_an_include_that_the_readme_lists_is_accepted(tmp_path, listed, header):
    assert unlike(tmp_path, listed, header) == ""


def test_a_readme_that_lists_nothing_is_found_unless_its_folder_is_for_tests(tmp_path):
    assert "client/write/README.md: has no sentence" in unlike(tmp_path / "a", "Begin here.", "core/base/log.h")
    assert unlike(tmp_path / "b", "Begin here.", "core/base/log.h", "tests/sim/engine.cpp") == ""
