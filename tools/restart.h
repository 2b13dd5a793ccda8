#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/commands.h"
#include "tools/set_images.h"

/// The parts of `stdchk restart` that a rank and the one that loads for all ranks have in common.
namespace stdchk::tools {

/// Reads the images of some of options.ranks whole, several at once, or copies them to options.to.
/// Returns their bytes. Each rank has one when there are as many, else neighbours share them out.
Outcome<std::uint64_t> load_shares(client::Filesystem& filesystem,
                                   const std::vector<SetImage>& images,
                                   const std::vector<std::uint32_t>& mine,
                                   const RestartOptions& options);

/// This process becomes options.command, which finds the set in STDCHK_RESTART_SET. Returns without
/// a command, and when it cannot be started.
int go_on(const RestartOptions& options, const std::string& set);

/// What load_on_nodes() has done.
struct Loaded {
  std::string set;
  std::size_t images = 0;
  std::uint64_t bytes = 0;
  std::uint32_t ranks = 0;
  std::size_t nodes = 0;
  double seconds = 0;  ///< from the call until the last node had its images
  std::string last;    ///< that node
};

/// Loads the images of all ranks, on the nodes that options.job or options.hosts say. Returns when
/// the last has its own; nothing when no set is complete. A node that fails is told of, and an
/// error.
Outcome<std::optional<Loaded>> load_on_nodes(const RestartOptions& options,
                                             const std::string& invoked_as);

/// load_on_nodes(), and then go_on().
int restart_on_nodes(const RestartOptions& options, const std::string& invoked_as);

}  // namespace stdchk::tools
