// Measures the client library's overhead over moving the bytes. Writes a sequential image through
// the library and, in turns, through a raw loop (raw_loop.h). Kind, chunk size, window and number
// of processes are equal. Prints JSON for each round: GB/s, CPU seconds per GB at client and
// benefactors, calls to the manager. With --memory: the library's memory beyond its window, and for
// each chunk.
//
// The library's figures are achieved throughput: from open until close has returned, when all is
// stored and committed. The loop's time ends when the last byte is delivered.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/measuring.h"
#include "bench/pool.h"
#include "bench/raw_loop.h"
#include "client/api/filesystem.h"
#include "core/base/limits.h"
#include "core/runtime/options.h"

namespace stdchk::bench {
namespace {

constexpr std::size_t kStep = limits::kMiB;  ///< of one write call

struct Settings {
  std::string state;
  Pool pool;
  std::string transport = "shm";
  std::uint64_t image_bytes = limits::kGiB;
  std::uint64_t window_bytes = limits::kWindowBytesDefault;
  std::uint32_t rounds = 5;
  std::string memory;  ///< which memory to measure; empty: measures speed
};

enum class Way { kWrite, kReserveAndCopy, kReserve };

client::Options options_of(const Settings& settings, Naming naming) {
  client::Options options;
  options.manager_address = settings.pool.manager;
  options.keyring = settings.pool.keyring;
  options.transport = settings.transport;
  options.naming = naming;
  options.chunk_bytes = limits::kChunkBytesDefault;
  options.window_bytes = settings.window_bytes;
  return options;
}

std::unique_ptr<client::Filesystem> connect(const Settings& settings, Naming naming) {
  return must(client::Filesystem::connect(options_of(settings, naming)));
}

std::unique_ptr<client::File> create(client::Filesystem& filesystem, const std::string& name) {
  client::OpenFlags flags;
  flags.write = flags.create = flags.exclusive = true;
  return must(filesystem.create(kRootFile, name, flags, client::Owner{}));
}

/// Returns the number of calls to the manager. Repeats `image` until `total` bytes were written.
std::uint64_t write_image(client::Filesystem& filesystem, const std::string& name, ByteSpan image,
                          std::uint64_t total, Way way) {
  const auto file = create(filesystem, name);
  for (std::uint64_t at = 0; at < total;) {
    const auto from = static_cast<std::size_t>(at % image.size());
    std::size_t count = std::min<std::size_t>({kStep, total - at, image.size() - from});
    if (way == Way::kWrite) {
      must(file->write(at, image.subspan(from, count)));
    } else {
      const auto span = must(file->reserve(at, count));
      count = span.size();
      if (way == Way::kReserveAndCopy) std::memcpy(span.data(), image.data() + from, count);
      must(file->submit(at, count));
    }
    at += count;
  }
  must(file->close());
  return file->figures().manager_calls;
}

/// The values of each round, by measure and write mode.
using Figures = std::map<std::string, std::map<std::string, std::vector<double>>>;

class Comparison {
 public:
  explicit Comparison(const Settings& settings)
      : settings_(settings),
        gigabytes_(static_cast<double>(settings.image_bytes) / 1e9),
        raw_(RawLoop::start(settings.transport, shape(settings))),
        image_(random_memory(settings.image_bytes, 1)) {}

  /// Drops the first round, which warms memory and links up.
  Figures run() {
    for (round_ = 0; round_ <= settings_.rounds; ++round_) {
      change_pages(image_, round_ + 1);
      raw("raw_copy_and_write", image_);
      library("library_write", Way::kWrite, Naming::kOff);
      library("library_reserve_copy_submit", Way::kReserveAndCopy, Naming::kOff);
      raw("raw_write", {});
      raw("raw_checksum_and_write", {}, true);
      library("library_reserve_submit", Way::kReserve, Naming::kOff);
      library("library_write_naming", Way::kWrite, Naming::kOn);
    }
    return figures_;
  }

 private:
  static RawShape shape(const Settings& settings) {
    RawShape shape;
    shape.targets = settings.pool.benefactors.size();
    shape.window_bytes = settings.window_bytes;
    shape.arena_bytes =
        settings.image_bytes / shape.targets / shape.chunk_bytes * shape.chunk_bytes;
    return shape;
  }

  void raw(const char* what, ByteSpan image, bool checksums = false) {
    measure(what, raw_->targets(), [&] { raw_->run(image, settings_.image_bytes, checksums); });
  }

  void library(const char* what, Way way, Naming naming) {
    const auto filesystem = connect(settings_, naming);
    const std::string name = "bench.N0.T" + std::to_string(round_);
    std::uint64_t calls = 0;
    measure(what, settings_.pool.benefactors,
            [&] { calls = write_image(*filesystem, name, image_, image_.size(), way); });
    add("manager_calls", what, static_cast<double>(calls));
    must(filesystem->remove(kRootFile, name, false));
  }

  void measure(const char* what, const std::vector<pid_t>& others,
               const std::function<void()>& work) {
    const double here = cpu_seconds(0);
    const double there = cpu_seconds(others);
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    add("gb_per_s", what, gigabytes_ / took.count());
    add("client_cpu_s_per_gb", what, (cpu_seconds(0) - here) / gigabytes_);
    add("benefactor_cpu_s_per_gb", what, (cpu_seconds(others) - there) / gigabytes_);
  }

  void add(const char* kind, const char* what, double value) {
    if (round_ > 0) figures_[kind][what].push_back(value);
  }

  const Settings& settings_;
  const double gigabytes_;
  const std::unique_ptr<RawLoop> raw_;
  const MutableByteSpan image_;
  Figures figures_;
  std::uint32_t round_ = 0;
};

// ---- memory -----------------------------------------------------------------------------------

std::uint64_t peak_resident_bytes() {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) * limits::kKiB;
  }
  give_up("/proc/self/status has no VmHWM");
}

/// Writes an image from a block of 1 MiB, so that the resident memory is the library's.
void measure_memory(const Settings& settings) {
  std::vector<std::byte> block(kStep);
  fill_random(block, settings.image_bytes);
  const auto filesystem = connect(settings, Naming::kOff);
  write_image(*filesystem, "memory.N0.T1", block, settings.image_bytes, Way::kWrite);
  must(filesystem->remove(kRootFile, "memory.N0.T1", false));
  const nlohmann::json out{{"taken", wall_seconds()},
                           {"image_bytes", settings.image_bytes},
                           {"window_bytes", settings.window_bytes},
                           {"bytes_beyond_window", peak_resident_bytes() - settings.window_bytes}};
  std::printf("%s\n", out.dump().c_str());
}

// ---- memory of each chunk ---------------------------------------------------------------------

const std::string kChunksName = "chunks.N0.T1";
constexpr std::uint64_t kReaders = 8;

/// Content-defined chunks with a mean of 16 KiB, each with a name.
std::unique_ptr<client::Filesystem> connect_for_chunks(const Settings& settings) {
  client::Options options = options_of(settings, Naming::kOn);
  options.chunk_bytes = limits::kChunkBytesMin;
  options.content_cuts = true;
  return must(client::Filesystem::connect(options));
}

void print_chunks(double chunks, std::uint64_t bytes) {
  const nlohmann::json out{{"taken", wall_seconds()},
                           {"chunks", chunks},
                           {"bytes_a_chunk", static_cast<double>(bytes) / chunks}};
  std::printf("%s\n", out.dump().c_str());
}

/// The growth during the second half of an uncommitted image; keeps the image.
void measure_written_chunks(const Settings& settings) {
  const auto filesystem = connect_for_chunks(settings);
  const auto file = create(*filesystem, kChunksName);
  std::vector<std::byte> block(kStep);
  const std::uint64_t half = settings.image_bytes / kStep / 2 * kStep;
  std::uint64_t before = 0;
  for (std::uint64_t at = 0; at < 2 * half; at += kStep) {
    if (at == half) before = resident_bytes();
    fill_random(block, at);
    must(file->write(at, block));
  }
  const std::uint64_t after = resident_bytes();
  must(file->close());
  const auto id = must(filesystem->lookup_fresh(kRootFile, kChunksName)).id;
  const auto map = must(filesystem->map(id)).second;
  const auto chunks = std::count_if(map.slices.begin(), map.slices.end(),
                                    [&](const Slice& slice) { return slice.file_offset >= half; });
  print_chunks(static_cast<double>(chunks), after - before);
}

/// The growth with readers of that image, each of which holds its whole map; removes the image.
void measure_read_chunks(const Settings& settings) {
  const auto filesystem = connect_for_chunks(settings);
  const auto image = must(filesystem->lookup_fresh(kRootFile, kChunksName));
  std::vector<std::unique_ptr<client::File>> readers;
  const auto open_one = [&] {
    client::OpenFlags flags;
    flags.read = true;
    std::byte last{};
    readers.push_back(must(filesystem->open(image.id, flags)));
    must(readers.back()->read(image.size_bytes - 1, {&last, 1}));
  };
  open_one();  // pays for links, the cache and message buffers
  const std::uint64_t before = resident_bytes();
  for (std::uint64_t i = 0; i < kReaders; ++i) open_one();
  const std::uint64_t after = resident_bytes();
  readers.clear();
  const auto map = must(filesystem->map(image.id)).second;
  print_chunks(static_cast<double>(kReaders * map.chunks.size()), after - before);
  must(filesystem->remove(kRootFile, kChunksName, false));
}

void compare(const Settings& settings) {
  nlohmann::json out(Comparison(settings).run());
  out["taken"] = wall_seconds();
  out["image_bytes"] = settings.image_bytes;
  out["window_bytes"] = settings.window_bytes;
  std::printf("%s\n", out.dump().c_str());
}

}  // namespace
}  // namespace stdchk::bench

int main(int argc, char** argv) {
  using namespace stdchk;
  bench::Settings settings;
  Options options("client-bench", "Measures the client library beside a raw loop.");
  options.argument("STATE", settings.state, "state directory of a pool that runs here").required();
  options.choice("--transport", settings.transport, {"tcp", "shm"}, "how bytes move");
  options.size("--size", settings.image_bytes, limits::kMiB, limits::kGiB * 1024, "of the image");
  options.size("--window", settings.window_bytes, 4 * limits::kMiB, 64 * limits::kGiB, "to use");
  options.count("--rounds", settings.rounds, 1, 1000, "that count; one more goes before them");
  options.choice("--memory", settings.memory, {"image", "written", "map"},
                 "measure only memory: of an image, of each of its chunks until the commit, or of "
                 "each in its map, after `written`");
  if (const auto status = options.parse_or_exit(argc, argv)) return *status;
  settings.pool = bench::read_pool(settings.state);
  if (settings.memory == "image") {
    bench::measure_memory(settings);
  } else if (settings.memory == "written") {
    bench::measure_written_chunks(settings);
  } else if (settings.memory == "map") {
    bench::measure_read_chunks(settings);
  } else {
    bench::compare(settings);
  }
  return 0;
}
