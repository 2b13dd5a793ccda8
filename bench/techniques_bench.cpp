// Compares the write techniques of the stdchk paper (Al-Kiswany et al., ICDCS 2008, section IV.C)
// on a running pool: complete local write, incremental write, and the sliding window that stdchk
// uses, the last also for several window sizes. OT: size / (open until close returns). AT: size /
// (open until the image is committed in the pool). Prints one JSON object a line.

#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "client/filesystem.h"
#include "core/clock.h"
#include "core/limits.h"
#include "core/units.h"

namespace {

using stdchk::client::CloseMode;
using stdchk::client::File;
using stdchk::client::Filesystem;
using Timer = std::chrono::steady_clock;

constexpr std::size_t kBlock = stdchk::limits::kMiB;

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "techniques-bench: %s\n", what.c_str());
  std::exit(1);
}

template <class T>
T must(stdchk::Result<T> result) {
  if (!result) die(stdchk::describe(result.error()));
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

double seconds_since(Timer::time_point start) {
  return std::chrono::duration<double>(Timer::now() - start).count();
}

struct Times {
  double observed = 0;
  double achieved = 0;
};

class Bench {
 public:
  Bench(stdchk::client::Options options, std::string local, std::size_t bytes)
      : options_(std::move(options)), local_(std::move(local)), image_(bytes) {}

  void run(const std::string& technique, std::uint64_t window, unsigned runs) {
    options_.window_bytes = window;
    options_.close_mode = technique == "sliding-early" ? CloseMode::kEarly : CloseMode::kStored;
    pool_ = must(Filesystem::connect(options_));
    std::string observed, achieved;
    for (unsigned i = 0; i <= runs; ++i) {
      fill(++seed_);
      const std::string name = "technique.N0.T" + std::to_string(seed_);
      const Times times = write(technique, name);
      must(pool_->remove(stdchk::kRootFile, name, false));
      if (i == 0) continue;
      observed += (i > 1 ? "," : "") + std::to_string(gigabytes() / times.observed);
      achieved += (i > 1 ? "," : "") + std::to_string(gigabytes() / times.achieved);
    }
    std::printf(
        "{\"technique\":\"%s\",\"window_bytes\":%llu,\"unit\":\"GB/s\",\"ot\":[%s],\"at\":[%s]}\n",
        technique.c_str(), static_cast<unsigned long long>(window), observed.c_str(),
        achieved.c_str());
    std::fflush(stdout);
    pool_.reset();
  }

 private:
  double gigabytes() const { return static_cast<double>(image_.size()) / 1e9; }

  /// All of it at first, then a word in every page: no chunk is like one of an earlier image.
  void fill(std::uint64_t seed) {
    stdchk::Prng random(seed);
    const std::size_t step = filled_ ? 4096 : 8;
    for (std::size_t at = 0; at + 8 <= image_.size(); at += step) {
      const std::uint64_t word = random.next();
      std::memcpy(image_.data() + at, &word, 8);
    }
    filled_ = true;
  }

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
      if (Timer::now() > deadline) die("the image was not committed in time");
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
    if (fd < 0) die("cannot create " + path);
    for (std::size_t at = from; at < to; at += kBlock) {
      const std::size_t length = std::min(kBlock, to - at);
      if (::write(fd, image_.data() + at, length) != static_cast<ssize_t>(length)) {
        die("cannot write " + path);
      }
    }
    if (::close(fd) != 0) die("cannot close " + path);
  }

  void push_local(const std::string& path, std::size_t from, File& file) {
    std::vector<std::byte> buffer(kBlock);
    const int fd = ::open(path.c_str(), O_RDONLY);
    if (fd < 0) die("cannot open " + path);
    for (;;) {
      const ssize_t got = ::read(fd, buffer.data(), buffer.size());
      if (got < 0) die("cannot read " + path);
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

  /// The application writes parts of bounded size; a full part is pushed while the next is written.
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
  std::vector<std::byte> image_;
  std::unique_ptr<Filesystem> pool_;
  std::uint64_t seed_ = 0;
  bool filled_ = false;
};

stdchk::msg::Secret read_secret(const std::string& path) {
  std::string digits;
  if (!(std::ifstream(path) >> digits) || digits.size() != 32) die("no secret in " + path);
  return {std::stoull(digits.substr(0, 16), nullptr, 16),
          std::stoull(digits.substr(16), nullptr, 16)};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"compares the write techniques of the stdchk paper on a running pool"};
  stdchk::client::Options options;
  std::string secret_file, local, size = "512M";
  std::vector<std::string> windows{"64M"},
      techniques{"local", "incremental", "sliding", "sliding-early"};
  unsigned runs = 5;
  app.add_option("--manager", options.manager_address)->required();
  app.add_option("--secret-file", secret_file)->required();
  app.add_option("--local", local, "directory for local parts")->required();
  app.add_option("--size", size, "of the image");
  app.add_option("--window", windows, "sizes of the window");
  app.add_option("--technique", techniques, "local, incremental, sliding, sliding-early");
  app.add_option("--runs", runs, "counted runs");
  CLI11_PARSE(app, argc, argv);
  options.secret = read_secret(secret_file);
  Bench bench(options, local, must(stdchk::parse_bytes(size)));
  for (const auto& technique : techniques) {
    for (const auto& window : windows)
      bench.run(technique, must(stdchk::parse_bytes(window)), runs);
  }
  return 0;
}
