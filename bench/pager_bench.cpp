// Measures images that stdchk-pager (STDCHK_PAGER) maps. Times: first touch of a page after a jump,
// and minor fault (the page server has the page). Rate: touching all pages in sequence. Raw reads
// of 4 KiB between two processes take turns: process_vm_readv for shm, a TCP request and answer for
// tcp. Prints JSON.
//
// Each image is one round. It must be new to the page server. A program jumps in its first half and
// runs through its second half.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/measuring.h"
#include "bench/raw_peer.h"
#include "core/base/limits.h"
#include "core/runtime/options.h"
#include "fork/pager/stdchk_map.h"

namespace stdchk::bench {
namespace {

using Timer = std::chrono::steady_clock;

constexpr std::uint64_t kPage = 4096;
/// Jumps lie so far apart that a page fetched ahead is never touched.
constexpr std::uint64_t kApart = 64 * limits::kKiB;
constexpr std::size_t kRawReads = 2000;

double microseconds_since(Timer::time_point start) {
  return std::chrono::duration<double, std::micro>(Timer::now() - start).count();
}

/// A Mapping is an image that is mapped for reading.
struct Mapping {
  explicit Mapping(const std::string& image) {
    stdchk_map_options options;
    stdchk_map_options_init(&options);
    options.protection = PROT_READ;
    at = static_cast<volatile const std::uint8_t*>(
        stdchk_map_image(image.c_str(), &options, &length));
    if (at == nullptr) give_up("cannot map " + image + ": " + stdchk_map_error());
  }
  ~Mapping() { stdchk_unmap_image(const_cast<std::uint8_t*>(at)); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  volatile const std::uint8_t* at = nullptr;
  std::size_t length = 0;
};

/// Sorted microseconds of the touches of one page in each kApart bytes of the first half, in an
/// order without runs.
std::vector<double> jumps(const Mapping& image) {
  std::vector<double> took;
  const std::uint64_t places = image.length / 2 / kApart;
  constexpr std::uint64_t kStep = 7919;  // a prime: every place comes once
  for (std::uint64_t i = 0; i < places; ++i) {
    const auto start = Timer::now();
    static_cast<void>(image.at[i * kStep % places * kApart]);
    took.push_back(microseconds_since(start));
  }
  std::ranges::sort(took);
  return took;
}

/// GB a second of a run through the second half.
double run_through(const Mapping& image) {
  const auto start = Timer::now();
  for (std::uint64_t at = image.length / 2; at < image.length; at += kPage) {
    static_cast<void>(image.at[at]);
  }
  return static_cast<double>(image.length / 2) / 1e3 / microseconds_since(start);
}

std::vector<double> raw_reads(const RawPeer& peer, ByteSpan memory, bool by_tcp) {
  std::vector<double> took;
  std::vector<std::byte> page(kPage);
  for (std::size_t i = 0; i < kRawReads; ++i) {
    const std::uint64_t offset = i * 7919 % (memory.size() / kPage) * kPage;
    const auto start = Timer::now();
    by_tcp ? peer.ask(offset, page) : peer.copy(offset, page);
    took.push_back(microseconds_since(start));
  }
  std::ranges::sort(took);
  return took;
}

int run(const std::string& transport, const std::vector<std::string>& images) {
  const MutableByteSpan memory = random_memory(64 * limits::kMiB, 1);
  const RawPeer peer(kPage, memory);
  std::map<std::string, std::map<std::string, std::vector<double>>> figures;
  const auto add = [&](const std::string& what, const std::vector<double>& took) {
    figures[what]["median_us"].push_back(took[took.size() / 2]);
    figures[what]["p99_us"].push_back(took[took.size() * 99 / 100]);
  };
  for (const std::string& name : images) {
    const Mapping first(name);
    add("jump", jumps(first));
    add("raw", raw_reads(peer, memory, transport == "tcp"));
    figures["run"]["gb_per_s"].push_back(run_through(first));
    const Mapping second(name);
    add("minor", jumps(second));
  }
  nlohmann::json out(figures);
  out["taken"] = wall_seconds();
  std::printf("%s\n", out.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace stdchk::bench

int main(int argc, char** argv) {
  using namespace stdchk;
  std::string transport = "shm";
  std::vector<std::string> images;
  Options options("pager-bench", "Measures images mapped by stdchk-pager beside raw reads.");
  options.choice("--transport", transport, {"tcp", "shm"}, "how bytes move to the page server");
  options.arguments("IMAGE", images, "images of the pool, one for each round").required();
  if (const auto status = options.parse_or_exit(argc, argv)) return *status;
  return bench::run(transport, images);
}
