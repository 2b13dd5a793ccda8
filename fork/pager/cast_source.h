#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/clock.h"
#include "core/crypto/secret.h"
#include "fork/multicast/fetcher.h"
#include "fork/multicast/sockets.h"
#include "fork/pager/source.h"

namespace stdchk::pager {

/// A CastPlace says how this host reaches senders of images (stdchk-cast send).
struct CastPlace {
  std::optional<Secret> group;  ///< nothing: images of senders cannot be mapped
  multicast::Address own;       ///< of the interface
};

/// A CastSource supplies the bytes of an image that a sender has, on demand. Hosts that touch the
/// same pages at about the same time get them by one multicast. The name of the image is
/// "cast://ADDRESS:PORT/ROOT"; the root proves each byte.
///
/// Owns: a Fetcher, with its thread and sockets.
/// Errors: kConfig: this host has no group. kDeadline: the sender is silent; only a sender at the
///   same address takes its place.
class CastSource final : public Source {
 public:
  static bool is_name(std::string_view name);
  /// Meets the sender.
  static Result<std::shared_ptr<CastSource>> open(const CastPlace& place, std::string name);
  /// Makes the source of an image of a known length again, and waits for nobody.
  static Result<std::shared_ptr<CastSource>> reopen(const CastPlace& place, std::string name,
                                                    std::uint64_t image_bytes);

  std::uint64_t size_bytes() const override { return fetcher_->image_bytes(); }
  const std::string& name() const override { return name_; }
  Status read(std::uint64_t offset, MutableByteSpan out) override {
    return fetcher_->read(offset, out);
  }

 private:
  explicit CastSource(std::string name) : name_(std::move(name)) {}

  const std::string name_;
  SystemClock clock_;
  std::unique_ptr<multicast::Fetcher> fetcher_;
};

}  // namespace stdchk::pager
