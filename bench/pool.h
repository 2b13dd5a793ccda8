#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "transport/secure/keyring.h"

namespace stdchk::bench {

/// The address and the secret of a pool that runs on this machine.
struct Pool {
  std::string manager;
  std::shared_ptr<transport::secure::Keyring> keyring;
  std::vector<pid_t> benefactors;
};

/// Reads them from the state directory of `stdchk up`. Errors: ends the program.
Pool read_pool(const std::string& state);

}  // namespace stdchk::bench
