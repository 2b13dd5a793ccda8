#include "container/init/files.h"

#include <stdlib.h>

#include <filesystem>

#include "tests/support/catch.h"

namespace stdchk::container {
namespace {

/// A folder in which a program of a container may write.
struct Folder {
  Folder() { REQUIRE(::mkdtemp(path.data()) != nullptr); }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path = "/tmp/stdchk-files-XXXXXX";
};

TEST_CASE("what a program made instead of a small file reads as empty, and nothing waits for it") {
  const Folder folder;
  const std::string file = folder.path + "/file";
  REQUIRE(write_text(file, "12"));
  CHECK(read_text(file) == "12");
  CHECK(read_text(file, 2) == "12");
  CHECK(read_text(file, 1).empty());
  const std::string fifo = folder.path + "/fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  CHECK(read_text(fifo).empty());
  const std::string link = folder.path + "/link";
  REQUIRE(::symlink("file", link.c_str()) == 0);
  CHECK(read_text(link).empty());
  CHECK(read_text(folder.path).empty());
  REQUIRE(::truncate(file.c_str(), off_t{1} << 40) == 0);
  CHECK(read_text(file).empty());
}

}  // namespace
}  // namespace stdchk::container
