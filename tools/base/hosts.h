#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/base/problem.h"

namespace stdchk::tools {

/// A Host is one line of the file that --hosts names: NAME [address=ADDRESS[,ADDRESS...]]
/// [memory=SIZE] [benefactors=N]. "#" begins a comment.
struct Host {
  std::string name;     ///< as the remote shell knows it
  std::string address;  ///< addresses for other hosts, with commas; default: the name
  std::uint64_t memory_bytes = 0;
  std::uint32_t benefactors = 0;
};

/// Reads the file; missing fields get the given defaults.
Outcome<std::vector<Host>> read_hosts(const std::string& path, std::uint64_t memory_bytes,
                                      std::uint32_t benefactors);

/// The host of each rank, in order. The input is a list of names with commas, or a file with a host
/// at the beginning of each line, such as PBS_NODEFILE. A host that occurs twice has two ranks.
Outcome<std::vector<std::string>> read_rank_hosts(const std::string& file_or_names);

}  // namespace stdchk::tools
