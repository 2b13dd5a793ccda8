// Measures the steps of an MPI program that saves images and then computes, while other traffic may
// use its links. After each image, every rank runs steps until a file says that the traffic is
// over, and a few more. In a step each rank computes, all reduce 16 bytes, and each exchanges a
// message with both neighbours in a ring. A rank that waits for messages sleeps: on one machine,
// spinning ranks would take processors from the measured work.
//
// Rank 0 prints two JSON objects for each image: the moment when all ranks had closed it, and the
// steps. For each step it prints when it began, and when all ranks had computed, reduced and
// exchanged. All ranks must run on one machine, because they compare moments of CLOCK_MONOTONIC.

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/measuring.h"
#include "core/base/limits.h"
#include "core/runtime/options.h"

namespace stdchk::bench {
namespace {

constexpr std::size_t kCells = std::size_t{1} << 18;  ///< cells of a rank

struct Settings {
  std::string directories;  ///< prefix of the path of each rank's directory
  std::string over;         ///< prefix of the path of the file that ends the steps
  std::uint64_t image_bytes = 64 * limits::kMiB;
  std::uint64_t message_bytes = 2 * limits::kMiB;
  std::uint32_t images = 2;
  std::uint32_t compute_ms = 10;
  std::uint32_t steps_after = 20;
};

/// The present second of CLOCK_MONOTONIC.
double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <std::size_t kCount>
void wait(std::array<MPI_Request, kCount>& requests) {
  for (int all_are_done = 0;;) {
    MPI_Testall(kCount, requests.data(), &all_are_done, MPI_STATUSES_IGNORE);
    if (all_are_done != 0) return;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

using Values = std::array<double, 2>;

/// The element-wise maximum over all ranks.
Values reduce(Values mine) {
  Values all{};
  std::array<MPI_Request, 1> requests{};
  MPI_Iallreduce(mine.data(), all.data(), 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD, requests.data());
  wait(requests);
  return all;
}

/// A part of a grid in one dimension, and its previous state.
class Cells {
 public:
  Cells() : now_(kCells), next_(kCells) {
    for (std::size_t i = 0; i < kCells; ++i) now_[i] = static_cast<double>(i % 1000);
  }
  void sweep() {
    for (std::size_t i = 1; i + 1 < kCells; ++i)
      next_[i] = 0.25 * now_[i - 1] + 0.5 * now_[i] + 0.25 * now_[i + 1];
    now_.swap(next_);
  }
  double sample() const { return now_[kCells / 2]; }

 private:
  std::vector<double> now_;
  std::vector<double> next_;
};

/// The messages to and from both neighbours.
class Halo {
 public:
  Halo(std::size_t bytes, int rank, int ranks)
      : bytes_(static_cast<int>(bytes)),
        neighbours_{(rank + ranks - 1) % ranks, (rank + 1) % ranks},
        sent_(random_memory(2 * bytes, static_cast<std::uint64_t>(rank))),
        got_(random_memory(2 * bytes, 0)) {}

  /// Exchanges one side after the other, as examples/heat does. Data between two ranks then flows
  /// in one direction at a time, and acknowledgements do not wait behind data.
  void exchange() {
    for (std::size_t side = 0; side < 2; ++side) {
      const int to = neighbours_[side];
      const int from = neighbours_[1 - side];
      std::array<MPI_Request, 2> requests{};
      MPI_Irecv(part(got_, side), bytes_, MPI_BYTE, from, 0, MPI_COMM_WORLD, &requests[0]);
      MPI_Isend(part(sent_, side), bytes_, MPI_BYTE, to, 0, MPI_COMM_WORLD, &requests[1]);
      wait(requests);
    }
  }

 private:
  std::byte* part(MutableByteSpan bytes, std::size_t side) const {
    return bytes.data() + side * static_cast<std::size_t>(bytes_);
  }

  int bytes_;
  std::array<int, 2> neighbours_;
  MutableByteSpan sent_;
  MutableByteSpan got_;
};

struct Step {
  double began = 0;
  double computed = 0;
  double reduced = 0;
  double exchanged = 0;
};

class Ranks {
 public:
  explicit Ranks(Settings settings) : settings_(std::move(settings)) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
    if (ranks_ < 2) give_up("two ranks are needed at least");
    image_ = random_memory(settings_.image_bytes, seed());
  }

  void measure() {
    Halo halo(settings_.message_bytes, rank_, ranks_);
    const std::uint32_t sweeps = sweeps_of_a_step();
    halo.exchange();  // makes the connections
    for (image_number_ = 1; image_number_ <= settings_.images; ++image_number_) {
      change_pages(image_, seed());
      save();
      print_steps(steps(halo, sweeps));
    }
  }

 private:
  /// A different seed for each image of each rank.
  std::uint64_t seed() const { return (static_cast<std::uint64_t>(rank_) << 32U) + image_number_; }

  /// The number of sweeps in a step, equal for all ranks.
  std::uint32_t sweeps_of_a_step() {
    constexpr std::uint32_t kTried = 50;
    const double before = thread_seconds();
    for (std::uint32_t i = 0; i < kTried; ++i) cells_.sweep();
    const double milliseconds = (thread_seconds() - before) * 1e3 / kTried;
    return std::max(1U,
                    static_cast<std::uint32_t>(settings_.compute_ms / reduce({milliseconds})[0]));
  }

  void save() {
    reduce({});
    const double began = now();
    const std::string path = settings_.directories + std::to_string(rank_) + "/app.N" +
                             std::to_string(rank_) + ".T" + std::to_string(image_number_);
    write_new_file(path, image_, false);
    const double closed = now();
    const Values last = reduce({closed, closed - began});
    print({{"image", image_number_}, {"closed", last[0]}, {"write_s", last[1]}});
  }

  /// Runs steps; all ranks run the same number.
  std::vector<Step> steps(Halo& halo, std::uint32_t sweeps) {
    const std::string file = settings_.over + std::to_string(image_number_);
    std::vector<Step> steps;
    std::uint32_t after = 0;
    while (after < settings_.steps_after) {
      Step step;
      step.began = now();
      for (std::uint32_t i = 0; i < sweeps; ++i) cells_.sweep();
      step.computed = now();
      const bool is_over = rank_ == 0 && ::access(file.c_str(), F_OK) == 0;
      const Values all = reduce({cells_.sample(), is_over ? 1.0 : 0.0});
      step.reduced = now();
      halo.exchange();
      step.exchanged = now();
      steps.push_back(step);
      if (all[1] > 0) ++after;
    }
    return steps;
  }

  /// `mine`: the moments of this rank. Prints, over all ranks, the first beginning of each step,
  /// the last end of each part, and the longest computation.
  void print_steps(const std::vector<Step>& mine) {
    std::vector<Step> all(rank_ == 0 ? mine.size() * static_cast<std::size_t>(ranks_) : 0);
    const auto bytes = static_cast<int>(mine.size() * sizeof(Step));
    MPI_Gather(mine.data(), bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (rank_ != 0) return;
    nlohmann::json steps = nlohmann::json::array();
    for (std::size_t i = 0; i < mine.size(); ++i) {
      Step together = mine[i];
      double computing_s = 0;
      for (std::size_t at = i; at < all.size(); at += mine.size()) {
        const Step& one = all[at];
        together.began = std::min(together.began, one.began);
        together.computed = std::max(together.computed, one.computed);
        together.reduced = std::max(together.reduced, one.reduced);
        together.exchanged = std::max(together.exchanged, one.exchanged);
        computing_s = std::max(computing_s, one.computed - one.began);
      }
      steps.push_back({{"began", together.began},
                       {"computing_s", computing_s},
                       {"computed", together.computed},
                       {"reduced", together.reduced},
                       {"exchanged", together.exchanged}});
    }
    print({{"image", image_number_}, {"steps", steps}, {"taken", wall_seconds()}});
  }

  void print(const nlohmann::json& line) const {
    if (rank_ != 0) return;
    std::printf("%s\n", line.dump().c_str());
    std::fflush(stdout);
  }

  Settings settings_;
  int rank_ = 0;
  int ranks_ = 0;
  std::uint32_t image_number_ = 0;
  MutableByteSpan image_;
  Cells cells_;
};

}  // namespace
}  // namespace stdchk::bench

int main(int argc, char** argv) {
  using namespace stdchk;
  MPI_Init(&argc, &argv);
  bench::Settings settings;
  Options options("halo-ranks", "Measures steps of an MPI program after each image that it saves.");
  options.argument("DIRECTORIES", settings.directories,
                   "what the path of each rank's directory begins with; its number follows");
  options.argument("OVER", settings.over,
                   "what the path of the file begins with that says that what is measured is over; "
                   "the image's number follows, counted from 1");
  options.size("--bytes", settings.image_bytes, 4096, limits::kGiB * 64, "of each rank's image");
  options.size("--message", settings.message_bytes, 1, limits::kGiB,
               "to each of two neighbours, in each step");
  options.count("--images", settings.images, 1, 1000, "of each rank");
  options.count("--compute", settings.compute_ms, 0, 10000,
                "milliseconds of processor time that each rank computes in each step");
  options.count("--after", settings.steps_after, 1, 10000, "steps, when what is measured is over");
  if (const auto status = options.parse_or_exit(argc, argv)) return *status;
  bench::Ranks(settings).measure();
  MPI_Finalize();
  return 0;
}
