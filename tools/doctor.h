#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/problem.h"

namespace stdchk::tools {

/// A Finding is one thing that `stdchk doctor` looked at.
struct Finding {
  enum class Kind { kGood, kNote, kBad };
  Kind kind = Kind::kGood;
  std::string what;             ///< "FUSE device"
  std::string found;            ///< "/dev/fuse can be opened"
  std::string remedy;           ///< what to do; empty when nothing
  nlohmann::json figures = {};  ///< the same for programs, where there is more than a sentence
};

/// Looks at everything that a pool on this machine needs or profits from. Changes nothing.
/// The network is in doctor_network.h.
std::vector<Finding> examine_machine(const std::string& invoked_as);

/// What a mount cannot do without: FUSE. The Problem says what remains possible.
Outcome<void> check_mounting();
/// That the machine has so many bytes for benefactors.
Outcome<void> check_memory(std::uint64_t memory_bytes);

}  // namespace stdchk::tools
