#include "core/pool_files.h"

#include <filesystem>

#include "tests/support/catch.h"
#include "tests/unit/benefactor/support.h"

namespace stdchk::benefactor {

TEST_CASE("a secret file is read with and without a line end, and nothing else is") {
  const TemporaryFolder folder;
  const std::string path = folder / "secret";
  const auto read = [&](const std::string& text) {
    write_file(path, text);
    return read_secret_file(path);
  };
  const msg::Secret expected{0x0123456789abcdef, 0xfedcba9876543210};
  CHECK(read("0123456789abcdeffedcba9876543210\n").value() == expected);
  CHECK(read("0123456789abcdeffedcba9876543210").value() == expected);
  for (const char* bad :
       {"", "\n", "0123456789abcdeffedcba987654321", "0123", "0123456789abcdeffedcba98765432100",
        "0123456789abcdefxedcba9876543210", "-123456789abcdeffedcba9876543210\n"}) {
    CAPTURE(bad);
    REQUIRE_FALSE(read(bad));
    CHECK(read(bad).error().code == Code::kConfig);
  }
  CHECK_FALSE(read_secret_file(folder / "missing"));
}

TEST_CASE("a ready file appears whole and leaves nothing beside it") {
  const TemporaryFolder folder;
  REQUIRE(write_file_at_once(folder / "ready", "one"));
  REQUIRE(write_file_at_once(folder / "ready", "two\n"));
  CHECK(read_file(folder / "ready") == "two\n");
  CHECK_FALSE(write_file_at_once(folder / "no/ready", "x"));
  std::filesystem::create_directory(folder / "taken");
  CHECK_FALSE(write_file_at_once(folder / "taken", "x"));
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator(folder.path())) {
    ++files;
  }
  CHECK(files == 2);
}

}  // namespace stdchk::benefactor
