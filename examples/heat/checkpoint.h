#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/heat/solver.h"

namespace heat {

/// When a rank kills itself within a checkpoint; tests then check what remains.
struct Kill {
  std::uint64_t step = 0;   ///< 0: never
  std::uint64_t bytes = 0;  ///< after writing this many bytes of the image
};

/// The path of one rank's image at one step: "heat.N<rank>.T<step>" in `directory`.
std::string image_path(const std::string& directory, int rank, std::uint64_t step);

/// The length of one rank's image in bytes.
std::uint64_t image_bytes(const Solver& solver);

/// Writes the image in pieces of 1 MiB. Returns the failure; empty: success.
std::string write_image(const Solver& solver, const std::string& directory, int rank,
                        const Kill& kill);

/// Reads the image into the solver. Returns why the image cannot be used; empty: success. After a
/// failure the solver's cells are undefined.
std::string read_image(Solver& solver, const std::string& directory, int rank, std::uint64_t step);

/// Steps of which `directory` has a file of every rank. The step that the link `latest` names comes
/// first, then the others, newest first.
std::vector<std::uint64_t> complete_steps(const std::string& directory, int ranks);

/// A checksum over all bits of the state.
std::uint64_t state_checksum(const Solver& solver);

}  // namespace heat
