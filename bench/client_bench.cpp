// Measures what the client library adds to moving the bytes: a sequential image is written through
// it, and by a loop of raw one-sided writes to the same benefactors, by the same transport, with
// the same chunk size and window, in turns in one run. Prints JSON: for each transport the minimum,
// median and maximum of each in GB/s, the ratios of the medians, calls to the manager, and what the
// library's memory grows to beyond its buffers.
//
// The library's figures are achieved throughput: from open until close has returned, when all is
// stored and committed. The loop's are from the first byte until the last is delivered.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/raw_loop.h"
#include "client/filesystem.h"

namespace stdchk::bench {
namespace {

constexpr std::size_t kStep = limits::kMiB;  ///< of one write call

enum class Way { kWrite, kReserveAndCopy, kReserve };

struct Through {
  double gb_per_s = 0;
  std::uint64_t manager_calls = 0;
};

/// `image` gives the bytes, again and again until `total` were written.
Through through_library(client::Filesystem& filesystem, const std::string& name, ByteSpan image,
                        std::uint64_t total, Way way) {
  client::OpenFlags flags;
  flags.write = flags.create = flags.exclusive = true;
  const Time start = std::chrono::steady_clock::now();
  auto file = must(filesystem.create(kRootFile, name, flags, client::Owner{}), "create");
  for (std::uint64_t at = 0; at < total;) {
    const std::size_t from = static_cast<std::size_t>(at % image.size());
    std::size_t count = std::min<std::size_t>({kStep, total - at, image.size() - from});
    if (way == Way::kWrite) {
      must_ok(file->write(at, image.subspan(from, count)), "write");
    } else {
      const auto span = must(file->reserve(at, count), "reserve");
      count = span.size();
      if (way == Way::kReserveAndCopy) std::memcpy(span.data(), image.data() + from, count);
      must_ok(file->submit(at, count), "submit");
    }
    at += count;
  }
  must_ok(file->close(), "close");
  const double seconds = seconds_since(start);
  const auto figures = file->figures();
  file.reset();
  must_ok(filesystem.remove(kRootFile, name, false), "remove");
  return {static_cast<double>(total) / 1e9 / seconds, figures.manager_calls};
}

std::unique_ptr<client::Filesystem> connect(const Settings& settings, bool naming) {
  client::Options options;
  options.manager_address = settings.manager;
  options.secret = settings.secret;
  options.transport = settings.transport;
  options.naming = naming;
  options.chunk_bytes = settings.chunk_bytes;
  options.window_bytes = settings.window_bytes;
  return must(client::Filesystem::connect(options), "connect");
}

nlohmann::json summary(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {{"min", values.front()}, {"median", values[values.size() / 2]}, {"max", values.back()}};
}

/// Incompressible, and different for each seed.
void fill(std::vector<std::byte>& bytes, std::uint64_t seed) {
  Prng random(seed);
  for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    const std::uint64_t word = random.next();
    std::memcpy(bytes.data() + i, &word, 8);
  }
}

nlohmann::json compare(const Settings& settings) {
  std::vector<std::byte> image(settings.image_bytes);
  std::map<std::string, std::vector<double>> figures;
  std::uint64_t calls = 0;
  // The first round warms memory and links up and does not count.
  for (int round = 0; round <= settings.rounds; ++round) {
    fill(image, static_cast<std::uint64_t>(round) + 1);
    const auto add = [&](const char* what, double value) {
      std::fprintf(stderr, "%s %s %.2f GB/s\n", settings.transport.c_str(), what, value);
      if (round > 0) figures[what].push_back(value);
    };
    const std::string name = "bench.N0.T" + std::to_string(round);
    {
      RawLoop loop(settings);
      add("raw_copy_and_write", loop.run(image, true));
      add("raw_write", loop.run(image, false));
    }
    {
      const auto off = connect(settings, false);
      const auto through = [&](const char* what, Way way) {
        const Through done = through_library(*off, name, image, image.size(), way);
        calls = std::max(calls, done.manager_calls);
        add(what, done.gb_per_s);
      };
      through("library_write", Way::kWrite);
      through("library_reserve_copy_submit", Way::kReserveAndCopy);
      through("library_reserve_submit", Way::kReserve);
    }
    const auto on = connect(settings, true);
    add("library_write_naming",
        through_library(*on, name, image, image.size(), Way::kWrite).gb_per_s);
  }
  nlohmann::json out;
  for (auto& [what, values] : figures) out["gb_per_s"][what] = summary(values);
  const auto ratio = [&](const char* what, const char* to) {
    out["ratio"][std::string(what) + " / " + to] =
        out["gb_per_s"][what]["median"].get<double>() / out["gb_per_s"][to]["median"].get<double>();
  };
  ratio("library_write", "raw_copy_and_write");
  ratio("library_reserve_copy_submit", "raw_copy_and_write");
  ratio("library_reserve_submit", "raw_write");
  ratio("library_write_naming", "library_write");
  out["manager_calls_naming_off"] = calls;
  return out;
}

// ---- memory -----------------------------------------------------------------------------------

std::uint64_t peak_resident_bytes() {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) * limits::kKiB;
  }
  give_up("/proc/self/status has no VmHWM");
}

/// In a process of its own: writes an image of which no more than 1 MiB is kept here.
int write_for_memory(const Settings& settings) {
  std::vector<std::byte> block(kStep);
  fill(block, settings.image_bytes);
  const auto filesystem = connect(settings, false);
  through_library(*filesystem, "memory.N0.T1", block, settings.image_bytes, Way::kWrite);
  std::printf("%llu\n", static_cast<unsigned long long>(peak_resident_bytes()));
  return 0;
}

/// What such a process had resident beyond the window.
std::uint64_t memory_beyond_window(const Settings& settings, char** argv, std::uint64_t mebibytes) {
  std::array<char, 4096> self{};
  if (::readlink("/proc/self/exe", self.data(), self.size() - 1) < 0) give_up("/proc/self/exe");
  const std::string command = "'" + std::string(self.data()) + "' '" + argv[1] + "' '" + argv[2] +
                              "' " + std::to_string(mebibytes) + " memory " + settings.transport;
  FILE* child = ::popen(command.c_str(), "r");
  if (child == nullptr) give_up("cannot start a process");
  unsigned long long peak = 0;
  const bool told = std::fscanf(child, "%llu", &peak) == 1;
  if (::pclose(child) != 0 || !told) give_up("the process that measures memory failed");
  return peak - settings.window_bytes;
}

int run(Settings settings, char** argv) {
  nlohmann::json out;
  for (const char* transport : {"shm", "ofi:tcp"}) {
    settings.transport = transport;
    nlohmann::json& figures = out[transport];
    figures = compare(settings);
    for (const std::uint64_t mebibytes : {256, 1024}) {
      figures["peak_bytes_beyond_window"][std::to_string(mebibytes) + " MiB"] =
          memory_beyond_window(settings, argv, mebibytes);
    }
  }
  out["image_bytes"] = settings.image_bytes;
  out["chunk_bytes"] = settings.chunk_bytes;
  out["window_bytes"] = settings.window_bytes;
  out["rounds"] = settings.rounds;
  std::printf("%s\n", out.dump(2).c_str());
  return 0;
}

std::string first_word(const char* path) {
  std::ifstream in(path);
  std::string word;
  in >> word;
  return word;
}

}  // namespace
}  // namespace stdchk::bench

/// client-bench ADDRESS_FILE SECRET_FILE [MEBIBYTES [ROUNDS]]: of a pool that runs.
int main(int argc, char** argv) {
  using namespace stdchk;
  if (argc < 3) {
    std::fprintf(stderr, "usage: client-bench ADDRESS_FILE SECRET_FILE [MEBIBYTES [ROUNDS]]\n");
    return 2;
  }
  bench::Settings settings;
  settings.manager = bench::first_word(argv[1]);
  const std::string secret = bench::first_word(argv[2]);
  if (secret.size() != 32) bench::give_up("the secret file must hold 32 digits");
  settings.secret.high = std::stoull(secret.substr(0, 16), nullptr, 16);
  settings.secret.low = std::stoull(secret.substr(16), nullptr, 16);
  if (argc > 3) settings.image_bytes = std::stoull(argv[3]) << 20;
  if (argc > 5 && std::string(argv[4]) == "memory") {
    settings.transport = argv[5];
    return bench::write_for_memory(settings);
  }
  if (argc > 4) settings.rounds = std::stoi(argv[4]);
  return bench::run(settings, argv);
}
