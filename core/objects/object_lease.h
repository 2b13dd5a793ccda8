#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/base/clock.h"
#include "core/files/drain_lease.h"
#include "core/objects/object_store.h"

namespace stdchk {

/// An ObjectLease is a DrainLease whose file is an object: PREFIX/.stdchk-lease, with the same text.
/// Conditional writes (If-None-Match, If-Match) make taking and renewing it atomic.
///
/// A store without conditional writes keeps the text, but does not decide between two pools that
/// begin within a second of each other. The first step() tests this, and logs a missing guarantee.
///
/// Threads: one. Calls block up to kPatience for each request.
class ObjectLease final : public LeaseSteps {
 public:
  static constexpr Duration kPatience = std::chrono::milliseconds(2500);

  using Open = std::function<Outcome<std::unique_ptr<ObjectStore>>()>;
  /// `name` is the place, for messages; `key` the lease's. `clock` must outlive this.
  ObjectLease(Open open, std::string name, std::string key, LeaseHolder own, bool inherits,
              const Clock& clock);

  const std::string& place() const override { return name_; }
  State step(Time now) override;
  void release() override;
  const LeaseHolder& holder() const override { return seen_; }
  const std::string& reason() const override { return reason_; }

 private:
  struct Text {
    std::string text;
    std::string etag;
  };
  Outcome<std::optional<Text>> read();
  Outcome<std::optional<Text>> read_once();
  State look(Time now);
  State write(const ObjectStore::Condition& condition);
  State unknown(const Problem& problem);
  Time deadline() const { return clock_.now() + kPatience; }

  const Open open_;
  const std::string name_;
  const std::string key_;
  const LeaseHolder own_;
  const Clock& clock_;
  bool inherits_;
  std::unique_ptr<ObjectStore> store_;
  std::string etag_;  ///< of this process's lease; empty: it has none
  bool has_conditions_ = true;
  bool checked_conditions_ = false;
  std::uint64_t renewals_ = 0;
  LeaseHolder seen_;
  LeaseWatch watch_;
  std::string reason_;
};

}  // namespace stdchk
