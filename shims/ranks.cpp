#include "shims/ranks.h"

namespace stdchk::shims {

Ranks::Ranks(MPI_Comm communicator) {
  if (communicator == MPI_COMM_NULL) return;
  MPI_Comm_dup(communicator, &communicator_);
  MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_ARE_FATAL);
  MPI_Comm_rank(communicator_, &rank_);
  MPI_Comm_size(communicator_, &size_);
}

void Ranks::release() {
  if (communicator_ != MPI_COMM_NULL) MPI_Comm_free(&communicator_);
}

void Ranks::barrier() const {
  if (size_ > 1) MPI_Barrier(communicator_);
}

bool Ranks::all(bool mine) const {
  int all = mine ? 1 : 0;
  if (size_ > 1) MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, communicator_);
  return all == 1;
}

std::int64_t Ranks::of_first(std::int64_t mine) const {
  if (size_ > 1) MPI_Bcast(&mine, 1, MPI_INT64_T, 0, communicator_);
  return mine;
}

std::string Ranks::of_first(const std::string& mine) const {
  std::string text(static_cast<std::size_t>(of_first(static_cast<std::int64_t>(mine.size()))), ' ');
  if (is_first()) text = mine;
  if (size_ > 1) {
    MPI_Bcast(text.data(), static_cast<int>(text.size()), MPI_CHAR, 0, communicator_);
  }
  return text;
}

}  // namespace stdchk::shims
