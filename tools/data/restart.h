#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/cast/bundle.h"
#include "tools/data/commands.h"
#include "tools/data/set_images.h"

/// The parts of `stdchk restart` that ranks share with the process that loads for all ranks.
namespace stdchk::tools {

/// Returns the images that each node gets whole, in their order in the set. With options.to these
/// are the images without a rank; with options.all_images, all.
std::vector<BundleImage> images_for_all(const ChosenSet& set, const RestartOptions& options);

/// Reads or copies (to options.to) whole images of the ranks `mine`, several at once. Returns their
/// bytes. With as many images as ranks each rank has its own; otherwise neighbours share images.
/// Images of all ranks are copied by each call, so that a node has the whole directory; without
/// options.to the calls share them, too. With options.cast, images for all nodes come from the
/// sender of that offer, as far as it sends them.
Outcome<std::uint64_t> load_shares(client::Filesystem& filesystem, const ChosenSet& set,
                                   const std::vector<std::uint32_t>& mine,
                                   const RestartOptions& options);

/// Replaces this process by options.command, which finds the set in STDCHK_RESTART_SET. Returns
/// only without a command, or if its start fails.
int start_command_in_place_of_this(const RestartOptions& options, const std::string& set);

/// The result of load_on_nodes().
struct Loaded {
  std::string set;
  std::size_t images = 0;
  const char* word = "images";  ///< of a directory: "files"
  std::uint64_t bytes = 0;
  std::uint32_t ranks = 0;
  std::size_t nodes = 0;
  double seconds = 0;            ///< seconds from the call until the last node had its images
  std::string last;              ///< the last node
  std::uint64_t cast_bytes = 0;  ///< bytes that were sent to all nodes at once; 0: no sender
  std::size_t cast_nodes = 0;    ///< nodes that got all of them so
};

/// Loads the images of all ranks, on the nodes of options.job or options.hosts. Returns when the
/// last node has its images; nothing when no set is complete. Reports failed nodes, and then
/// returns an error.
Outcome<std::optional<Loaded>> load_on_nodes(const RestartOptions& options,
                                             const std::string& invoked_as);

/// Prints how many nodes got images from the sender, if there was one.
void print_cast(const Loaded& loaded);

/// Calls load_on_nodes(), then start_command_in_place_of_this().
int restart_on_nodes(const RestartOptions& options, const std::string& invoked_as);

}  // namespace stdchk::tools
