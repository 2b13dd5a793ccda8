#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "core/error_codes.h"

namespace stdchk {

/// What a folder may ask for the images in it and below. The numbers are on the wire and in the
/// journal: they are never reused, new ones go to the end.
enum class PolicyKey : std::uint16_t {
  kKeep = 1,           ///< complete sets that stay when newer ones are complete; 0: all
  kPurgeAfter = 2,     ///< seconds after which a set is removed; 0: never
  kMustBeDrained = 3,  ///< 1: only a drained set counts as complete, or may be removed
  kDrainEvery = 4,     ///< every k-th set is drained
  kImages = 5,         ///< images of a whole set; 0: not known
  kChunking = 6,       ///< a Chunking; not set: as the pool's --naming says
  kCopies = 7,         ///< the number of a Redundancy (core/redundancy.h)
  kCommit = 8,         ///< a CommitLevel
  kEnd = 9,            ///< an EndOfJob
  kProof = 10,         ///< a Proof
};
inline constexpr PolicyKey kPolicyKeys[] = {
    PolicyKey::kKeep,   PolicyKey::kPurgeAfter, PolicyKey::kMustBeDrained, PolicyKey::kDrainEvery,
    PolicyKey::kImages, PolicyKey::kChunking,   PolicyKey::kCopies,        PolicyKey::kCommit,
    PolicyKey::kEnd,    PolicyKey::kProof};

/// How files are cut into chunks, and whether these are named by their content.
enum class Chunking : std::uint8_t { kFixed = 1, kContent = 2, kNone = 3, kAuto = 4 };
/// What must be there before a commit is answered.
enum class CommitLevel : std::uint8_t {
  kStored = 1,     ///< one proven copy of each chunk
  kRedundant = 2,  ///< all copies, or the parity
};

/// How it is known, before a commit, that a chunk is where it was written to.
enum class Proof : std::uint8_t {
  kCompletion =
      1,          ///< the transport has told that the write is over, as its conformance suite shows
  kChecksum = 2,  ///< its benefactor has looked at it
};

/// What becomes of the sets of a job that has ended well (`stdchk down --success`).
enum class EndOfJob : std::uint8_t {
  kKeep = 1,
  kLast = 2,    ///< all go but the newest complete one of each application
  kRemove = 3,  ///< all go
};

/// The value of a setting that says: as the folder above has it.
inline constexpr std::uint64_t kPolicyInherit = ~std::uint64_t{0};

struct PolicySetting {
  PolicyKey key = PolicyKey::kKeep;
  std::uint64_t value = 0;
  bool operator==(const PolicySetting&) const = default;
};

/// Why a setting is refused: kInvalidArgument, or kUnsupported for what this version cannot do yet.
struct PolicyProblem {
  Code code = Code::kInvalidArgument;
  std::string text;  ///< one sentence that names the key and what is allowed
};

/// A Policy is the settings of one folder, or those that hold for it. What is not set is inherited
/// from the folder above, then from the pool, then the default.
struct Policy {
  std::vector<PolicySetting> settings;  ///< each key once
  bool operator==(const Policy&) const = default;

  std::optional<std::uint64_t> find(PolicyKey key) const;
  /// The value that holds: the default where nothing is set.
  std::uint64_t get(PolicyKey key) const;
  std::optional<Chunking> chunking() const;
  Proof proof() const { return static_cast<Proof>(get(PolicyKey::kProof)); }
  CommitLevel commit() const { return static_cast<CommitLevel>(get(PolicyKey::kCommit)); }

  /// Sets, or with kPolicyInherit removes, each of the changes.
  void apply(const Policy& changes);
  /// Adds what `above` sets and this one does not.
  void inherit(const Policy& above);
};

/// "purge-after"; empty for a key that this version does not know.
std::string_view policy_name(PolicyKey key);
/// One sentence for people.
std::string_view policy_meaning(PolicyKey key);
/// As parse_setting() reads it: "3", "12h", "yes", "content".
std::string format_value(PolicySetting setting);
/// "keep", "3": a setting. "inherit" is a value of every key.
tl::expected<PolicySetting, PolicyProblem> parse_setting(std::string_view name,
                                                         std::string_view value);
/// "keep=3 purge-after=12h": settings between spaces or commas.
tl::expected<Policy, PolicyProblem> parse_policy(std::string_view text);
/// Nothing when this version can do what the setting says.
std::optional<PolicyProblem> check_setting(PolicySetting setting);

}  // namespace stdchk
