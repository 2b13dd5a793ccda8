#include "core/files/pool_files.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "core/files/log_end.h"
#include "tests/support/catch.h"
#include "tests/unit/benefactor/support.h"

namespace stdchk::benefactor {

constexpr const char* kDigits = "0123456789abcdefFEDCBA9876543210";

TEST_CASE("a secret file is read with and without a line end, and nothing else is") {
  const TemporaryFolder folder;
  const std::string path = folder / "secret";
  const auto read = [&](const std::string& text) {
    write_file(path, text);
    REQUIRE(::chmod(path.c_str(), 0600) == 0);
    return read_secret_file(path);
  };
  const std::string good = kDigits;
  Secret expected;
  REQUIRE(parse_hex(good, MutableByteSpan(expected.bytes).first(16)));
  CHECK(read(good + "\n").value() == expected);
  CHECK(read(good).value() == expected);
  for (const std::string& bad :
       {std::string(), std::string("\n"), good.substr(1), good + "0", good + "\n\n",
        "x" + good.substr(1), "-" + good.substr(1), "+1" + good.substr(2), good + good}) {
    CAPTURE(bad);
    const auto secret = read(bad);
    REQUIRE_FALSE(secret);
    CHECK(secret.error().text.find(path + " does not hold 32 hexadecimal digits") !=
          std::string::npos);
  }
}

TEST_CASE("a secret file that is not there, or open to others, is refused with the remedy") {
  const TemporaryFolder folder;
  const std::string path = folder / "secret";
  const auto missing = read_secret_file(path);
  REQUIRE_FALSE(missing);
  CHECK(missing.error().text.find("No such file") != std::string::npos);
  CHECK(missing.error().text.find("--secret-file") != std::string::npos);
  write_file(path, kDigits);
  for (const mode_t mode : {0640U, 0604U, 0620U, 0601U, 0666U}) {
    CAPTURE(mode);
    REQUIRE(::chmod(path.c_str(), mode) == 0);
    const auto secret = read_secret_file(path);
    REQUIRE_FALSE(secret);
    CHECK(secret.error().text.find("chmod 600") != std::string::npos);
  }
  REQUIRE(::chmod(path.c_str(), 0400) == 0);
  CHECK(read_secret_file(path));
}

TEST_CASE("a secret that somebody has typed is refused") {
  const TemporaryFolder folder;
  const std::string path = folder / "secret";
  for (const char* const typed :
       {"00000000000000000000000000000000", "12121212121212121212121212121212",
        "01020304050607010203040506070102", "deadbeefdeadbeefdeadbeefdeadbeef"}) {
    write_file(path, typed);
    REQUIRE(::chmod(path.c_str(), 0600) == 0);
    const auto secret = read_secret_file(path);
    REQUIRE_FALSE(secret);
    CHECK(secret.error().text.find("does not hold random digits") != std::string::npos);
  }
}

TEST_CASE("a secret can be handed over by a descriptor") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  REQUIRE(::write(ends[1], kDigits, 32) == 32);
  REQUIRE(::close(ends[1]) == 0);
  CHECK(read_secret_file(fmt::format("/dev/fd/{}", ends[0])));
  REQUIRE(::close(ends[0]) == 0);
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

TEST_CASE("files that are written where others may write lead through no link of theirs") {
  const TemporaryFolder folder;
  write_file(folder / "victim", "before");
  const auto plant = [&](const std::string& name) {
    std::filesystem::create_symlink(folder / "victim", folder / name);
  };
  plant("file");
  plant(fmt::format("file.{}", ::getpid()));
  const timespec then{1000, 5};
  REQUIRE(write_file_at_once(folder / "file", "text", {.durable = true, .mtime = then}));
  CHECK(read_own_file(folder / "file", 4).value() == "text");
  CHECK(read_own_file(folder / "file", 3).error().code == Code::kTooLarge);
  struct stat facts {};
  REQUIRE(::stat((folder / "file").c_str(), &facts) == 0);
  CHECK((facts.st_mtim.tv_sec == 1000 && facts.st_mtim.tv_nsec == 5));

  plant("copy");
  REQUIRE(make_file_anew(folder / "copy", 0600));
  CHECK(read_file(folder / "copy").empty());
  CHECK(read_file(folder / "victim") == "before");
  std::filesystem::create_directory(folder / "taken");
  CHECK(make_file_anew(folder / "taken", 0600).error().os_errno == EEXIST);

  plant("link");
  CHECK(read_own_file(folder / "link", 100).error().os_errno == ELOOP);
  REQUIRE(::mkfifo((folder / "fifo").c_str(), 0600) == 0);
  CHECK(read_own_file(folder / "fifo", 100).error().os_errno == EPERM);
  CHECK(read_own_file(folder / "none", 100).error().os_errno == ENOENT);
  CHECK(end_of_log(folder / "file", 3) == "ext");
  CHECK(end_of_log(folder / "file", 100) == "text");
  for (const char* const name : {"link", "fifo", "none"}) {
    CHECK(end_of_log(folder / name, 100).empty());
  }
}

}  // namespace stdchk::benefactor
