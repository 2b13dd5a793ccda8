// Tests what is shown of the log of a process that has ended.
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/catch.h"
#include "tools/pool/members.h"

using namespace stdchk;
using tools::last_words;

namespace {

/// A log file. The destructor removes it with its folder.
struct Log {
  Log() { std::filesystem::create_directory(folder); }
  ~Log() {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
  std::string said(const std::string& text) const {
    std::ofstream(path, std::ios::trunc) << text;
    return last_words(path);
  }
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("stdchk-words-{}", ::getpid());
  const std::string path = folder / "daemon.log";
};

}  // namespace

TEST_CASE("the last words of a process are the last line of its log that says something") {
  const Log log;
  CHECK(log.said("") == "it said nothing");
  CHECK(log.said("\n \n\t\n") == "it said nothing");
  CHECK(log.said("first\nsecond\n\n") == "second");
  CHECK(log.said("2026-11-26T07:00:00.000 error stdchk-manager: no room\n") == "no room");
  CHECK(last_words(log.folder / "absent") == "it said nothing");
}

TEST_CASE("the last words of a process have a limit and no invisible bytes, whatever its log has") {
  const Log log;
  const std::string words = log.said("begin" + std::string(100'000, 'x'));
  CHECK(words.size() == 1004);
  CHECK(words.ends_with("x ..."));
  const std::string few = log.said(std::string(100'000, 'x') + "\nthe end");
  CHECK(few == "the end");
  CHECK(log.said("a\x1b[2Jb\x07") == "a?[2Jb?");
  // No byte of a log of any length is looked at but the last 64 KiB.
  std::filesystem::resize_file(log.path, std::uintmax_t{1} << 33);
  std::ofstream(log.path, std::ios::app) << "\nlast";
  CHECK(last_words(log.path) == "last");
}

TEST_CASE("the last words are not read from a FIFO or through a link") {
  const Log log;
  REQUIRE(::mkfifo(log.path.c_str(), 0600) == 0);
  CHECK(last_words(log.path) == "it said nothing");
  std::filesystem::remove(log.path);
  std::ofstream(log.folder / "other") << "other\n";
  std::filesystem::create_symlink("other", log.path);
  CHECK(last_words(log.path) == "it said nothing");
}
