"""Tests the benchmark sections `torch` and `preload`: their rows are complete, and name the right ceilings."""

import contextlib
import json
import pathlib
import subprocess
import sys
import types

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import programs  # noqa: E402
from report import Report  # noqa: E402

PLACES = ("tmpfs", "disk")
SAVES = {programs.COPY: (1.0, None), "stdchk: save": (1.25, 1000), "stdchk: save, 5 % changed": (1.0, 1051),
         "stdchk: async_save first (until it returns)": (1.5, None), "stdchk: async_save again (until it returns)": (1.1, None),
         "stdchk:   until it is saved": (0.5, 1102), programs.LOAD: (2.0, None), programs.READ: (1.8, None)}
SAVES |= {f"{place}: {what}": (3.0, None) for place in PLACES
          for what in ("save by torch's writer", "save by FsspecWriter", "torch.save", "safetensors", "load by torch's reader")}


def bench_with(report, tmp_path):
    @contextlib.contextmanager
    def pool(*arguments, memory_mib):
        assert arguments == ("--naming", "off") and memory_mib > 0
        (tmp_path / "pool.json").write_text('{"manager_address": "host:1", "secret_file": "/secret"}')
        (tmp_path / "mount").mkdir()
        yield tmp_path / "mount", tmp_path, 0.0

    return types.SimpleNamespace(report=report, size_mib=1024, rounds=2, bin=tmp_path / "bin", scratch=tmp_path, pool=pool)


def test_the_rows_of_torch_are_those_that_the_page_must_have(monkeypatch, tmp_path, capsys):
    report = Report(programs.TORCH_AIMS, "today.", programs.TORCH_RATIOS, programs.TORCH_FIGURES)
    monkeypatch.setattr(programs, "torch_round", lambda *_: SAVES)
    monkeypatch.setattr(programs.subprocess, "run",
                        lambda *_, **__: subprocess.CompletedProcess([], 0, stdout="/python\n", stderr=""))
    report.section("PyTorch", programs.torch_text(1024))
    programs.torch(bench_with(report, tmp_path))
    report.check_complete()
    rows = {row.name: row for row in report.rows}
    assert rows["stdchk: save"].ratio.median == 1.25 and not rows["stdchk: save"].missed
    assert rows[programs.LOAD].ratio.median == pytest.approx(0.9) and not rows[programs.LOAD].missed
    assert rows["bytes stored by a save, 5 % changed"].figure.median == 51
    assert "about 6 minutes" in capsys.readouterr().out


def test_without_torch_the_section_says_why_it_was_not_run(monkeypatch, tmp_path):
    report = Report(programs.TORCH_AIMS, "today.", programs.TORCH_RATIOS, programs.TORCH_FIGURES)
    monkeypatch.setattr(programs.subprocess, "run",
                        lambda *_, **__: subprocess.CompletedProcess([], 1, stdout="", stderr="first\nno network\n"))
    report.section("PyTorch", programs.torch_text(1024))
    programs.torch(bench_with(report, tmp_path))
    assert not report.was_run and report.text == "NOT RUN: torch could not be installed: no network"


def test_the_rows_of_preload_compare_the_library_with_mount_and_tmpfs(monkeypatch, tmp_path):
    report = Report(programs.PRELOAD_AIMS, "today.", programs.PRELOAD_RATIOS)
    rates = {programs.PREFIX: 8.0, str(tmp_path): 4.0}
    commands = []

    def io_bench(command, **_):
        commands.append(command)
        begin = next(i for i, word in enumerate(command) if word in ("write", "read")) + 1
        places = [word for word in command[begin:] if not word.startswith("--")]
        lines = [{"directory": place, "what": "write", "taken": 2e9 + len(commands),
                  "values": [next((rate for beginning, rate in rates.items() if place.startswith(beginning)), 2.0)]}
                 for place in places]
        return subprocess.CompletedProcess(command, 0, "\n".join(map(json.dumps, lines)), "")

    monkeypatch.setattr(programs.subprocess, "run", io_bench)
    monkeypatch.setattr(programs, "drop_caches", lambda: None)
    report.section("Preload", programs.preload_text(1024))
    programs.preload(bench_with(report, tmp_path))
    report.check_complete()
    ratios = {row.name: row.ratio.median for row in report.rows}
    assert ratios["write of 4 KiB, against the mount"] == 2 and ratios["read of 1 MiB, against tmpfs"] == 4
    assert all(f"STDCHK_PREFIX={programs.PREFIX}" in command and "STDCHK_MANAGER=host:1" in command for command in commands)
