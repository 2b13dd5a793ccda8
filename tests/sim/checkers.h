#pragma once

#include <string>
#include <vector>

#include "tests/sim/plain_client.h"

namespace stdchk::sim {

/// Rule M1: every chunk of every committed map lies within the arena of its benefactor, and what is
/// there is that chunk. Benefactors that have died are left out. Answers what is wrong.
std::vector<std::string> check_committed(Cluster& cluster);

/// Rule M3: of two grants that overlap, only one is known to someone who can write there. Asked
/// whenever `who` has come to know more or to reach more. A grant that is heard of late, by a
/// client that was fenced meanwhile, is no harm.
std::vector<std::string> check_grants(const std::vector<PlainClient*>& clients,
                                      const PlainClient& who);

/// What the pool holds when nothing refers to it any more: all space is free.
std::vector<std::string> check_empty(Cluster& cluster);

}  // namespace stdchk::sim
