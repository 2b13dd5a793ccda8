#include <mpi.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "examples/heat/checkpoint.h"
#include "examples/heat/solver.h"

namespace heat {
namespace {

struct Arguments {
  int cells = 256;
  std::uint64_t steps = 12;
  std::uint64_t every = 3;
  std::string directory;  ///< empty: no checkpoints
  std::string pids;       ///< directory for files RANK with the ranks' process numbers
  Kill kill;
  int kill_rank = 0;
  /// before the images of this step, all ranks wait to be killed; 0: never
  std::uint64_t wait_step = 0;
};

/// False, with a message by rank 0, when a flag is unknown or its value is no number.
bool parse(int argc, char** argv, Arguments& arguments) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const char* value = argv[i + 1];
    char* end = nullptr;
    const unsigned long long number = std::strtoull(value, &end, 10);
    const bool is_number = *value >= '0' && *value <= '9' && *end == '\0';
    if (flag == "--directory") {
      arguments.directory = value;
    } else if (flag == "--pids") {
      arguments.pids = value;
    } else if (!is_number) {
      return false;
    } else if (flag == "--cells" && number >= 4 && number <= 1024) {
      arguments.cells = static_cast<int>(number);
    } else if (flag == "--steps") {
      arguments.steps = number;
    } else if (flag == "--every" && number > 0) {
      arguments.every = number;
    } else if (flag == "--kill-step") {
      arguments.kill.step = number;
    } else if (flag == "--kill-rank") {
      arguments.kill_rank = static_cast<int>(number);
    } else if (flag == "--kill-bytes") {
      arguments.kill.bytes = number;
    } else if (flag == "--wait-step") {
      arguments.wait_step = number;
    } else {
      return false;
    }
  }
  return argc % 2 == 1;
}

bool all_agree(bool mine) {
  int good = mine ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &good, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  return good == 1;
}

/// Restores the newest step that every rank can read, or starts at 0.
void restart(Solver& solver, const Arguments& arguments, int rank, int size) {
  // Rank 0 lists the steps for all, so that all try the same steps in the same order.
  std::vector<std::uint64_t> steps;
  if (rank == 0) steps = complete_steps(arguments.directory, size);
  std::uint64_t count = steps.size();
  MPI_Bcast(&count, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  steps.resize(count);
  MPI_Bcast(steps.data(), static_cast<int>(count), MPI_UINT64_T, 0, MPI_COMM_WORLD);
  for (std::uint64_t step : steps) {
    const std::string why = read_image(solver, arguments.directory, rank, step);
    if (!why.empty()) std::fprintf(stderr, "heat: rank %d: %s\n", rank, why.c_str());
    if (all_agree(why.empty())) {
      if (rank == 0) std::printf("restart step=%llu\n", static_cast<unsigned long long>(step));
      return;
    }
  }
  if (count > 0) {
    if (rank == 0) std::fprintf(stderr, "heat: no step is whole\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  if (rank == 0) std::printf("restart none\n");
}

void checkpoint(const Solver& solver, const Arguments& arguments, int rank, int size) {
  while (solver.step() == arguments.wait_step) ::pause();
  MPI_Barrier(MPI_COMM_WORLD);
  const double began = MPI_Wtime();
  const std::string why = write_image(solver, arguments.directory, rank,
                                      rank == arguments.kill_rank ? arguments.kill : Kill{});
  if (!why.empty()) {
    std::fprintf(stderr, "heat: rank %d: %s\n", rank, why.c_str());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  double seconds = MPI_Wtime() - began;
  MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  if (rank == 0) {
    const double bytes = static_cast<double>(image_bytes(solver)) * size;
    std::printf("checkpoint step=%llu images=%d bytes=%.0f seconds=%.4f mb_per_s=%.1f\n",
                static_cast<unsigned long long>(solver.step()), size, bytes, seconds,
                bytes / 1e6 / seconds);
    std::fflush(stdout);
  }
}

void write_pid(const std::string& directory, int rank) {
  ::mkdir(directory.c_str(), 0755);
  const std::string path = directory + "/" + std::to_string(rank);
  if (std::FILE* file = std::fopen(path.c_str(), "w")) {
    std::fprintf(file, "%d\n", static_cast<int>(::getpid()));
    std::fclose(file);
  }
}

int run(const Arguments& arguments) {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (!arguments.pids.empty()) write_pid(arguments.pids, rank);
  Solver solver(MPI_COMM_WORLD, arguments.cells);
  if (!arguments.directory.empty()) {
    if (rank == 0) ::mkdir(arguments.directory.c_str(), 0755);
    MPI_Barrier(MPI_COMM_WORLD);
    restart(solver, arguments, rank, size);
  }
  while (solver.step() < arguments.steps) {
    solver.advance();
    if (!arguments.directory.empty() && solver.step() % arguments.every == 0) {
      checkpoint(solver, arguments, rank, size);
    }
  }
  const std::uint64_t mine = state_checksum(solver);
  std::vector<std::uint64_t> all(static_cast<std::size_t>(size));
  MPI_Gather(&mine, 1, MPI_UINT64_T, all.data(), 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    std::uint64_t sum = 0;
    for (std::uint64_t part : all) sum = sum * 0x100000001B3ULL ^ part;
    std::printf("result step=%llu checksum=%016llx\n",
                static_cast<unsigned long long>(solver.step()),
                static_cast<unsigned long long>(sum));
  }
  return 0;
}

}  // namespace
}  // namespace heat

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  heat::Arguments arguments;
  int status = 2;
  if (heat::parse(argc, argv, arguments)) {
    status = heat::run(arguments);
  } else {
    std::fprintf(stderr,
                 "usage: heat [--cells N] [--steps N] [--every N] [--directory DIR] [--pids DIR]\n"
                 "            [--kill-step N --kill-rank N --kill-bytes N] [--wait-step N]\n");
  }
  MPI_Finalize();
  return status;
}
