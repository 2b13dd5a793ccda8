#pragma once

#include <string>

#include "tools/base/process.h"
#include "transport/secure/keyring.h"

namespace stdchk::tools {

/// A MemberKeys makes keys for members from the pool's secret. Each key is a new member's.
class MemberKeys {
 public:
  /// The Problem says why `secret_file` does not hold the secret.
  static Outcome<MemberKeys> of(const std::string& secret_file);
  /// The text of a key file.
  std::string make(transport::secure::Role role) const;

 private:
  explicit MemberKeys(transport::secure::Keyring root) : root_(std::move(root)) {}
  transport::secure::Keyring root_;
};

struct MemberKeyOptions {
  std::string role = "client";
  std::string secret_file;  ///< empty: the pool's own
  std::string pool;
  std::string path;
};
/// Prints a key. Returns the exit status.
int run_member_key(const MemberKeyOptions& options);

}  // namespace stdchk::tools
