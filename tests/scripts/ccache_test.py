"""Tests the settings of ccache in scripts/packages.sh: a changed header in a precompiled header is compiled anew."""

import os
import pathlib
import shutil
import subprocess

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = """
source {scripts}/packages.sh
use_ccache "$PWD"
rm -rf out && mkdir out && cp src/all.h out/all.h
flags=(-Iout -I. -fpch-preprocess -MD)
ccache g++ "${{flags[@]}}" -x c++-header -MF out/all.d -o out/all.h.gch -c src/all.h &&
  ccache g++ "${{flags[@]}}" -include all.h -Winvalid-pch -MF out/user.d -o out/user.o -c src/user.cpp
"""


@pytest.mark.skipif(not shutil.which("ccache") or not shutil.which("g++"), reason="ccache or g++ is absent")
def test_an_object_follows_the_headers_in_its_precompiled_header(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/all.h").write_text('#include "src/some.h"\n')
    (tmp_path / "src/user.cpp").write_text('#include "src/some.h"\nint call(Some& some) { return some.wanted(); }\n')

    def build(*lines):
        (tmp_path / "src/some.h").write_text("\n".join(["#pragma once", "struct Some {", *lines, "};", ""]))
        subprocess.run(["bash", "-ec", BUILD.format(scripts=SOURCE / "scripts")], cwd=tmp_path, check=True, timeout=300,
                       env=os.environ | {"CCACHE_DIR": str(tmp_path / "cache")})
        return (tmp_path / "out/user.o").read_bytes()

    first = build("virtual int wanted();")
    behind = build("virtual int other();", "virtual int wanted();")
    assert behind != first
    # GCC would include a header twice whose comment is not that of the precompiled header.
    assert build("// A comment.", "virtual int other();", "virtual int wanted();") == behind
    assert build("virtual int wanted();") == first
