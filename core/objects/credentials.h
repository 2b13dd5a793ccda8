#pragma once

#include <cstdint>
#include <string>

#include "core/base/problem.h"

namespace stdchk {

/// Credentials prove to an object store who asks. `secret` and `session_token` appear in no log, no
/// message between members, no command line and no error text.
struct Credentials {
  std::string key_id;
  std::string secret;
  std::string session_token;    ///< of temporary credentials; empty: none
  std::string source;           ///< where they were found, for messages
  std::int64_t expires_s = 0;   ///< seconds since 1970; 0: unknown, or never
  std::int64_t renew_at_s = 0;  ///< time to ask for the next credentials; 0: never

  Credentials() = default;
  Credentials(const Credentials&) = default;
  Credentials& operator=(const Credentials&) = default;
  /// Overwrites the secrets in memory.
  ~Credentials();
};

/// Finds credentials as the AWS tools do: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and
/// AWS_SESSION_TOKEN; otherwise the file AWS_SHARED_CREDENTIALS_FILE or ~/.aws/credentials, in the
/// section AWS_PROFILE or "default". If there are none, asks the services of this host
/// (ask_host_for_credentials()). Half of the credentials, or an AWS_PROFILE that is absent, is an
/// error, because the user meant others.
///
/// Errors: kConfig with the places that were searched. A file that other users can read is used,
/// with a warning in the log.
/// Limits: blocks for kHostPatience at most.
/// Not: single sign-on, `credential_process`.
Outcome<Credentials> find_credentials();

/// From now on a crash of this process leaves no core file, so that secrets reach no disk. Other
/// users' debuggers cannot attach (prctl(2), PR_SET_DUMPABLE). For daemons only: a program that uses
/// the C library decides itself.
void keep_secrets_out_of_core_files();

}  // namespace stdchk
