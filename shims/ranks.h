#pragma once

#include <mpi.h>

#include <cstdint>
#include <string>

namespace stdchk::shims {

// A Ranks is the group of processes that checkpoint together.
//
// Owns: a duplicate of the application's communicator, until release().
// Threads: the one that calls MPI.
// Errors: a failed MPI call ends the job, as MPI's default error handler does.
// Limits: collective calls have no deadline, because MPI has none.
class Ranks {
 public:
  // Collective over `communicator`. MPI_COMM_NULL: this process is the only rank.
  explicit Ranks(MPI_Comm communicator);

  // Collective. Nothing else may be called afterwards.
  void release();

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool is_first() const { return rank_ == 0; }

  void barrier() const;
  // Collective. Returns whether all ranks passed true.
  bool all(bool mine) const;
  // Collective. Return the value of the first rank.
  std::int64_t of_first(std::int64_t mine) const;
  std::string of_first(const std::string& mine) const;

 private:
  MPI_Comm communicator_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace stdchk::shims
