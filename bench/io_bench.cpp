// Measures plain POSIX input and output of several file systems in turns. Measures: writing a new
// image (OT: file size / (open until close returns)), reading an image, and changing names of empty
// files and directories. Prints one JSON object for each directory and measure, with the value of
// each round.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "bench/measuring.h"
#include "core/base/limits.h"
#include "core/runtime/options.h"

namespace stdchk::bench {
namespace {

using Timer = std::chrono::steady_clock;

struct Settings {
  std::vector<std::string> directories;
  std::uint64_t size = limits::kGiB;
  std::uint64_t block = limits::kMiB;
  std::uint32_t rounds = 5;
  std::uint32_t writers = 1;
  std::uint32_t files = 2000;
  std::uint32_t together = 1;  ///< directories whose names are changed at once
  std::uint32_t server = 0;    ///< process whose processor time is measured; 0: none
  bool keep = false;
};

/// The values of the counted rounds, by directory and measure.
using Figures = std::map<std::string, std::map<std::string, std::vector<double>>>;

double seconds_since(Timer::time_point start) {
  return std::chrono::duration<double>(Timer::now() - start).count();
}

std::string image_path(const std::string& directory, std::uint32_t writer, std::uint32_t round) {
  return directory + "/bench.N" + std::to_string(writer) + ".T" + std::to_string(round);
}

void write_file(const std::string& path, ByteSpan image, std::size_t block) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd < 0) give_up_call("cannot create " + path);
  for (std::size_t at = 0; at < image.size();) {
    const ssize_t done = ::write(fd, image.data() + at, std::min(block, image.size() - at));
    if (done < 0) give_up_call("cannot write " + path);
    at += static_cast<std::size_t>(done);
  }
  if (::close(fd) != 0) give_up_call("cannot close " + path);
}

/// Calls `work(directory, round)` for all directories in each round. Each round begins with the
/// next directory, so that the order varies. Drops the first round, which warms caches up.
template <class Work>
Figures take_turns(const Settings& settings, Work work) {
  Figures figures;
  for (std::uint32_t round = 0; round <= settings.rounds; ++round) {
    for (std::size_t turn = 0; turn < settings.directories.size(); ++turn) {
      const std::string& directory =
          settings.directories[(turn + round) % settings.directories.size()];
      for (const auto& [what, value] : work(directory, round)) {
        if (round > 0) figures[directory][what].push_back(value);
      }
    }
  }
  return figures;
}

using Values = std::map<std::string, double>;

Figures measure_writing(const Settings& settings) {
  std::vector<MutableByteSpan> images;
  for (std::uint32_t w = 0; w < settings.writers; ++w) {
    images.push_back(random_memory(settings.size, w));
  }
  std::uint64_t seed = 0;
  return take_turns(settings, [&](const std::string& directory, std::uint32_t round) {
    for (const MutableByteSpan image : images) change_pages(image, ++seed);
    warm_free_memory(settings.size * settings.writers);
    const auto start = Timer::now();
    std::vector<std::thread> threads;
    for (std::uint32_t w = 0; w < settings.writers; ++w) {
      threads.emplace_back(
          [&, w] { write_file(image_path(directory, w, round), images[w], settings.block); });
    }
    for (auto& thread : threads) thread.join();
    const double took = seconds_since(start);
    for (std::uint32_t w = 0; w < settings.writers && !settings.keep; ++w) {
      ::unlink(image_path(directory, w, round).c_str());
    }
    return Values{{"write", static_cast<double>(settings.size) * settings.writers / 1e9 / took}};
  });
}

/// Reads each image that a run with --keep left, once.
Figures measure_reading(const Settings& settings) {
  // The buffer is aligned, like the pages of a process. For an unaligned buffer the kernel needs
  // one page more than a request has, and sends two requests for each call.
  const MutableByteSpan buffer = random_memory(settings.block, 1);
  return take_turns(settings, [&](const std::string& directory, std::uint32_t round) {
    const std::string path = image_path(directory, 0, round);
    std::size_t total = 0;
    const auto start = Timer::now();
    const int fd = ::open(path.c_str(), O_RDONLY);
    if (fd < 0) give_up_call("cannot open " + path);
    for (ssize_t got = 1; got > 0; total += static_cast<std::size_t>(got)) {
      got = ::read(fd, buffer.data(), buffer.size());
      if (got < 0) give_up_call("cannot read " + path);
    }
    ::close(fd);
    const double took = seconds_since(start);
    if (total != settings.size) give_up(path + " has another size");
    return Values{{"read", static_cast<double>(total) / 1e9 / took}};
  });
}

/// Appends as a journal does: each record of 128 bytes is on disk before the next begins.
double syncs_a_second(const std::string& path, std::uint32_t records) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (fd < 0) give_up_call("cannot create " + path);
  const std::array<char, 128> record{};
  const auto start = Timer::now();
  for (std::uint32_t i = 0; i < records; ++i) {
    if (::write(fd, record.data(), record.size()) != std::ssize(record) || ::fdatasync(fd) != 0) {
      give_up_call("cannot append to " + path);
    }
  }
  const double took = seconds_since(start);
  ::close(fd);
  ::unlink(path.c_str());
  return records / took;
}

/// A NameTest is a kind of operation. A round applies it to all its names.
struct NameTest {
  const char* what;
  std::function<bool(const std::string& path)> work;
};

bool create(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT, 0644);
  return fd >= 0 && ::close(fd) == 0;
}

bool look(const std::string& path) {
  struct stat attributes {};
  return ::stat(path.c_str(), &attributes) == 0;
}

/// The operations, in the order of a round. The first stat of a new file may be a request to the
/// server. The second stat is answered from the kernel's cache where that is allowed.
const std::vector<NameTest>& name_tests() {
  static const std::vector<NameTest> tests{
      {"create", create},
      {"stat", look},
      {"stat again", look},
      {"rename",
       [](const std::string& path) {
         return ::rename(path.c_str(), (path + ".moved").c_str()) == 0;
       }},
      {"unlink", [](const std::string& path) { return ::unlink((path + ".moved").c_str()) == 0; }},
      {"mkdir", [](const std::string& path) { return ::mkdir(path.c_str(), 0755) == 0; }},
      {"rmdir", [](const std::string& path) { return ::rmdir(path.c_str()) == 0; }}};
  return tests;
}

/// Applies the operation to all names of the round. Each of `directories` gets a thread, and the
/// threads run together. Returns operations a second, of all threads together.
double names_a_second(const Settings& settings, const std::vector<std::string>& directories,
                      std::uint32_t round, const NameTest& test) {
  const auto work = [&](const std::string& directory) {
    for (std::uint32_t i = 0; i < settings.files; ++i) {
      const std::string path =
          directory + "/meta." + std::to_string(round) + "." + std::to_string(i);
      if (!test.work(path)) give_up_call(std::string("cannot ") + test.what + " " + path);
    }
  };
  const auto start = Timer::now();
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < directories.size(); ++i) {
    others.emplace_back([&work, &directory = directories[i]] { work(directory); });
  }
  work(directories.front());
  for (auto& thread : others) thread.join();
  return static_cast<double>(settings.files * directories.size()) / seconds_since(start);
}

/// Measures groups of `settings.together` directories. The first directory's name stands for its
/// group.
Figures measure_metadata(const Settings& settings) {
  std::map<std::string, std::vector<std::string>> groups;
  Settings first = settings;
  first.directories.clear();
  for (std::size_t i = 0; i < settings.directories.size(); ++i) {
    if (i % settings.together == 0) first.directories.push_back(settings.directories[i]);
    groups[first.directories.back()].push_back(settings.directories[i]);
  }
  return take_turns(first, [&](const std::string& directory, std::uint32_t round) {
    Values values;
    for (const NameTest& test : name_tests()) {
      const auto server = static_cast<pid_t>(settings.server);
      const double before = server > 0 ? cpu_seconds(server) : 0;
      values[test.what] = names_a_second(settings, groups.at(directory), round, test);
      if (server == 0) continue;
      const double all = static_cast<double>(settings.files) * settings.together;
      const double spent = cpu_seconds(server) - before;
      values[std::string(test.what) + ", server"] = spent / all * 1e6;
    }
    values["append and sync"] = syncs_a_second(directory + "/meta.log", settings.files / 10);
    return values;
  });
}

/// Prints the bytes that the benches write, so that their compressibility can be checked.
int dump(const Settings& settings) {
  const MutableByteSpan image = random_memory(settings.size, 0);
  change_pages(image, 1);
  return std::fwrite(image.data(), 1, image.size(), stdout) == image.size() ? 0 : 1;
}

void print(const Figures& figures) {
  for (const auto& [directory, measures] : figures) {
    for (const auto& [what, values] : measures) {
      const nlohmann::json line{
          {"directory", directory}, {"what", what}, {"values", values}, {"taken", wall_seconds()}};
      std::printf("%s\n", line.dump().c_str());
    }
  }
}

}  // namespace
}  // namespace stdchk::bench

int main(int argc, char** argv) {
  using namespace stdchk;
  bench::Settings settings;
  std::string mode;
  Options options("io-bench", "Measures POSIX I/O of file systems.");
  options.argument("MODE", mode, "write, read, metadata or dump").required();
  options.arguments("DIRECTORIES", settings.directories, "one in each file system");
  options.size("--size", settings.size, 4096, limits::kGiB * 64, "of one image");
  options.size("--block", settings.block, 1, limits::kGiB, "of one write or read call");
  options.count("--rounds", settings.rounds, 1, 1000, "that count; one more goes before them");
  options.count("--writers", settings.writers, 1, 64, "threads that write an image each");
  options.count("--files", settings.files, 1, 1u << 20, "of the metadata rounds");
  options.count("--together", settings.together, 1, 64,
                "directories in which names are changed at once, by a thread in each");
  options.count("--server", settings.server, 0, 1 << 22,
                "process whose processor time for each name is measured, in us");
  options.flag("--keep", settings.keep, "leave the written images in place");
  if (const auto status = options.parse_or_exit(argc, argv)) return *status;
  if (mode == "dump") return bench::dump(settings);
  if (mode == "write") bench::print(bench::measure_writing(settings));
  if (mode == "read") bench::print(bench::measure_reading(settings));
  if (mode == "metadata") bench::print(bench::measure_metadata(settings));
  return 0;
}
