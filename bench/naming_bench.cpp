// Measures checking, naming and sealing of chunks on one core and on all cores at once. CRC32C and
// SHA-256 names, by OpenSSL and by Namer's chosen engine, take turns with two ceilings. The
// ceilings are reading the same memory, and the multi-buffer library alone on pieces of 48 KiB.
// Sealing and opening in place, as the client does them, take turns with AES-256-GCM of the whole
// memory under one key. The chunks are random and together larger than the caches. Prints one JSON
// object for each chunk size and number of threads, with GB/s of each round. With --turns, names
// chunks of 1 MiB on all cores after each input line, so that other programs can take turns.

#include <fmt/core.h>
#if STDCHK_HAVE_IPSEC_MB
#include <intel-ipsec-mb.h>
#endif

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "bench/measuring.h"
#include "core/base/limits.h"
#include "core/chunk/content_tag.h"
#include "core/chunk/naming.h"
#include "core/chunk/sealed_chunk.h"
#include "core/crypto/sealer.h"
#include "core/runtime/options.h"

using namespace stdchk;

namespace {

constexpr std::size_t kTotalBytes = 256 * limits::kMiB;
constexpr int kRounds = 5;
constexpr int kPassesOfTurn = 4;

/// Reads all bytes and returns a value that depends on them.
using Work = std::function<std::uint64_t(MutableByteSpan)>;

/// Applies `one` to each chunk.
template <class One>
Work each_chunk(std::size_t chunk_bytes, One one) {
  return [chunk_bytes, one](MutableByteSpan bytes) {
    std::uint64_t sum = 0;
    for (std::size_t at = 0; at < bytes.size(); at += chunk_bytes) {
      sum += one(bytes.subspan(at, std::min(chunk_bytes, bytes.size() - at)));
    }
    return sum;
  };
}

std::uint64_t number_of(const ChunkName& name) {
  return std::to_integer<std::uint64_t>(name.bytes[0]);
}

#if STDCHK_HAVE_IPSEC_MB
/// SHA-256 in lanes, on pieces of the library's maximum length.
Work raw_lanes() {
  static constexpr std::size_t kPiece = 48 * limits::kKiB;
  struct FreeManager {
    void operator()(IMB_MGR* manager) const { free_mb_mgr(manager); }
  };
  const std::shared_ptr<IMB_MGR> manager(alloc_mb_mgr(0), FreeManager());
  if (manager == nullptr) bench::give_up("the multi-buffer library has no memory");
  IMB_ARCH arch = IMB_ARCH_NONE;
  init_mb_mgr_auto(manager.get(), &arch);
  return [manager](ByteSpan bytes) {
    std::array<std::uint8_t, 32> digest{};
    std::uint64_t done = 0;
    for (std::size_t at = 0; at < bytes.size(); at += kPiece) {
      IMB_JOB* job = IMB_GET_NEXT_JOB(manager.get());
      job->src = reinterpret_cast<const std::uint8_t*>(bytes.data() + at);
      job->hash_start_src_offset_in_bytes = 0;
      job->msg_len_to_hash_in_bytes = std::min(kPiece, bytes.size() - at);
      job->auth_tag_output = digest.data();
      job->auth_tag_output_len_in_bytes = digest.size();
      job->hash_alg = IMB_AUTH_SHA_256;
      job->cipher_mode = IMB_CIPHER_NULL;
      job->cipher_direction = IMB_DIR_ENCRYPT;
      job->chain_order = IMB_ORDER_HASH_CIPHER;
      done += IMB_SUBMIT_JOB_NOCHECK(manager.get()) != nullptr;
    }
    while (IMB_FLUSH_JOB(manager.get()) != nullptr) ++done;
    return done;
  };
}
#endif

/// Makes each measured work anew for each thread.
using Makers = std::map<std::string, std::function<Work()>>;

Makers makers_for(std::size_t chunk_bytes) {
  Makers makers;
  makers["read"] = [=] { return each_chunk(chunk_bytes, bench::sum_words); };
  makers["crc32c"] = [=] {
    return each_chunk(chunk_bytes, [](ByteSpan bytes) { return crc32c(0, bytes); });
  };
  makers["name, one stream"] = [=] {
    return each_chunk(chunk_bytes, [](ByteSpan bytes) { return number_of(name_chunk(bytes)); });
  };
  makers["name"] = [=] {
    const auto namer = std::make_shared<Namer>();
    return each_chunk(std::max(chunk_bytes, kNamedTogetherBytes), [=](ByteSpan bytes) {
      std::vector<ChunkPieces> chunks;
      for (; !bytes.empty(); bytes = bytes.subspan(chunks.back()[0].size())) {
        chunks.push_back({bytes.first(std::min(chunk_bytes, bytes.size())), ByteSpan()});
      }
      std::vector<ChunkName> names(chunks.size());
      namer->name(chunks, names);
      return number_of(names.back()) + names.size();
    });
  };
  makers["tag"] = [=] {
    const auto tagger = std::make_shared<ContentTagger>();
    return each_chunk(chunk_bytes, [tagger](ByteSpan bytes) {
      return std::to_integer<std::uint64_t>(tagger->tag({bytes, ByteSpan()})[0]);
    });
  };
  makers["seal"] = [=] {
    const auto sealer = std::make_shared<ChunkSealer>(Secret{});
    return each_chunk(chunk_bytes, [sealer](MutableByteSpan bytes) {
      // Uses a made-up name: naming is measured elsewhere.
      ChunkName name;
      name.bytes[0] = bytes[0] | std::byte{1};
      const ChunkName sealed = sealer->seal({bytes, {}}, name);
      return number_of(sealed) + crc32c(0, bytes);
    });
  };
  makers["open"] = [=] {
    const auto sealer = std::make_shared<ChunkSealer>(Secret{});
    MutableByteSpan nothing;
    const ChunkName name = sealer->seal({nothing, nothing}, {});
    return each_chunk(chunk_bytes, [sealer, name](MutableByteSpan bytes) {
      // The authentication fails at the end, which costs the same as success.
      const std::uint64_t crc = crc32c(0, bytes);
      return crc + (sealer->open(name, bytes).has_value() ? 1U : 0U);
    });
  };
  makers["raw AES-256-GCM"] = [=] {
    const auto sealer = std::make_shared<Sealer>();
    sealer->set_key({});
    return each_chunk(limits::kMiB, [sealer](MutableByteSpan bytes) {
      return std::to_integer<std::uint64_t>(sealer->seal(0, bytes, bytes)[0]);
    });
  };
#if STDCHK_HAVE_IPSEC_MB
  makers["raw lanes"] = raw_lanes;
#endif
  return makers;
}

/// GB/s of all threads together; each works on its part of the bytes.
double rate(MutableByteSpan bytes, const std::vector<Work>& works) {
  using Timer = std::chrono::steady_clock;
  const std::size_t part = bytes.size() / works.size();
  std::barrier start(static_cast<std::ptrdiff_t>(works.size()) + 1);
  std::vector<std::uint64_t> sums(works.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < works.size(); ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      sums[i] = works[i](bytes.subspan(i * part, part));
    });
  }
  start.arrive_and_wait();
  const auto started = Timer::now();
  for (std::thread& thread : threads) thread.join();
  const std::chrono::duration<double> took = Timer::now() - started;
  if (std::ranges::count(sums, 0U) > 0) bench::give_up("nothing was computed");
  return static_cast<double>(part * works.size()) / took.count() / 1e9;
}

nlohmann::json measure(MutableByteSpan bytes, std::size_t chunk_bytes, unsigned threads) {
  std::map<std::string, std::vector<Work>> works;
  for (const auto& [name, make] : makers_for(chunk_bytes)) {
    for (unsigned i = 0; i < threads; ++i) works[name].push_back(make());
  }
  const double taken = bench::wall_seconds();
  std::map<std::string, std::vector<double>> rates;
  for (int round = 0; round <= kRounds; ++round) {
    for (const auto& [name, each] : works) {
      const double one = rate(bytes, each);
      if (round > 0) rates[name].push_back(one);
    }
  }
  return {{"chunk_bytes", chunk_bytes},
          {"threads", threads},
          {"engine", Namer().engine()},
          {"taken", taken},
          {"gb_per_s", rates}};
}

/// After each input line, names the bytes and prints the GB and the seconds.
void take_turns(MutableByteSpan bytes, unsigned threads) {
  std::vector<Work> works;
  for (unsigned i = 0; i < threads; ++i) {
    works.emplace_back([name = makers_for(limits::kMiB).at("name")()](MutableByteSpan part) {
      std::uint64_t sum = 0;
      for (int pass = 0; pass < kPassesOfTurn; ++pass) sum += name(part);
      return sum;
    });
  }
  for (std::string line; std::getline(std::cin, line);) {
    const double size = kPassesOfTurn * static_cast<double>(bytes.size()) / 1e9;
    const double seconds = size / (kPassesOfTurn * rate(bytes, works));
    fmt::print("{}\n", nlohmann::json{{"gb", size}, {"seconds", seconds}}.dump());
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  bool turns = false;
  Options options("naming-bench", "Measures checking, naming and sealing of chunks.");
  options.flag("--turns", turns, "name chunks of 1 MiB on all cores whenever a line comes");
  if (const auto status = options.parse_or_exit(argc, argv)) return *status;
  const MutableByteSpan bytes = bench::random_memory(kTotalBytes, 1);
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  if (turns) {
    take_turns(bytes, cores);
    return 0;
  }
  for (const std::size_t chunk : {64 * limits::kKiB, limits::kMiB, 4 * limits::kMiB}) {
    for (const unsigned threads : {1U, cores}) {
      fmt::print("{}\n", measure(bytes, chunk, threads).dump());
      if (cores == 1) break;
    }
  }
  return 0;
}
