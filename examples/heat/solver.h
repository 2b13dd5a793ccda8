#pragma once

#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace heat {

/// A Solver advances one rank's block of the grid; the six neighbours are other ranks or walls.
///
/// Owns: two copies of the block with one layer of its neighbours' cells around it, and the
/// communicator.
/// Threads: one.
class Solver {
 public:
  /// Makes one block of `cells`^3 for each rank in `world`. Collective.
  Solver(MPI_Comm world, int cells);
  ~Solver();
  Solver(const Solver&) = delete;
  Solver& operator=(const Solver&) = delete;

  /// Advances by one time step. Collective.
  void advance();

  std::uint64_t step() const { return step_; }
  /// The number of ranks along each axis.
  const std::array<int, 3>& ranks() const { return ranks_; }
  const std::array<int, 3>& position() const { return position_; }
  int cells() const { return cells_; }

  /// A row of the block's own cells. These cells()^2 rows are the state that a checkpoint holds.
  std::span<const double> row(int index) const;
  std::span<double> row(int index);
  int row_count() const { return cells_ * cells_; }
  void set_step(std::uint64_t step) { step_ = step; }

 private:
  std::size_t at(int x, int y, int z) const;
  void fill();
  void exchange_faces();
  void exchange_axis(int axis);

  int cells_;
  MPI_Comm grid_ = MPI_COMM_NULL;
  std::array<int, 3> ranks_{};
  std::array<int, 3> position_{};
  std::array<MPI_Datatype, 3> face_{};
  std::uint64_t step_ = 0;
  std::vector<double> now_;
  std::vector<double> next_;
};

}  // namespace heat
