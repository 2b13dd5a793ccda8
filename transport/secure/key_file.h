#pragma once

#include <memory>
#include <string>

#include "core/base/result.h"
#include "transport/secure/keyring.h"

/// Key files: each tells one process which member it is. An error is a sentence that says what is
/// wrong with the file and what to do.
///
/// | file          | text                                               | who has it              |
/// |---------------|----------------------------------------------------|-------------------------|
/// | secret        | 32 hexadecimal digits                              | manager, standby, owner |
/// | member's key  | `stdchk-member`, role, id and key in hexadecimal   | that member             |
namespace stdchk::transport::secure {

/// A process of that role, by a file of either kind; one that knows the secret is a new member.
tl::expected<std::shared_ptr<Keyring>, std::string> read_keyring(const std::string& path,
                                                                 Role role);
/// A process that must know the pool's secret.
tl::expected<std::shared_ptr<Keyring>, std::string> read_root_keyring(const std::string& path,
                                                                      const Member& self);

/// The one line that a member's key file holds.
std::string key_file_text(const MemberKey& key);

/// "client", "benefactor", "manager", "coordinator", "node".
const char* name_of(Role role);

}  // namespace stdchk::transport::secure
