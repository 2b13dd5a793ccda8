"""Tests what the lint of scripts/house finds in sources: opens of files by path, and errors that are bare strings."""

import importlib.machinery
import importlib.util
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
loader = importlib.machinery.SourceFileLoader("house", str(ROOT / "scripts" / "house"))
house = importlib.util.module_from_spec(importlib.util.spec_from_loader("house", loader))
loader.exec_module(house)


@pytest.mark.parametrize("opens", [
    "std::ofstream(path) << text;",
    "std::ifstream file(path);",
    "const int fd = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW);",
    "const Descriptor file(\n    ::openat(folder.get(), name.c_str(), O_PATH | O_CLOEXEC));",
    "FILE* file = fopen(path.c_str(), \"r\");",
    "::openat(folder.get(), \"..\", O_RDONLY);",
])
def test_a_file_that_is_opened_by_path_is_found(opens):
    assert list(house.opens_by_path(f"// A comment.\n{opens}\n")) != []


@pytest.mark.parametrize("harmless", [
    "#include <fstream>",
    "DrainedReader::ReadPtr DrainedReader::open(std::uint32_t owner);",
    "const auto file = root.open(name, Access::kRead);",
    "const Descriptor file(\n    ::openat(folder.get(), name.c_str(),\n             O_PATH | O_NOFOLLOW | O_CLOEXEC));",
    "const Descriptor own(::openat(folder.get(), \".\", O_RDONLY | O_DIRECTORY));",
])
def test_what_opens_no_file_by_path_is_let_through(harmless):
    assert not list(house.opens_by_path(f"{harmless}\n"))


def lint(folder, name, text):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"{text}\n")
    return house.lint_opens(folder, [name])


def test_an_open_by_path_fails_the_lint_only_in_the_rooms_of_the_drain_directory(tmp_path):
    reads = "std::ifstream file(path);"
    assert lint(tmp_path, "benefactor/memory/file.cpp", reads) == 0
    assert lint(tmp_path, "benefactor/drain/file.cpp", reads) == 1


@pytest.mark.parametrize("makes", [
    "std::ofstream(path) << text;",
    "fs::remove_all(path, ignored);",
    "std::filesystem::create_directories(path, error);",
    "fs::copy_file(from, to, error);",
    "const int fd = ::open(path.c_str(),\n    O_WRONLY | O_CREAT | O_TRUNC, 0600);",
    "const int fd = ::mkostemp(name.data(), O_CLOEXEC);",
])
def test_what_makes_or_removes_by_path_needs_a_reason(tmp_path, capsys, makes):
    assert lint(tmp_path, "container/node/new.cpp", f"// A comment.\n{makes}") == 1
    assert "container/node/new.cpp:2 makes or removes by path" in capsys.readouterr().err
    assert lint(tmp_path, "container/job/coordinator.cpp", makes) == 0
    assert lint(tmp_path, "preload/new.cpp", makes) == 0


def test_a_file_that_makes_nothing_any_more_gives_no_reason(tmp_path, capsys):
    assert lint(tmp_path, "container/job/coordinator.cpp", "const int fd = ::open(path.c_str(), O_RDONLY);") == 1
    assert "it can leave PLACES" in capsys.readouterr().err


@pytest.mark.parametrize("bare", [
    "tl::expected<std::vector<Host>, std::string> hosts_of(std::string_view text);",
    "tl::expected<void,\n             std::string>\nstart();",
    "return tl::unexpected(fmt::format(\"no {}\", name));",
    "return tl::unexpected(\n    \"no pipe\");",
    "static std::string problem_of(std::string_view pattern);",
    "std::string rule_problem(std::string_view key, std::string_view value);",
    "std::optional<std::string> check_image(const ImageParts& image) {",
    "using Done = std::function<void(const std::string& error)>;",
])
def test_an_error_that_is_a_bare_string_is_found(bare):
    assert list(house.string_errors(f"// A comment.\n{bare}\n")) == [2]


@pytest.mark.parametrize("explained", [
    "Outcome<std::string> text_of(const std::string& path);",
    "tl::expected<std::pair<int, std::string>, Problem> first(std::map<int, std::string> all);",
    "return tl::unexpected(before.error());",
    "std::optional<std::string> manager() const;",
    "using Answer = std::function<void(const std::string& line)>;",
])
def test_an_error_with_its_explanation_is_let_through(explained):
    assert not list(house.string_errors(f"{explained}\n"))
