#include "examples/heat/solver.h"

#include <cmath>

namespace heat {
namespace {

/// a dt / dx^2; an explicit scheme in three dimensions is stable up to 1/6.
constexpr double kNumber = 0.125;

}  // namespace

Solver::Solver(MPI_Comm world, int cells) : cells_(cells) {
  int size = 0;
  MPI_Comm_size(world, &size);
  MPI_Dims_create(size, 3, ranks_.data());
  const std::array<int, 3> walls{0, 0, 0};
  MPI_Cart_create(world, 3, ranks_.data(), walls.data(), 0, &grid_);
  int rank = 0;
  MPI_Comm_rank(grid_, &rank);
  MPI_Cart_coords(grid_, rank, 3, position_.data());

  const int side = cells + 2;
  const std::array<int, 3> whole{side, side, side};
  const std::array<int, 3> start{0, 0, 0};
  for (std::size_t axis = 0; axis < 3; ++axis) {
    std::array<int, 3> part{cells, cells, cells};
    part[axis] = 1;
    MPI_Type_create_subarray(3, whole.data(), part.data(), start.data(), MPI_ORDER_C, MPI_DOUBLE,
                             &face_[axis]);
    MPI_Type_commit(&face_[axis]);
  }
  now_.resize(static_cast<std::size_t>(side) * static_cast<std::size_t>(side) *
              static_cast<std::size_t>(side));
  next_.resize(now_.size());
  fill();
}

Solver::~Solver() {
  for (auto& face : face_) MPI_Type_free(&face);
  MPI_Comm_free(&grid_);
}

std::size_t Solver::at(int x, int y, int z) const {
  const auto side = static_cast<std::size_t>(cells_ + 2);
  return (static_cast<std::size_t>(x) * side + static_cast<std::size_t>(y)) * side +
         static_cast<std::size_t>(z);
}

/// Waves with an incompressible ripple, so that no two ranks and no two steps have equal bytes.
void Solver::fill() {
  std::uint64_t noise = 0x9E3779B97F4A7C15ULL;
  for (int axis : position_)
    noise = (noise ^ static_cast<std::uint64_t>(axis + 1)) * 0xBF58476D1CE4E5B9ULL;
  for (int x = 1; x <= cells_; ++x) {
    for (int y = 1; y <= cells_; ++y) {
      const double wave = std::sin(0.05 * (position_[0] * cells_ + x)) *
                          std::cos(0.03 * (position_[1] * cells_ + y));
      for (int z = 1; z <= cells_; ++z) {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        now_[at(x, y, z)] = wave + 1e-3 * static_cast<double>(noise >> 11) / 9007199254740992.0;
      }
    }
  }
}

std::span<const double> Solver::row(int index) const {
  return {&now_[at(1 + index / cells_, 1 + index % cells_, 1)], static_cast<std::size_t>(cells_)};
}

std::span<double> Solver::row(int index) {
  return {&now_[at(1 + index / cells_, 1 + index % cells_, 1)], static_cast<std::size_t>(cells_)};
}

void Solver::exchange_axis(int axis) {
  int below = 0;
  int above = 0;
  MPI_Cart_shift(grid_, axis, 1, &below, &above);
  auto plane = [&](int index) {
    std::array<int, 3> corner{1, 1, 1};
    corner[static_cast<std::size_t>(axis)] = index;
    return &now_[at(corner[0], corner[1], corner[2])];
  };
  const MPI_Datatype face = face_[static_cast<std::size_t>(axis)];
  MPI_Sendrecv(plane(cells_), 1, face, above, axis, plane(0), 1, face, below, axis, grid_,
               MPI_STATUS_IGNORE);
  MPI_Sendrecv(plane(1), 1, face, below, 3 + axis, plane(cells_ + 1), 1, face, above, 3 + axis,
               grid_, MPI_STATUS_IGNORE);
}

void Solver::exchange_faces() {
  for (int axis = 0; axis < 3; ++axis) exchange_axis(axis);
}

void Solver::advance() {
  exchange_faces();
  const std::size_t plane = at(1, 0, 0);
  const std::size_t line = at(0, 1, 0);
  for (int x = 1; x <= cells_; ++x) {
    for (int y = 1; y <= cells_; ++y) {
      const double* u = &now_[at(x, y, 1)];
      double* v = &next_[at(x, y, 1)];
      const double* u_below = u - plane;
      const double* u_above = u + plane;
      const double* u_left = u - line;
      const double* u_right = u + line;
      for (int z = 0; z < cells_; ++z) {
        v[z] = u[z] + kNumber * (u_below[z] + u_above[z] + u_left[z] + u_right[z] + u[z - 1] +
                                 u[z + 1] - 6.0 * u[z]);
      }
    }
  }
  now_.swap(next_);
  ++step_;
}

}  // namespace heat
