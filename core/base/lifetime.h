#pragma once

#include <memory>
#include <utility>

namespace stdchk {

/// A Lifetime belongs to an object that hands out calls for later: to a timer, an executor or
/// another thread's queue. Each such call keeps a Watch, and must not touch the object after the
/// watch has expired.
///
/// Threads: any thread may copy and destroy a Watch. Only the object's own thread may rely on
/// expired(), because only that thread ends the lifetime.
class Lifetime {
 public:
  class Watch {
   public:
    /// Returns true after end() or renew(), or when the owner was destroyed.
    bool expired() const { return token_.expired(); }

   private:
    friend class Lifetime;
    explicit Watch(std::weak_ptr<const char> token) : token_(std::move(token)) {}

    std::weak_ptr<const char> token_;
  };

  Watch watch() const { return Watch(token_); }
  /// All watches expire. Watches that are taken from now on are expired from the start.
  void end() { token_.reset(); }
  /// All earlier watches expire; watches that are taken from now on do not.
  void renew() { token_ = std::make_shared<char>(); }

 private:
  std::shared_ptr<const char> token_ = std::make_shared<char>();
};

}  // namespace stdchk
