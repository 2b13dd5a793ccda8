// Measures stdchk_pread of 4 KiB at random offsets and in sequence, in turns with a raw read of the
// same length between two processes. The raw read is process_vm_readv for shm, and a request with
// its answer over a TCP socket for tcp. Prints JSON: microseconds for a read, median and 99th
// percentile of each round.
//
// The pool is named by STDCHK_MANAGER and STDCHK_SECRET_FILE. The file is written first, and
// removed with the pool.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/measuring.h"
#include "bench/raw_peer.h"
#include "client/api/stdchk.h"
#include "core/base/clock.h"
#include "core/base/limits.h"
#include "core/runtime/options.h"

namespace stdchk::bench {
namespace {

using Timer = std::chrono::steady_clock;

struct Settings {
  std::string transport = "shm";
  std::uint64_t size = 512 * limits::kMiB;
  std::uint64_t block = 4096;
  std::uint32_t reads = 5000;
  std::uint32_t rounds = 5;
};

using ReadAt = std::function<void(std::uint64_t offset, MutableByteSpan out)>;

[[noreturn]] void give_up_library(const std::string& what) {
  give_up(what + ": " + stdchk_error());
}

void write_image(stdchk_pool* pool, const std::string& path, ByteSpan image) {
  stdchk_file* const file = stdchk_open(pool, path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file == nullptr) give_up_library("cannot create " + path);
  if (stdchk_write(file, image.data(), image.size()) != std::ssize(image) ||
      stdchk_close(file) != 0) {
    give_up_library("cannot write " + path);
  }
}

/// Microseconds of each read, sorted. Compares every block with the image.
std::vector<double> times(const Settings& settings, ByteSpan image, bool jumps, Prng& random,
                          const ReadAt& read) {
  std::vector<double> took;
  std::vector<std::byte> block(settings.block);
  const std::uint64_t blocks = image.size() / settings.block;
  for (std::uint32_t i = 0; i < settings.reads; ++i) {
    const std::uint64_t offset = (jumps ? random.next() % blocks : i % blocks) * settings.block;
    const auto start = Timer::now();
    read(offset, block);
    took.push_back(std::chrono::duration<double, std::micro>(Timer::now() - start).count());
    if (std::memcmp(block.data(), image.data() + offset, block.size()) != 0) {
      give_up("the bytes at " + std::to_string(offset) + " are wrong");
    }
  }
  std::ranges::sort(took);
  return took;
}

int run(const Settings& settings) {
  const MutableByteSpan image = random_memory(settings.size, 1);
  const RawPeer peer(settings.block, image);
  stdchk_options options;
  stdchk_options_init(&options);
  options.transport = settings.transport.c_str();
  stdchk_pool* const pool = stdchk_connect(&options);
  if (pool == nullptr) give_up_library("cannot connect");
  const std::string path = "reads.N0.T" + std::to_string(::getpid());
  write_image(pool, path, image);
  std::map<std::string, std::map<std::string, std::vector<double>>> figures;
  Prng random(settings.reads);
  const auto add = [&](const std::string& what, bool jumps, const ReadAt& read) {
    const std::vector<double> took = times(settings, image, jumps, random, read);
    figures[what]["median_us"].push_back(took[took.size() / 2]);
    figures[what]["p99_us"].push_back(took[took.size() * 99 / 100]);
  };
  for (std::uint32_t round = 0; round < settings.rounds; ++round) {
    // A new opener. Only in the first round does the library know nothing of the file's parts.
    stdchk_file* const file = stdchk_open(pool, path.c_str(), O_RDONLY, 0);
    if (file == nullptr) give_up_library("cannot open " + path);
    const ReadAt pread = [file](std::uint64_t offset, MutableByteSpan out) {
      if (stdchk_pread(file, out.data(), out.size(), offset) != std::ssize(out)) {
        give_up_library("cannot read");
      }
    };
    add(round == 0 ? "pread_random_first" : "pread_random", true, pread);
    add("pread_sequential", false, pread);
    add("raw", true, [&](std::uint64_t offset, MutableByteSpan out) {
      settings.transport == "shm" ? peer.copy(offset, out) : peer.ask(offset, out);
    });
    if (stdchk_close(file) != 0) give_up_library("cannot close " + path);
  }
  stdchk_disconnect(pool);
  nlohmann::json out(figures);
  out["transport"] = settings.transport;
  out["block_bytes"] = settings.block;
  out["file_bytes"] = settings.size;
  out["taken"] = wall_seconds();
  std::printf("%s\n", out.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace stdchk::bench

int main(int argc, char** argv) {
  using namespace stdchk;
  bench::Settings settings;
  Options options("reads-bench", "Measures short reads through the C library beside raw ones.");
  options.choice("--transport", settings.transport, {"tcp", "shm"}, "how bytes move");
  options.size("--size", settings.size, limits::kMiB, limits::kGiB * 64, "of the file");
  options.size("--block", settings.block, 512, limits::kMiB, "of one read");
  options.count("--reads", settings.reads, 100, 10000000, "of each kind in a round");
  options.count("--rounds", settings.rounds, 1, 1000, "rounds, each with a new opener");
  if (const auto status = options.parse_or_exit(argc, argv)) return *status;
  return bench::run(settings);
}
