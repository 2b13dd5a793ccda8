// Measures how fast file systems take checkpoint images and give them back, in turns.
#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "core/units.h"
#include "tools/commands.h"
#include "tools/pool_record.h"
#include "tools/problem.h"
#include "tools/process.h"
#include "tools/share_out.h"
#include "tools/show.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

/// Every page has a stamp, so that no two pages of all images are equal.
constexpr std::size_t kPage = 4096;

Problem system_problem(const char* what, const std::string& path) {
  return Problem{fmt::format("{} {}: {}", what, path, std::strerror(errno))};
}

/// An open file; closed without a word when nobody has closed it.
class OpenedFile {
 public:
  OpenedFile(const std::string& path, int flags) : fd_(::open(path.c_str(), flags, 0600)) {}
  ~OpenedFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OpenedFile(const OpenedFile&) = delete;
  OpenedFile& operator=(const OpenedFile&) = delete;
  int fd() const { return fd_; }
  bool close() { return ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

/// A folder of this run in a file system that is measured. Goes with all that is in it.
class Scratch {
 public:
  static Outcome<std::unique_ptr<Scratch>> make_in(const std::string& directory) {
    std::string path = directory + "/stdchk-bench.XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) {
      return problem(system_problem("cannot make a folder in", directory));
    }
    return std::unique_ptr<Scratch>(new Scratch(std::move(path)));
  }
  ~Scratch() {
    std::error_code code;
    fs::remove_all(path_, code);
    if (code) (void)complain(fmt::format("{} stays: {}", path_, code.message()));
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::string& path() const { return path_; }

 private:
  explicit Scratch(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

/// One rank: its buffer, its image of this round, and how that went.
struct Rank {
  std::uint32_t number = 0;
  std::vector<std::byte> block;  ///< random; the stamps come on top
  std::string path;
  Outcome<void> done;
};

using Stamp = std::array<std::uint64_t, 3>;

/// Of page `page` of the image that this rank writes in a round.
Stamp stamp(const Rank& rank, std::uint32_t round, std::uint64_t page) {
  return {rank.number, round, page};
}

class Bench {
 public:
  explicit Bench(const BenchOptions& options) : options_(options) {
    std::mt19937_64 random{std::random_device{}()};
    for (std::uint32_t i = 0; i < options.ranks; ++i) {
      Rank& rank = ranks_.emplace_back();
      rank.number = i;
      rank.block.resize(options.block_bytes);
      for (std::size_t at = 0; at + 8 <= rank.block.size(); at += 8) {
        const std::uint64_t word = random();
        std::memcpy(rank.block.data() + at, &word, sizeof word);
      }
    }
  }

  /// GB/s of all ranks together, by name, of one round in one directory.
  Outcome<std::map<std::string, double>> measure(const std::string& directory,
                                                 std::uint32_t round) {
    for (Rank& rank : ranks_)
      rank.path = fmt::format("{}/bench.N{}.T{}", directory, rank.number, round);
    std::map<std::string, double> found;
    const auto began = Clock::now();
    const auto timed = [&](const char* what, Clock::time_point since, auto work) -> Outcome<void> {
      share_out(ranks_, ranks_.size(), [&] { return [&](Rank& rank) { rank.done = work(rank); }; });
      found[what] =
          static_cast<double>(options_.size) * options_.ranks / 1e9 / seconds_since(since);
      for (const Rank& rank : ranks_) {
        if (!rank.done) return problem(rank.done.error());
      }
      return {};
    };
    if (auto done = timed("OT", began, [&](Rank& rank) { return write(rank, round); }); !done) {
      return problem(done.error());
    }
    if (auto done = timed("AT", began, store); !done) return problem(done.error());
    const auto reading = [&](Rank& rank) { return read(rank, round); };
    if (auto done = timed("read", Clock::now(), reading); !done) return problem(done.error());
    for (const Rank& rank : ranks_) ::unlink(rank.path.c_str());
    return found;
  }

 private:
  Outcome<void> write(Rank& rank, std::uint32_t round) {
    OpenedFile file(rank.path, O_WRONLY | O_CREAT | O_EXCL);
    if (file.fd() < 0) return problem(system_problem("cannot create", rank.path));
    for (std::uint64_t at = 0; at < options_.size;) {
      if (asked_to_end()) return problem("ended by a signal");
      const std::size_t bytes = block_at(at);
      for (std::size_t page = 0; page + sizeof(Stamp) <= bytes; page += kPage) {
        const Stamp mark = stamp(rank, round, (at + page) / kPage);
        std::memcpy(rank.block.data() + page, mark.data(), sizeof mark);
      }
      for (std::size_t done = 0; done < bytes;) {
        const ssize_t count = ::write(file.fd(), rank.block.data() + done, bytes - done);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return problem(system_problem("cannot write", rank.path));
        done += static_cast<std::size_t>(count);
      }
      at += bytes;
    }
    if (!file.close()) return problem(system_problem("cannot close", rank.path));
    return {};
  }

  /// A mount that closes early has it stored when it is opened again; others when it is synced.
  static Outcome<void> store(Rank& rank) {
    const OpenedFile file(rank.path, O_RDONLY);
    if (file.fd() < 0) return problem(system_problem("cannot open", rank.path));
    if (::fsync(file.fd()) != 0) return problem(system_problem("cannot sync", rank.path));
    // What is read next should not come from this machine's page cache.
    ::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_DONTNEED);
    return {};
  }

  Outcome<void> read(Rank& rank, std::uint32_t round) {
    const OpenedFile file(rank.path, O_RDONLY);
    if (file.fd() < 0) return problem(system_problem("cannot open", rank.path));
    for (std::uint64_t at = 0; at < options_.size;) {
      if (asked_to_end()) return problem("ended by a signal");
      const std::size_t bytes = block_at(at);
      for (std::size_t done = 0; done < bytes;) {
        const ssize_t count = ::read(file.fd(), rank.block.data() + done, bytes - done);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return problem(system_problem("cannot read", rank.path));
        if (count == 0) return problem("{} is too short: it ends at {}", rank.path, at + done);
        done += static_cast<std::size_t>(count);
      }
      for (std::size_t page = 0; page + sizeof(Stamp) <= bytes; page += kPage) {
        const Stamp mark = stamp(rank, round, (at + page) / kPage);
        if (std::memcmp(rank.block.data() + page, mark.data(), sizeof mark) != 0) {
          return problem("{} has other bytes at {} than were written", rank.path, at + page);
        }
      }
      at += bytes;
    }
    return {};
  }

  std::size_t block_at(std::uint64_t at) const {
    return static_cast<std::size_t>(std::min(options_.block_bytes, options_.size - at));
  }

  const BenchOptions& options_;
  std::vector<Rank> ranks_;
};

Outcome<void> check_room(const std::string& directory, std::uint64_t wanted) {
  struct statvfs space {};
  if (::statvfs(directory.c_str(), &space) != 0) {
    return problem(system_problem("cannot look at", directory));
  }
  const std::uint64_t free = std::uint64_t{space.f_bavail} * space.f_frsize;
  if (free >= wanted) return {};
  return problem("{} has {} free, and {} are needed; use less with --size or --ranks", directory,
                 format_bytes(free), format_bytes(wanted));
}

struct Place {
  std::string directory;
  std::unique_ptr<Scratch> scratch;
  std::map<std::string, std::vector<double>> rates;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

Outcome<std::vector<Place>> measure(const BenchOptions& options) {
  std::vector<Place> places;
  for (const std::string& directory : options.directories) {
    if (auto room = check_room(directory, options.size * options.ranks); !room) {
      return problem(room.error());
    }
    auto scratch = Scratch::make_in(directory);
    if (!scratch) return problem(scratch.error());
    places.push_back({directory, std::move(*scratch), {}});
  }
  Bench bench(options);
  for (std::uint32_t round = 1; round <= options.rounds; ++round) {
    for (Place& place : places) {
      auto found = bench.measure(place.scratch->path(), round);
      if (!found) return problem(found.error());
      for (const auto& [what, rate] : *found) place.rates[what].push_back(rate);
    }
  }
  return places;
}

void show(const std::vector<Place>& places) {
  constexpr std::array kWhat = {"OT", "AT", "read"};
  std::vector<std::vector<std::string>> rows{{"", "OT", "AT", "read"}};
  for (const Place& place : places) {
    auto& row = rows.emplace_back(std::vector{place.directory});
    for (const char* what : kWhat)
      row.push_back(fmt::format("{:.3f} GB/s", median(place.rates.at(what))));
  }
  for (std::size_t i = 1; i < places.size(); ++i) {
    auto& row = rows.emplace_back(std::vector{"times " + places[i].directory});
    for (const char* what : kWhat) {
      row.push_back(fmt::format(
          "{:.2f}", median(places[0].rates.at(what)) / median(places[i].rates.at(what))));
    }
  }
  print_table(rows, {1, 2, 3});
}

}  // namespace

int run_bench(BenchOptions& options) {
  if (options.directories.empty()) {
    auto pool = find_pool(options.pool, "");
    if (!pool) return complain(pool.error().text);
    options.directories.push_back(pool->mount);
  }
  notice_end_signals();
  auto places = measure(options);
  if (!places) return complain(places.error().text);
  if (!options.json) {
    show(*places);
    return kExitGood;
  }
  Json list = Json::array();
  for (const Place& place : *places) {
    list.push_back({{"directory", place.directory}, {"gb_per_s", place.rates}});
  }
  print({{"size", options.size},
         {"block", options.block_bytes},
         {"ranks", options.ranks},
         {"measured", list}});
  return kExitGood;
}

}  // namespace stdchk::tools
