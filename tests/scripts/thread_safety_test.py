"""Tests that scripts/thread-safety finds code that uses a guarded member without its lock."""

import importlib.machinery
import importlib.util
import json
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release"

CODE = """
#include "core/base/mutex.h"
namespace stdchk {
class Counter {
 public:
  void count() { HOLD ++count_; }

 private:
  Mutex mutex_;
  int count_ STDCHK_GUARDED_BY(mutex_) = 0;
};
void use() { Counter().count(); }
}  // namespace stdchk
"""


@pytest.fixture(scope="module")
def script():
    loader = importlib.machinery.SourceFileLoader("thread_safety", str(ROOT / "scripts" / "thread-safety"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("thread_safety", loader))
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def checked(script, tmp_path_factory):
    folder = tmp_path_factory.mktemp("thread-safety")
    commands = json.loads((BUILD / "compile_commands.json").read_text(encoding="utf-8"))
    command = next(each["command"] for each in commands if each["file"].endswith("transport/rpc.cpp"))
    headers = script.compile_headers(BUILD, command, folder)

    def check(hold):
        source = folder / "counter.cpp"
        source.write_text(CODE.replace("HOLD", hold), encoding="utf-8")
        return script.check(BUILD, source, command, headers)

    return check


def test_a_guarded_member_used_without_its_lock_is_refused(checked):
    code, text = checked("")
    assert code != 0 and "requires holding mutex 'mutex_'" in text


def test_a_guarded_member_used_with_its_lock_is_accepted(checked):
    assert checked("const MutexLock lock(mutex_);") == (0, "")


def test_the_files_with_the_locks_are_looked_at(script):
    for name in ("client/net/manager_client.h", "fuse/file_requests.cpp", "fork/pager/registry.cpp"):
        path = ROOT / name
        expected = name != "client/net/manager_client.h"
        assert (script.names_lock(path) or script.header_names_lock(path)) == expected
