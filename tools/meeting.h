#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "tools/problem.h"

namespace stdchk::tools {

/// What the parts of a job's pool have told by now.
struct Answers {
  std::size_t ready = 0;
  std::string failures;  ///< "NODE: why", with semicolons between them
};

/// A Meeting is a folder that all nodes of a job share, in which the parts of its pool, one on each
/// node, tell what the others wait for. Each word is a file that is whole from its first moment.
///
/// Errors: a folder that cannot be written to, or was removed because nobody waits any more.
class Meeting {
 public:
  explicit Meeting(std::string folder) : folder_(std::move(folder)) {}

  Outcome<void> tell_manager(const std::string& address) const;
  Outcome<void> tell_ready(const std::string& node) const;
  Outcome<void> tell_failure(const std::string& node, const std::string& why) const;

  std::optional<std::string> manager() const;
  bool has_failed(const std::string& node) const;
  Answers answers() const;

 private:
  Outcome<void> tell(const std::string& name, const std::string& text) const;

  std::string folder_;
};

}  // namespace stdchk::tools
