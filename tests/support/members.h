#pragma once

#include "transport/secure/keyring.h"

/// Secrets and members of test pools, each made from a small number, so that tests are repeatable.
namespace stdchk::test {

inline Secret secret_of(int seed) {
  Secret secret;
  secret.bytes.fill(static_cast<std::byte>(seed));
  return secret;
}

inline transport::secure::Member member_of(transport::secure::Role role, int seed) {
  transport::secure::Member member{role, {}};
  member.id.fill(static_cast<std::byte>(seed));
  return member;
}

}  // namespace stdchk::test
