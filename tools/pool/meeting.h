#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "core/files/own_folder.h"
#include "tools/base/problem.h"

namespace stdchk::tools {

/// The answers of the parts of a job's pool so far.
struct Answers {
  std::size_t ready = 0;
  std::string failures;  ///< "NODE: why", separated by semicolons
};

/// The rules for an exchange folder. Other users of a project may be able to rename the folder.
inline constexpr FolderRules kExchangeRules{
    .what = "the exchange folder", .is_private = true, .safe_above = false};

/// A Meeting is a folder that all nodes of a job share. The parts of its pool, one on each node,
/// publish words there that the others wait for. Each word is a file that appears whole.
///
/// The folder must be this user's own: another user's folder in its place is neither read nor
/// written. A word is at most kWordBytesMax long; its invisible bytes are shown as "?".
///
/// Errors: a folder that cannot be written, that is another user's, or that was removed because
/// nobody waits any more.
class Meeting {
 public:
  static constexpr std::size_t kWordBytesMax = 4096;

  explicit Meeting(std::string folder) : folder_(std::move(folder)) {}

  Outcome<void> publish_manager(const std::string& address) const;
  Outcome<void> publish_ready(const std::string& node) const;
  Outcome<void> publish_failure(const std::string& node, const std::string& why) const;

  /// A Problem: the folder's name belongs to another user's folder, or to a link.
  Outcome<void> check() const;
  /// Passes on a private file of the pool, such as the secret, unchanged.
  Outcome<void> hand_over(const std::string& name, const std::string& text) const;
  Outcome<std::string> take(const std::string& name) const;

  std::optional<std::string> manager() const;
  bool has_failed(const std::string& node) const;
  Answers answers() const;

 private:
  Outcome<void> publish(const std::string& name, const std::string& text) const;
  std::string first_line(const OwnFolder& folder, const std::string& name) const;

  std::string folder_;
};

}  // namespace stdchk::tools
