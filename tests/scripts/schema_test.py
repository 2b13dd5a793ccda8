"""Tests core/schema/generate.py: it refuses incomplete schemas, and copies comments into the structs."""

import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEAD = """@0xf1d2c3b4a5968778;
using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("test::wire");
using Say = import "/core/schema/annotations.capnp";
$Say.namespace("test");
"""


def capnp_schema():
    includes = subprocess.run(["pkg-config", "--variable=includedir", "capnp"], check=True, capture_output=True, text=True)
    return includes.stdout.strip() + "/capnp/schema.capnp"


def generate(folder, text, head=HEAD):
    schema = folder / "some.capnp"
    schema.write_text(head + text)
    return subprocess.run(
        ["python3", ROOT / "core/schema/generate.py", "--schema", capnp_schema(), "--root", ROOT, "--out", folder, schema],
        capture_output=True, text=True)


@pytest.mark.parametrize("field, missing", [
    ("a @0 :Text;", "$max"),
    ("a @0 :Data;", "$max"),
    ("a @0 :List(UInt64);", "$max"),
    ('a @0 :List(Text) $Say.max("kAddressesMax");', "$itemMax"),
])
def test_a_text_or_list_without_a_limit_is_refused_with_its_place(tmp_path, field, missing):
    made = generate(tmp_path, f"struct Some {{ {field} }}")
    assert made.returncode != 0
    assert re.search(r"some\.capnp:Some\.a: .*" + re.escape(missing), made.stderr), made.stderr


def test_the_journal_s_texts_need_no_limit(tmp_path):
    made = generate(tmp_path, "struct Some { a @0 :Data; }", HEAD + "$Say.unlimited;\n")
    assert made.returncode == 0, made.stderr
    assert "to.setA(put_bytes(check, from.a, kNoLimit));" in (tmp_path / "some.encode.h").read_text()


def test_comments_names_and_initial_values_are_copied_in_the_order_of_the_text(tmp_path):
    made = generate(tmp_path, """
enum Kind {
  invalid @0;
  good @1;  # as it should be
}
struct Some $Say.title("some") {
  # Says "something".
  lastOne @1 :UInt32 $Say.initial("7");
  firstOne @0 :UInt64 $Say.type("FileId");  # of the file
  old @2 :UInt64 $Say.reserved;
  kind @3 :Kind;
  struct Reply {}
}""")
    assert made.returncode == 0, made.stderr
    structs = (tmp_path / "some.structs.h").read_text()
    assert "  kGood = 1,  ///< as it should be\n" in structs and "kInvalid" not in structs
    members = structs[structs.index("struct Some"):].split("\n")
    assert members == [
        "struct Some {",
        '  static constexpr const char* kName = "some";',
        "  struct Reply {",
        "    bool operator==(const Reply&) const = default;",
        "  };",
        "  std::uint32_t last_one = 7;",
        "  FileId first_one{};  ///< of the file",
        "  Kind kind = Kind::kGood;",
        "  bool operator==(const Some&) const = default;",
        "};",
        "",
        "}  // namespace test",
        "",
    ]
    assert '/// Says "something".\nstruct Some' in structs
    assert "old" not in (tmp_path / "some.encode.h").read_text()
