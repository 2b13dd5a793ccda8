"""Tests that scripts/layers refuses includes that go up: between folders, between rooms, and to the files of a folder itself."""

import pathlib
import subprocess

import pytest

LAYERS = pathlib.Path(__file__).resolve().parents[2] / "scripts/layers"


def complaints(folder, name, header):
    """Returns what scripts/layers prints about a repository whose only file is `name`, which includes `header`."""
    path = folder / name
    path.parent.mkdir(parents=True)
    path.write_text(f'#include "{header}"\n')
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True, timeout=20)
    subprocess.run(["git", "add", "."], cwd=folder, check=True, timeout=20)
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
