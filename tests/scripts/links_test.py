"""Tests that scripts/links finds links and paths that lead nowhere."""

import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def links(tmp_path):
    """A function that writes a file into a small repository, and returns what scripts/links says of it."""
    for folder in ("scripts", "docs/decisions", "core/base"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "links", tmp_path / "scripts")
    (tmp_path / "core/base/units.h").write_text("")
    (tmp_path / "core/base/README.md").write_text("# core/base\n")
    (tmp_path / "docs/decisions/0015-metadata-log.md").write_text("# The log\n\n## Who decides\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True, timeout=20)

    def run(name, text):
        (tmp_path / name).write_text(text)
        done = subprocess.run(["scripts/links"], cwd=tmp_path, capture_output=True, text=True, timeout=20)
        return done.stdout
    run.folder = tmp_path
    return run


def test_what_exists_is_no_complaint(links):
    assert links("docs/page.md", "# Page\n\n[log](decisions/0015-metadata-log.md#who-decides), docs/decisions/0015, "
                 "core/base/units, core/*/units.h, [web](https://example.org/x.md)\n") == ""


@pytest.mark.parametrize("text", ["[log](0015-metadata-log.md)", "[log](decisions/0015-metadata-log.md#when)",
                                  "core/base/unit.h", "docs/decisions/0016", "core/*/unit.h"])
def test_what_does_not_exist_is_found(links, text):
    assert links("docs/page.md", f"# Page\n{text}\n").startswith("docs/page.md:2: ")


@pytest.mark.parametrize("text", ["#client / net : the links\n", "", "Text\n"])
def test_a_page_that_a_formatter_has_broken_is_found(links, text):
    assert "docs/page.md:1: does not begin with a heading" in links("docs/page.md", text)


def test_a_comment_is_read_and_code_is_not(links):
    assert links("core/base/a.cpp", 'open("core/base/gone.h");  // as core/base/units.h\n') == ""
    assert links("core/base/a.cpp", "// core/base/gone.h has the reason\n").startswith("core/base/a.cpp:1: ")


def test_a_folder_with_sources_has_a_readme(links):
    (pathlib.Path(links.folder) / "core/new").mkdir()
    assert "core/new: has no README.md" in links("core/new/a.cpp", "")
    assert links("core/new/README.md", "# core/new\n") == ""


def test_a_readme_of_a_folder_is_short_and_a_page_may_be_long(links):
    assert links("core/base/README.md", "# core/base\n" + "Line.\n" * 24) == ""
    assert "core/base/README.md: has 26 lines" in links("core/base/README.md", "# core/base\n" + "Line.\n" * 25)
    links("core/base/README.md", "# core/base\n")
    assert links("docs/page.md", "# Page\n" + "Line.\n" * 60) == ""


@pytest.mark.parametrize("drawn, said", [
    ("core/  base", ""),
    ("core/  base values", "core/ has other rooms than the map: values"),
    ("core/  ", "core/ has other rooms than the map: base"),
    ("core/  base\nfuse/  the mount", "the map has fuse/, which does not exist"),
])
def test_the_map_of_the_readme_is_compared_with_the_folders(links, drawn, said):
    complaints = links("README.md", f"# Map\n\n```\n{drawn}\ndocs/  decisions\nscripts/  programs\n```\n")
    assert (said in complaints) if said else not complaints


def test_a_folder_that_the_map_lacks_is_found(links):
    assert "the map lacks scripts/, which exists" in links("README.md", "# Map\n\n```\ncore/  base\ndocs/  decisions\n```\n")
