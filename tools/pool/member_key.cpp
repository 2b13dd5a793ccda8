#include "tools/pool/member_key.h"

#include <fmt/core.h>

#include "tools/base/exit_status.h"
#include "tools/base/pool_record.h"
#include "transport/secure/key_file.h"

namespace stdchk::tools {

using transport::secure::Role;

Outcome<MemberKeys> MemberKeys::of(const std::string& secret_file) {
  auto root = read_root_keyring(secret_file, transport::secure::kAnyManager);
  if (!root) return problem(root.error());
  return MemberKeys(**root);
}

std::string MemberKeys::make(Role role) const {
  return key_file_text(root_.key_of(transport::secure::new_member(role)));
}

int run_member_key(const MemberKeyOptions& options) {
  std::string secret_file = options.secret_file;
  if (secret_file.empty()) {
    auto pool = find_pool(options.pool, options.path);
    if (!pool) return complain(pool.error().text);
    secret_file = pool->secret_file();
  }
  const auto keys = MemberKeys::of(secret_file);
  if (!keys) return complain(keys.error().text);
  const Role role = options.role == "benefactor" ? Role::kBenefactor
                    : options.role == "node"     ? Role::kNode
                                                 : Role::kClient;
  fmt::print("{}", keys->make(role));
  return kExitGood;
}

}  // namespace stdchk::tools
