#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/problem.h"

namespace stdchk::tools {

/// A Host is one line of the file that --hosts names: NAME
/// [address=ADDRESS[,ADDRESS...]] [memory=SIZE] [benefactors=N]. "#" begins a comment.
struct Host {
  std::string name;     ///< as the remote shell knows it
  std::string address;  ///< that others reach it by, several with commas; otherwise the name
  std::uint64_t memory_bytes = 0;
  std::uint32_t benefactors = 0;
};

/// Fills what a line does not say with the defaults given.
Outcome<std::vector<Host>> read_hosts(const std::string& path, std::uint64_t memory_bytes,
                                      std::uint32_t benefactors);

/// The host of each rank, in order: the first word of each line of a file, as of --hosts or of
/// PBS_NODEFILE, or names with commas between them. A host that is there twice has two ranks.
Outcome<std::vector<std::string>> read_rank_hosts(const std::string& file_or_names);

}  // namespace stdchk::tools
