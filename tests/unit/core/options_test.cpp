#include "core/runtime/options.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>

#include "core/base/limits.h"
#include "tests/support/catch.h"

namespace stdchk {
namespace {

using Arguments = std::vector<std::string>;

/// A TemporaryFile is removed with its object.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content) {
    char name[] = "/tmp/stdchk-options-XXXXXX";
    const int fd = ::mkstemp(name);
    REQUIRE(fd >= 0);
    ::close(fd);
    path = name;
    std::ofstream(path) << content;
  }
  ~TemporaryFile() { ::unlink(path.c_str()); }
  std::string path;
};

/// A Program has one option of each kind, and sources that the test fills.
struct Program {
  Options options{"stdchk-manager", "Manages."};
  std::string state;
  std::string transport = "auto";
  std::uint64_t memory = 512 * limits::kMiB;
  std::uint32_t chunk_bytes = limits::kChunkBytesDefault;
  std::uint64_t rate = 0;
  std::uint32_t width = 4;
  bool naming = true;
  std::optional<bool> early;
  bool allow_other = false;
  std::string mountpoint;
  std::map<std::string, std::string> environment;
  OptionsSources sources;

  Program() {
    options.text("--state", state, "DIR", "where the state is kept");
    options.choice("--transport", transport, {"auto", "tcp", "shm"}, "how bytes move");
    options.size("--memory", memory, limits::kMiB, limits::kGiB, "memory to lend");
    options.chunk_size("--chunk-size", chunk_bytes, "size of chunks");
    options.rate("--drain-rate", rate, "bytes a second");
    options.count("--stripe-width", width, 1, 64, "benefactors at once");
    options.on_off("--naming", naming, "content names");
    options.on_off("--early", early, "early close");
    options.flag("--allow-other", allow_other, "let others in");
    options.argument("MOUNTPOINT", mountpoint, "where");
    sources.environment = [this](const std::string& name) -> std::optional<std::string> {
      auto found = environment.find(name);
      if (found == environment.end()) return std::nullopt;
      return found->second;
    };
  }
  OptionsOutcome parse(const Arguments& arguments) { return options.parse(arguments, sources); }
};

TEST_CASE("Options keep their defaults when nothing is given") {
  Program program;
  REQUIRE(program.parse({}).run);
  CHECK(program.transport == "auto");
  CHECK(program.memory == 512 * limits::kMiB);
  CHECK(program.naming);
  CHECK_FALSE(program.early.has_value());
  CHECK_FALSE(program.allow_other);
}

TEST_CASE("The command line sets every kind of option") {
  Program program;
  REQUIRE(program
              .parse({"--state", "/s", "--transport=tcp", "--memory", "64M", "--chunk-size", "4M",
                      "--drain-rate", "10M/s", "--stripe-width", "8", "--naming", "off", "--early",
                      "on", "--allow-other", "/mnt"})
              .run);
  CHECK(program.state == "/s");
  CHECK(program.transport == "tcp");
  CHECK(program.memory == 64 * limits::kMiB);
  CHECK(program.chunk_bytes == 4 * limits::kMiB);
  CHECK(program.rate == 10 * limits::kMiB);
  CHECK(program.width == 8);
  CHECK_FALSE(program.naming);
  CHECK(program.early == true);
  CHECK(program.allow_other);
  CHECK(program.mountpoint == "/mnt");
}

TEST_CASE("The command line wins over the environment, the environment over the file") {
  TemporaryFile file(
      "state = \"/file\"\nmemory = \"3M\"\nstripe-width = 5\nunknown-to-us = 1\n"
      "[manager]\nstripe-width = 6\nnaming = false\n[mount]\nwindow = \"1G\"\n");
  Program program;
  program.sources.config_files = {"/nonexistent/stdchk.toml", file.path};
  program.environment = {{"STDCHK_MEMORY", "2M"}, {"STDCHK_STATE", "/environment"}};
  REQUIRE(program.parse({"--state", "/flag"}).run);
  CHECK(program.state == "/flag");
  CHECK(program.memory == 2 * limits::kMiB);
  CHECK(program.width == 6);
  CHECK_FALSE(program.naming);
}

TEST_CASE("A later configuration file wins over an earlier one, and --config replaces both") {
  TemporaryFile system("stripe-width = 5\nstate = \"/system\"\n");
  TemporaryFile user("stripe-width = 6\n");
  TemporaryFile named("stripe-width = 7\n");
  Program program;
  program.sources.config_files = {system.path, user.path};
  REQUIRE(program.parse({}).run);
  CHECK(program.width == 6);
  CHECK(program.state == "/system");
  Program other;
  other.sources.config_files = {system.path, user.path};
  REQUIRE(other.parse({"--config", named.path}).run);
  CHECK(other.width == 7);
  CHECK(other.state.empty());
}

TEST_CASE("A bad value is one sentence with the option, the value and what is allowed") {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"--memory", "3.5XB"},   {"--memory", "1K"},        {"--memory", "2T"},
      {"--chunk-size", "3M"},  {"--chunk-size", "32M"},   {"--drain-rate", "fast"},
      {"--stripe-width", "0"}, {"--stripe-width", "65"},  {"--stripe-width", "4x"},
      {"--naming", "maybe"},   {"--transport", "pigeon"}, {"--stripe-width", "-1"},
  };
  for (const auto& [flag, value] : bad) {
    Program program;
    const OptionsOutcome outcome = program.parse({fmt::format("{}={}", flag, value)});
    INFO(flag << " " << value << ": " << outcome.message);
    CHECK_FALSE(outcome.run);
    CHECK(outcome.exit_status == 2);
    CHECK(outcome.message.find("stdchk-manager: " + flag) == 0);
    CHECK(outcome.message.find("\"" + value + "\"") != std::string::npos);
    CHECK(outcome.message.find("allowed: ") != std::string::npos);
    CHECK(outcome.message.find('\n') == std::string::npos);
  }
}

TEST_CASE("A bad value says which variable or file it came from") {
  Program program;
  program.environment = {{"STDCHK_CHUNK_SIZE", "7"}};
  auto outcome = program.parse({});
  CHECK(outcome.exit_status == 2);
  CHECK(outcome.message.find("STDCHK_CHUNK_SIZE") != std::string::npos);

  TemporaryFile file("[manager]\nchunk-size = \"7\"\n");
  Program other;
  outcome = other.parse({"--config", file.path});
  CHECK(outcome.exit_status == 2);
  CHECK(outcome.message.find(file.path) != std::string::npos);
}

TEST_CASE("Broken, absent and misspelled configuration is an error with status 2") {
  TemporaryFile broken("state = \n");
  TemporaryFile misspelled("[manager]\nchunk-sise = \"1M\"\n");
  TemporaryFile nested("state = [1, 2]\n");
  for (const auto& path :
       {broken.path, misspelled.path, nested.path, std::string("/nonexistent/stdchk.toml")}) {
    Program program;
    auto outcome = program.parse({"--config", path});
    INFO(outcome.message);
    CHECK_FALSE(outcome.run);
    CHECK(outcome.exit_status == 2);
    CHECK(outcome.message.find(path) != std::string::npos);
  }
}

TEST_CASE("A configuration that another user can change is read only where it is named") {
  TemporaryFile theirs("stripe-width = 6\n");
  SECTION("everybody may write") { REQUIRE(::chmod(theirs.path.c_str(), 0666) == 0); }
  SECTION("another user's") {
    if (::geteuid() != 0) return;  // only root can give a file away
    REQUIRE(::chown(theirs.path.c_str(), 64712, 64712) == 0);
  }
  Program found;
  found.sources.config_files = {theirs.path};
  REQUIRE(found.parse({}).run);
  CHECK(found.width == 4);
  Program named;
  REQUIRE(named.parse({"--config", theirs.path}).run);
  CHECK(named.width == 6);
}

TEST_CASE("An option takes one word, and leaves the argument behind it alone") {
  Program program;
  REQUIRE(program.parse({"--naming", "off", "/mnt"}).run);
  CHECK_FALSE(program.naming);
  CHECK(program.mountpoint == "/mnt");
}

TEST_CASE("Unknown options, missing values and superfluous arguments are errors with status 2") {
  for (const Arguments& arguments : {Arguments{"--stat", "/x"}, Arguments{"--state"},
                                     Arguments{"--memory="}, Arguments{"/a", "/b"}}) {
    Program program;
    auto outcome = program.parse(arguments);
    INFO(outcome.message);
    CHECK_FALSE(outcome.run);
    CHECK(outcome.exit_status == 2);
    CHECK(outcome.message.find("--help") != std::string::npos);
  }
}

TEST_CASE("A required option can come from anywhere but must come") {
  std::string state;
  auto build = [&](Options& options) { options.text("--state", state, "DIR", "where").required(); };
  Program environment;
  Options absent("stdchk-x", "Tests.");
  build(absent);
  auto outcome = absent.parse({}, environment.sources);
  CHECK(outcome.exit_status == 2);
  CHECK(outcome.message.find("--state is missing") != std::string::npos);
  environment.environment = {{"STDCHK_STATE", "/s"}};
  Options present("stdchk-x", "Tests.");
  build(present);
  CHECK(present.parse({}, environment.sources).run);
  CHECK(state == "/s");
}

TEST_CASE("An option of the command line only ignores environment and file") {
  bool drain = false;
  Options options("stdchk-x", "Tests.");
  options.flag("--drain", drain, "first").command_line_only();
  Program environment;
  environment.environment = {{"STDCHK_DRAIN", "/pfs"}};
  REQUIRE(options.parse({}, environment.sources).run);
  CHECK_FALSE(drain);
}

TEST_CASE("A subcommand is found by name and has its own options and table") {
  TemporaryFile file("[up]\nbenefactors = 7\n");
  std::uint32_t benefactors = 1;
  std::vector<std::string> paths;
  auto make = [&](Options& options) {
    options.subcommand("up", "Starts.").count("--benefactors", benefactors, 1, 1000, "how many");
    options.subcommand("ls", "Lists.").arguments("PATH", paths, "what");
  };
  Program environment;
  Options up("stdchk", "Tests.");
  make(up);
  REQUIRE(up.parse({"up", "--config", file.path}, environment.sources).run);
  CHECK(up.chosen() == "up");
  CHECK(benefactors == 7);
  Options ls("stdchk", "Tests.");
  make(ls);
  REQUIRE(ls.parse({"ls", "a", "b"}, environment.sources).run);
  CHECK(ls.chosen() == "ls");
  CHECK(paths == std::vector<std::string>{"a", "b"});
  Options unknown("stdchk", "Tests.");
  make(unknown);
  auto outcome = unknown.parse({"lss"}, environment.sources);
  CHECK(outcome.exit_status == 2);
  CHECK(outcome.message.find("\"lss\"") != std::string::npos);
  Options none("stdchk", "Tests.");
  make(none);
  CHECK(none.parse({}, environment.sources).exit_status == 2);
}

TEST_CASE("--help and --version end with status 0, also when something required is missing") {
  Program program;
  auto outcome = program.parse({"--help"});
  CHECK_FALSE(outcome.run);
  CHECK(outcome.exit_status == 0);
  for (const char* text : {"--chunk-size SIZE", "MOUNTPOINT", "STDCHK_SOME_OPTION", "512"}) {
    CHECK(outcome.message.find(text) != std::string::npos);
  }
  Program other;
  outcome = other.parse({"--version"});
  CHECK(outcome.exit_status == 0);
  CHECK(outcome.message == "stdchk " + std::string(version()) + "\n");
}

}  // namespace
}  // namespace stdchk
