#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/heat/solver.h"

namespace heat {

/// When a rank is to kill itself in the middle of a checkpoint, for tests of what is left then.
struct Kill {
  std::uint64_t step = 0;   ///< 0: never
  std::uint64_t bytes = 0;  ///< after that many bytes of the image were written
};

/// The image of one rank at one step: "heat.N<rank>.T<step>" in `directory`.
std::string image_path(const std::string& directory, int rank, std::uint64_t step);

/// Bytes of one rank's image.
std::uint64_t image_bytes(const Solver& solver);

/// Writes the image in pieces of 1 MiB. Empty: good; otherwise what failed.
std::string write_image(const Solver& solver, const std::string& directory, int rank,
                        const Kill& kill);

/// Reads the image into the solver. Empty: good. Otherwise why it cannot be used, and the solver's
/// cells are undefined.
std::string read_image(Solver& solver, const std::string& directory, int rank, std::uint64_t step);

/// Steps of which `directory` has a file of every rank: the one that the link `latest` names, where
/// there is one, then the newest first.
std::vector<std::uint64_t> complete_steps(const std::string& directory, int ranks);

/// A number that tells two states apart, bit by bit.
std::uint64_t state_checksum(const Solver& solver);

}  // namespace heat
