// Measures MPI ranks that leave a barrier together and save one image each, into its own file, by
// plain POSIX calls. The figure is the size of all images / (barrier until all have closed). Takes
// turns between directories. Rank 0 prints one JSON object for each directory, with the value of
// each round.

#include <mpi.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "bench/measuring.h"
#include "core/base/limits.h"
#include "core/runtime/options.h"

namespace stdchk::bench {
namespace {

struct Settings {
  std::vector<std::string> directories;
  std::string synced;  ///< the directory whose files end with fsync; empty: none
  std::uint64_t bytes = 512 * limits::kMiB;
  std::uint32_t rounds = 5;
};

/// Ranks that wait sleep, because ranks that still write need the processors.
void barrier() {
  MPI_Request request{};
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  for (int all_are_here = 0;;) {
    MPI_Test(&request, &all_are_here, MPI_STATUS_IGNORE);
    if (all_are_here != 0) return;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

/// Returns, at rank 0, the seconds of the slowest rank between the two barriers around the save.
double save(const std::string& path, ByteSpan image, bool is_synced) {
  barrier();
  const double began = MPI_Wtime();
  write_new_file(path, image, is_synced);
  barrier();
  const double took = MPI_Wtime() - began;
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) give_up_call("cannot find " + path);
  if (static_cast<std::size_t>(found.st_size) != image.size()) give_up(path + " is not whole");
  if (::unlink(path.c_str()) != 0) give_up_call("cannot remove " + path);
  double longest = 0;
  MPI_Reduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  return longest;
}

/// Drops the first round, which warms caches up. Each round begins with another directory.
void measure(const Settings& settings) {
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const auto count = static_cast<std::uint64_t>(ranks);
  std::uint64_t seed = static_cast<std::uint64_t>(rank) << 32U;
  const MutableByteSpan image = random_memory(settings.bytes / count, seed);
  std::map<std::string, std::vector<double>> rates;
  for (std::uint32_t round = 0; round <= settings.rounds; ++round) {
    for (std::size_t turn = 0; turn < settings.directories.size(); ++turn) {
      const std::string& directory =
          settings.directories[(turn + round) % settings.directories.size()];
      change_pages(image, ++seed);
      if (rank == 0) warm_free_memory(settings.bytes);
      const std::string name = "app.N" + std::to_string(rank) + ".T" + std::to_string(round);
      const double took = save(directory + "/" + name, image, directory == settings.synced);
      if (round == 0) continue;
      rates[directory].push_back(static_cast<double>(image.size() * count) / 1e9 / took);
    }
  }
  for (const auto& [directory, values] : rates) {
    const nlohmann::json line{
        {"directory", directory}, {"values", values}, {"taken", wall_seconds()}};
    if (rank == 0) std::printf("%s\n", line.dump().c_str());
  }
}

}  // namespace
}  // namespace stdchk::bench

int main(int argc, char** argv) {
  using namespace stdchk;
  MPI_Init(&argc, &argv);
  bench::Settings settings;
  Options options("barrier-ranks", "Measures images that all MPI ranks write at the same time.");
  options.arguments("DIRECTORIES", settings.directories, "one in each file system");
  options.text("--fsync", settings.synced, "DIRECTORY", "one of them, whose files end with fsync");
  options.size("--bytes", settings.bytes, 4096, limits::kGiB * 64, "of the images of all ranks");
  options.count("--rounds", settings.rounds, 1, 1000, "that count; one more goes before them");
  if (const auto status = options.parse_or_exit(argc, argv)) return *status;
  bench::measure(settings);
  MPI_Finalize();
  return 0;
}
