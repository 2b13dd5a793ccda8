#pragma once

#include <cstddef>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <utility>

#include "core/chunk/content_tag.h"
#include "core/values/types.h"

namespace stdchk::client {

/// A NameCache maps content tags to the names of contents that this client has named recently.
/// Content that is written again gets its name without being hashed (docs/decisions/0027).
///
/// Limits: keeps the contents named or found last, between `most` / 2 and `most` of them; about 100
///   bytes each.
/// Threads: one at a time (the engine's lock).
class NameCache {
 public:
  static constexpr std::size_t kNamesMost = 65536;

  explicit NameCache(std::size_t most = kNamesMost) : half_(most / 2) {}

  std::optional<ChunkName> find(const ContentTag& tag) {
    if (const auto found = recent_.find(tag); found != recent_.end()) return found->second;
    const auto found = earlier_.find(tag);
    if (found == earlier_.end()) return std::nullopt;
    const ChunkName name = found->second;
    insert(tag, name);
    return name;
  }

  void insert(const ContentTag& tag, const ChunkName& name) {
    if (recent_.size() >= half_) earlier_ = std::exchange(recent_, {});
    recent_.insert_or_assign(tag, name);
  }

 private:
  struct Hash {
    std::size_t operator()(const ContentTag& tag) const {
      std::size_t bits = 0;
      std::memcpy(&bits, tag.data(), sizeof(bits));
      return bits;
    }
  };
  using Names = std::unordered_map<ContentTag, ChunkName, Hash>;

  const std::size_t half_;
  Names recent_;
  Names earlier_;
};

}  // namespace stdchk::client
