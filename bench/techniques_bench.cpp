// Compares the write techniques of the stdchk paper (Al-Kiswany et al., ICDCS 2008, section IV.C)
// on a running pool. The techniques are complete local write, incremental write, and stdchk's
// sliding window of several sizes. OT: size / (open until close returns). AT: size / (open until
// the image is committed in the pool). Prints one JSON object a line.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "bench/measuring.h"
#include "bench/pool.h"
#include "client/api/filesystem.h"
#include "core/base/limits.h"
#include "core/base/units.h"
#include "core/runtime/options.h"

namespace {

using stdchk::bench::change_pages;
using stdchk::bench::give_up;
using stdchk::bench::must;
using stdchk::bench::random_memory;
using stdchk::client::CloseMode;
using stdchk::client::File;
using stdchk::client::Filesystem;
using Timer = std::chrono::steady_clock;

constexpr std::size_t kBlock = stdchk::limits::kMiB;

double seconds_since(Timer::time_point start) {
  return std::chrono::duration<double>(Timer::now() - start).count();
}

struct Times {
  double observed = 0;
  double achieved = 0;
};

struct Case {
  std::string technique;
  std::uint64_t window_bytes = 0;
  std::vector<double> observed = {};  ///< GB/s of each counted round
  std::vector<double> achieved = {};
};

class Bench {
 public:
  Bench(const stdchk::bench::Pool& pool, std::string local, std::size_t bytes)
      : local_(std::move(local)), image_(random_memory(bytes, 0)) {
    options_.manager_address = pool.manager;
    options_.keyring = pool.keyring;
  }

  /// Runs the cases in turns; drops the first round.
  void run(std::vector<Case>& cases, unsigned rounds) {
    for (unsigned round = 0; round <= rounds; ++round) {
      for (Case& each : cases) {
        const Times times = run_once(each);
        if (round == 0) continue;
        each.observed.push_back(gigabytes() / times.observed);
        each.achieved.push_back(gigabytes() / times.achieved);
      }
    }
  }

 private:
  Times run_once(const Case& each) {
    options_.window_bytes = each.window_bytes;
    const bool early = each.technique == "sliding-early";
    options_.close_mode = early ? CloseMode::kEarly : CloseMode::kStored;
    pool_ = must(Filesystem::connect(options_));
    change_pages(image_, ++seed_);
    const std::string name = "technique.N0.T" + std::to_string(seed_);
    const Times times = write(each.technique, name);
    must(pool_->remove(stdchk::kRootFile, name, false));
    pool_.reset();
    return times;
  }

  double gigabytes() const { return static_cast<double>(image_.size()) / 1e9; }

  Times write(const std::string& technique, const std::string& name) {
    if (technique == "local") return complete_local_write(name);
    if (technique == "incremental") return incremental_write(name);
    return sliding_window(name);
  }

  std::unique_ptr<File> create(const std::string& name) {
    stdchk::client::OpenFlags flags;
    flags.write = flags.create = true;
    return must(pool_->create(stdchk::kRootFile, name, flags, {}));
  }

  Times sliding_window(const std::string& name) {
    const auto start = Timer::now();
    Times times;
    auto file = create(name);
    for (std::size_t at = 0; at < image_.size(); at += kBlock) {
      must(file->write(at, block(at)));
    }
    must(file->close());
    times.observed = seconds_since(start);
    wait_committed(name);
    times.achieved = seconds_since(start);
    return times;
  }

  void wait_committed(const std::string& name) {
    const auto deadline = Timer::now() + stdchk::limits::kOperationDeadline;
    for (;;) {
      const auto found = pool_->lookup_fresh(stdchk::kRootFile, name);
      if (found && found->version > 0 && found->size_bytes == image_.size()) return;
      if (Timer::now() > deadline) give_up("the image was not committed in time");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  stdchk::ByteSpan block(std::size_t at) const {
    return stdchk::ByteSpan(image_).subspan(at, std::min(kBlock, image_.size() - at));
  }

  std::string part_path(std::size_t part) const {
    return local_ + "/technique." + std::to_string(::getpid()) + "." + std::to_string(part);
  }

  void write_local(const std::string& path, std::size_t from, std::size_t to) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) give_up("cannot create " + path);
    for (std::size_t at = from; at < to; at += kBlock) {
      const std::size_t length = std::min(kBlock, to - at);
      if (::write(fd, image_.data() + at, length) != static_cast<ssize_t>(length)) {
        give_up("cannot write " + path);
      }
    }
    if (::close(fd) != 0) give_up("cannot close " + path);
  }

  void push_local(const std::string& path, std::size_t from, File& file) {
    std::vector<std::byte> buffer(kBlock);
    const int fd = ::open(path.c_str(), O_RDONLY);
    if (fd < 0) give_up("cannot open " + path);
    for (;;) {
      const ssize_t got = ::read(fd, buffer.data(), buffer.size());
      if (got < 0) give_up("cannot read " + path);
      if (got == 0) break;
      must(file.write(from, stdchk::ByteSpan(buffer.data(), static_cast<std::size_t>(got))));
      from += static_cast<std::size_t>(got);
    }
    ::close(fd);
    ::unlink(path.c_str());
  }

  Times complete_local_write(const std::string& name) {
    const auto start = Timer::now();
    Times times;
    write_local(part_path(0), 0, image_.size());
    times.observed = seconds_since(start);
    auto file = create(name);
    push_local(part_path(0), 0, *file);
    must(file->close());
    times.achieved = seconds_since(start);
    return times;
  }

  /// Writes parts of bounded size; pushes a full part while the next is written.
  Times incremental_write(const std::string& name) {
    constexpr std::size_t kPartBytes = 64 * stdchk::limits::kMiB;
    const auto start = Timer::now();
    Times times;
    auto file = create(name);
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::size_t> full;
    bool ended = false;
    std::thread pusher([&] {
      for (;;) {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return ended || !full.empty(); });
        if (full.empty()) return;
        const std::size_t from = full.front();
        full.pop_front();
        lock.unlock();
        push_local(part_path(from / kPartBytes), from, *file);
      }
    });
    for (std::size_t from = 0; from < image_.size(); from += kPartBytes) {
      write_local(part_path(from / kPartBytes), from, std::min(from + kPartBytes, image_.size()));
      const std::lock_guard lock(mutex);
      full.push_back(from);
      changed.notify_one();
    }
    times.observed = seconds_since(start);
    {
      const std::lock_guard lock(mutex);
      ended = true;
      changed.notify_one();
    }
    pusher.join();
    must(file->close());
    times.achieved = seconds_since(start);
    return times;
  }

  stdchk::client::Options options_;
  std::string local_;
  const stdchk::MutableByteSpan image_;
  std::unique_ptr<Filesystem> pool_;
  std::uint64_t seed_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  std::string state, local;
  std::vector<std::string> words;
  std::uint64_t bytes = 512 * stdchk::limits::kMiB;
  std::uint32_t rounds = 5;
  stdchk::Options options("techniques-bench", "Compares the write techniques of the stdchk paper.");
  options.argument("STATE", state, "state directory of a pool that runs here").required();
  options.arguments("CASES", words, "TECHNIQUE:WINDOW; local, incremental, sliding, sliding-early");
  options.text("--local", local, "DIR", "for local parts").required();
  options.size("--size", bytes, stdchk::limits::kMiB, stdchk::limits::kGiB, "of the image");
  options.count("--rounds", rounds, 1, 1000, "that count; one more goes before them");
  if (const auto status = options.parse_or_exit(argc, argv)) return *status;
  std::vector<Case> cases;
  for (const std::string& word : words) {
    const auto colon = word.find(':');
    if (colon == std::string::npos) give_up(word + " is not TECHNIQUE:WINDOW");
    cases.push_back({word.substr(0, colon), must(stdchk::parse_bytes(word.substr(colon + 1)))});
  }
  Bench(stdchk::bench::read_pool(state), local, bytes).run(cases, rounds);
  for (const Case& each : cases) {
    const nlohmann::json out{{"technique", each.technique},
                             {"window_bytes", each.window_bytes},
                             {"ot", each.observed},
                             {"at", each.achieved},
                             {"taken", stdchk::bench::wall_seconds()}};
    std::printf("%s\n", out.dump().c_str());
  }
  return 0;
}
