#pragma once

#include <memory>
#include <string>

#include "core/base/problem.h"
#include "core/base/result.h"
#include "transport/secure/keyring.h"

/// Key files. A process reads from a key file which member it is, and the key that proves it. Each
/// error is a sentence: the fault of the file, and a remedy.
///
/// | file          | text                                               | who has it              |
/// |---------------|----------------------------------------------------|-------------------------|
/// | secret        | 32 hexadecimal digits                              | manager, standby, owner |
/// | member's key  | `stdchk-member`, role, id and key in hexadecimal   | that member             |
namespace stdchk::transport::secure {

/// Reads a key file of either kind, for a process of `role`. A file with the pool's secret makes
/// the process a new member.
Outcome<std::shared_ptr<Keyring>> read_keyring(const std::string& path, Role role);
/// Reads a file with the pool's secret. A file with the key of one member is an error.
Outcome<std::shared_ptr<Keyring>> read_root_keyring(const std::string& path, const Member& self);

/// Returns the text of a member's key file, which is one line.
std::string key_file_text(const MemberKey& key);

/// Returns "client", "benefactor", "manager", "coordinator" or "node".
const char* name_of(Role role);

}  // namespace stdchk::transport::secure
