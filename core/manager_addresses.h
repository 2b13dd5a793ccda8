#pragma once

#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace stdchk {

/// A ManagerAddresses is where the pool's manager may be: at its own address or at its standby's.
/// Threads: one.
class ManagerAddresses {
 public:
  /// One address, or several with commas, the likeliest first.
  explicit ManagerAddresses(const std::string& list) {
    std::istringstream text(list);
    for (std::string one; std::getline(text, one, ',');) {
      if (!one.empty()) all_.push_back(std::move(one));
    }
    if (all_.empty()) all_.emplace_back();
  }

  const std::string& current() const { return all_[at_]; }
  /// The next one, after the last the first. True: all were tried since the last time it was so.
  bool next() {
    at_ = (at_ + 1) % all_.size();
    return ++tried_ % all_.size() == 0;
  }

 private:
  std::vector<std::string> all_;
  std::size_t at_ = 0;
  std::size_t tried_ = 0;
};

}  // namespace stdchk
