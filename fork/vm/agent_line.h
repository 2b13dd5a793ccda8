#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace stdchk::fork::vm {

/// An AgentLine collects the bytes of a guest's agent until a line is complete. The agent waits for
/// the answer to each line, so bytes behind a line do not come from an agent, and are dropped.
///
/// Threads: one.
/// Limits: kBytesMax, whatever a guest sends. A longer line is dropped.
class AgentLine {
 public:
  static constexpr std::size_t kBytesMax = std::size_t{16} * 1024;

  /// Returns the line without its end, or nothing.
  std::optional<std::string> add(std::string_view bytes) {
    const std::size_t end = bytes.find('\n');
    const std::string_view head = bytes.substr(0, end);
    if (heard_.size() + head.size() > kBytesMax) {
      heard_.clear();
      return std::nullopt;
    }
    heard_.append(head);
    if (end == std::string_view::npos) return std::nullopt;
    std::string line = std::move(heard_);
    heard_.clear();
    return line;
  }
  void clear() { heard_.clear(); }

 private:
  std::string heard_;
};

}  // namespace stdchk::fork::vm
