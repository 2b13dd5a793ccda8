#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/base/problem.h"

namespace stdchk::tools {

/// A Finding is one result of `stdchk doctor`.
struct Finding {
  enum class Kind { kGood, kNote, kBad };
  Kind kind = Kind::kGood;
  std::string what;             ///< subject, such as "FUSE device"
  std::string found;            ///< result, such as "/dev/fuse can be opened"
  std::string remedy;           ///< remedy; empty: none needed
  nlohmann::json figures = {};  ///< figures for programs, if there are any
};

/// Examines everything on this machine that a pool needs or profits from. Changes nothing.
/// doctor_network.h examines the network.
std::vector<Finding> examine_machine(const std::string& invoked_as);

/// Checks that FUSE works, which every mount needs. The Problem says what remains possible without.
Outcome<void> check_mounting();
/// Checks that the machine has this much memory for benefactors.
Outcome<void> check_memory(std::uint64_t memory_bytes);

}  // namespace stdchk::tools
