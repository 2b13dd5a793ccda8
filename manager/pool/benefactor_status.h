#pragma once

#include <cstdint>
#include <map>

#include "core/base/clock.h"
#include "core/messages/messages.h"
#include "transport/rpc.h"
#include "transport/secure/keyring.h"

namespace stdchk::manager {

/// A benefactor as the manager sees it now.
struct BenefactorStatus {
  msg::BenefactorInfo info;
  transport::secure::Member member;  ///< the member that registered as this benefactor
  Secret grant_key;                  ///< proves grants on this benefactor
  rpc::Peer* peer = nullptr;         ///< null while it has no link
  Time last_heard{};
  bool leaving = false;             ///< it has asked to leave the pool
  std::uint64_t log_bytes_max = 0;  ///< size of the largest metadata log that it can store
};
using Benefactors = std::map<BenefactorId, BenefactorStatus>;

}  // namespace stdchk::manager
