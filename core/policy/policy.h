#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/problem.h"

namespace stdchk {

/// Settings of a folder, which apply to images there and in subfolders. The numbers are on the wire
/// and in the journal: they are never reused; new keys go to the end.
enum class PolicyKey : std::uint16_t {
  kKeep = 1,           ///< number of newest complete sets that stay; 0: all
  kPurgeAfter = 2,     ///< seconds after which a set is removed; 0: never
  kMustBeDrained = 3,  ///< 1: only a drained set counts as complete, or may be removed
  kDrainEvery = 4,     ///< drains every k-th set
  kImages = 5,         ///< images of a whole set; 0: unknown
  kChunking = 6,       ///< a Chunking; not set: the pool's --naming decides
  kCopies = 7,         ///< the number of a Redundancy (core/policy/redundancy.h)
  kCommit = 8,         ///< a CommitLevel
  kEnd = 9,            ///< an EndOfJob
  kProof = 10,         ///< a Proof
};
inline constexpr PolicyKey kPolicyKeys[] = {
    PolicyKey::kKeep,   PolicyKey::kPurgeAfter, PolicyKey::kMustBeDrained, PolicyKey::kDrainEvery,
    PolicyKey::kImages, PolicyKey::kChunking,   PolicyKey::kCopies,        PolicyKey::kCommit,
    PolicyKey::kEnd,    PolicyKey::kProof};

/// How files are cut into chunks, and whether chunks are named by their content.
enum class Chunking : std::uint8_t { kFixed = 1, kContent = 2, kNone = 3, kAuto = 4 };
/// Requirements for answering a commit.
enum class CommitLevel : std::uint8_t {
  kStored = 1,     ///< one proven copy of each chunk
  kRedundant = 2,  ///< all copies, or the parity
};

/// The evidence that a client needs of each chunk before it commits: the chunk is in the memory of
/// its benefactor.
enum class Proof : std::uint8_t {
  kCompletion = 1,  ///< the transport's write has completed, by the transport's rule of delivery
  kChecksum = 2,    ///< the benefactor has read the chunk and compared its checksum
};

/// The sets that stay after a successful job (`stdchk down --success`).
enum class EndOfJob : std::uint8_t {
  kKeep = 1,
  kLast = 2,    ///< the newest complete set of each application
  kRemove = 3,  ///< no set
};

/// Setting value: inherit from the folder above.
inline constexpr std::uint64_t kPolicyInherit = ~std::uint64_t{0};

struct PolicySetting {
  PolicyKey key = PolicyKey::kKeep;
  std::uint64_t value = 0;
  bool operator==(const PolicySetting&) const = default;
};

/// A Policy holds a folder's own settings, or the settings in force for it. A missing setting comes
/// from the folder above, then from the pool, then from the default.
struct Policy {
  std::vector<PolicySetting> settings;  ///< each key once
  bool operator==(const Policy&) const = default;

  std::optional<std::uint64_t> find(PolicyKey key) const;
  /// Returns the value in force; the default if it is not set.
  std::uint64_t get(PolicyKey key) const;
  std::optional<Chunking> chunking() const;
  Proof proof() const { return static_cast<Proof>(get(PolicyKey::kProof)); }
  CommitLevel commit() const { return static_cast<CommitLevel>(get(PolicyKey::kCommit)); }

  /// Makes each of the changes; kPolicyInherit removes a setting.
  void apply(const Policy& changes);
  /// Adds the settings that `above` has and this policy lacks.
  void inherit(const Policy& above);
};

/// Returns a name such as "purge-after"; empty for a key that this version does not know.
std::string_view policy_name(PolicyKey key);
/// Returns one sentence for people.
std::string_view policy_meaning(PolicyKey key);
/// Returns the value as parse_setting() reads it: "3", "12h", "yes", "content".
std::string format_value(PolicySetting setting);
/// Parses a name and a value, such as "keep" and "3". Every key accepts the value "inherit".
Outcome<PolicySetting> parse_setting(std::string_view name, std::string_view value);
/// Parses settings separated by spaces or commas, such as "keep=3 purge-after=12h".
Outcome<Policy> parse_policy(std::string_view text);
/// Returns nothing when this version accepts the setting; otherwise kInvalidArgument, or
/// kUnsupported for settings that this version lacks. The text is one sentence with the key and the
/// allowed values.
std::optional<Problem> check_setting(PolicySetting setting);

}  // namespace stdchk
