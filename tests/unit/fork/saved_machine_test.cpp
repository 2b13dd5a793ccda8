// Tests images of virtual machines in folders that other users can change or rename.
#include "fork/vm/saved_machine.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace stdchk::fork::vm {
namespace {

namespace fs = std::filesystem;

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A project's folder, in which all users may write, with an image in it.
class Project {
 public:
  Project() {
    char pattern[] = "/tmp/stdchk-machine-XXXXXX";
    folder_ = ::mkdtemp(pattern);
    ::chmod(folder_.c_str(), 0777);
    make("image", "mine");
  }
  ~Project() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  std::string image() const { return folder_ / "image"; }
  void make(const std::string& name, const std::string& text) const {
    fs::create_directory(folder_ / name);
    ::chmod((folder_ / name).c_str(), 0755);
    for (const char* const file : {"memory", "descriptor", "disk-0.qcow2"}) {
      std::ofstream(folder_ / name / file) << text;
    }
    std::ofstream(folder_ / name / "machine.json")
        << R"({"format":1,"words":["qemu"],"memory_bytes":4096,"disks":1})";
  }
  void rename(const std::string& from, const std::string& to) const {
    fs::rename(folder_ / from, folder_ / to);
  }

 private:
  fs::path folder_;
};

bool is_distrusted(const Project& project) {
  const auto read = SavedMachine::read(project.image());
  return !read && read.error().text.find("can be changed by others") != std::string::npos;
}

}  // namespace

TEST_CASE("a machine's image that another user renamed after the look at it gives its own bytes") {
  const Project project;
  const auto machine = SavedMachine::read(project.image());
  REQUIRE(machine);
  project.make("theirs", "theirs");
  project.rename("image", "aside");
  project.rename("theirs", "image");
  CHECK(machine->disks == 1);
  for (const std::string& path : {machine->memory(), machine->descriptor(), machine->disk(0)}) {
    CHECK(text_of(path) == "mine");
  }
}

TEST_CASE(
    "a machine's image is written where it was begun, also when the folder gets another name") {
  const Project project;
  Descriptor folder(::open(project.image().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  REQUIRE(folder);
  const SavedMachine machine{std::move(folder), {"qemu"}, 0, 8192};
  project.make("theirs", "theirs");
  project.rename("image", "aside");
  project.rename("theirs", "image");
  const std::string source = project.image() + "/descriptor";
  const int from = ::open(source.c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(from >= 0);
  CHECK(copy_to(from, machine.memory()));
  ::close(from);
  CHECK(finish(machine));
  CHECK(text_of(project.image() + "/machine.json").find("8192") == std::string::npos);
  CHECK(text_of(machine.memory()) == "theirs");  // what was written
  project.rename("image", "theirs");
  project.rename("aside", "image");
  const auto read = SavedMachine::read(project.image());
  REQUIRE(read);
  CHECK(read->memory_bytes == 8192);
}

TEST_CASE("memory that is zeros becomes a hole of a machine's image") {
  constexpr off_t kPart = 256 << 10;
  const Project project;
  const Descriptor memory(::memfd_create("memory", MFD_CLOEXEC));
  REQUIRE(::ftruncate(memory.get(), 20 * kPart) == 0);
  const std::vector<char> zeros(4 * kPart);
  REQUIRE(::pwrite(memory.get(), zeros.data(), zeros.size(), kPart) == 4 * kPart);
  REQUIRE(::pwrite(memory.get(), "first", 5, 0) == 5);
  REQUIRE(::pwrite(memory.get(), "second", 6, 5 * kPart + 77) == 6);
  const std::string path = project.image() + "/copy";
  REQUIRE(copy_to(memory.get(), path));
  const Descriptor copy(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  CHECK(::lseek(copy.get(), kPart, SEEK_DATA) == 5 * kPart);
  const std::string text = text_of(path);
  REQUIRE(std::ssize(text) == 20 * kPart);
  CHECK(text.substr(0, 5) == "first");
  CHECK(text.substr(5 * kPart + 77, 6) == "second");
  CHECK(std::count(text.begin(), text.end(), '\0') == 20 * kPart - 11);
}

TEST_CASE("a machine's image that others can change is refused") {
  const Project project;
  SECTION("the folder") { ::chmod(project.image().c_str(), 0777); }
  SECTION("what says what to run") { ::chmod((project.image() + "/machine.json").c_str(), 0666); }
  SECTION("a link in place of it") {
    project.make("theirs", "theirs");
    fs::remove(project.image() + "/machine.json");
    fs::create_symlink(project.image() + "/../theirs/machine.json",
                       project.image() + "/machine.json");
    CHECK_FALSE(SavedMachine::read(project.image()));
    return;
  }
  CHECK(is_distrusted(project));
}

}  // namespace stdchk::fork::vm
