#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/limits.h"
#include "core/base/log.h"
#include "metrics/daemon.h"

namespace stdchk::manager {

struct DrainFlags {
  std::string directory;    ///< or an object store
  std::string endpoint;     ///< of the object store
  std::uint64_t rate = 0;   ///< bytes a second of each benefactor; 0: no limit
  std::uint64_t total = 0;  ///< bytes a second of all benefactors; 0: no limit
  bool yields = true;
};

struct ChunkFlags {
  std::uint32_t size_bytes = limits::kChunkBytesDefault;
  std::uint32_t stripe_width = limits::kStripeWidthDefault;
  std::string naming = "auto";
  std::string cutting = "fixed";
};

struct RedundancyFlags {
  std::uint32_t copies = 0;  ///< 0: the policy says
  std::string topology;      ///< path of a file
  std::uint64_t copy_rate = 0;
  std::uint64_t scrub_rate = limits::kScrubRateDefault;
  bool for_readers = true;  ///< near copies
};

struct TakeoverFlags {
  bool rebuild = false;
  std::string standby;  ///< address of the manager to follow
  std::uint32_t after_s = 5;
  bool makes_new_manager() const { return rebuild || !standby.empty(); }
};

/// The command line of stdchk-manager.
struct Flags {
  std::string state;
  std::string secret_file;
  std::string address_file;
  std::string listen = "127.0.0.1";
  DrainFlags drain;
  ChunkFlags chunks;
  std::string policy;
  RedundancyFlags redundancy;
  std::uint32_t gc_period = 600;
  TakeoverFlags takeover;
  bool unconfined = false;
  metrics::Flags metrics;
  log::Level log_level = log::Level::kInfo;
};

/// Fills `flags` from the command line. Returns the exit status when the process must end: after
/// --help, or after a mistake.
std::optional<int> parse(Flags& flags, int argc, char** argv);

}  // namespace stdchk::manager
