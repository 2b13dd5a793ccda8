#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/units.h"
#include "tools/base/exit_status.h"
#include "tools/base/show.h"
#include "tools/lab/commands.h"
#include "tools/lab/similarity.h"

namespace stdchk::tools {
namespace {

/// A ProgressBar is a line on a terminal that is overwritten, and removed at the end. It prints
/// nothing elsewhere.
class ProgressBar {
 public:
  ~ProgressBar() {
    if (shown_ >= 0) fmt::print(stderr, "\r\033[K");
  }
  void show(double share) {
    const int percent = static_cast<int>(100 * share);
    if (!is_terminal_ || percent == shown_) return;
    shown_ = percent;
    constexpr int kWidth = 40;
    const auto full = static_cast<std::size_t>(percent * kWidth / 100);
    fmt::print(stderr, "\r[{:<{}}] {:3} %", std::string(full, '#'), kWidth, percent);
    std::fflush(stderr);
  }

 private:
  const bool is_terminal_ = ::isatty(STDERR_FILENO) == 1;
  int shown_ = -1;
};

nlohmann::json to_json(const Similarity& one) {
  nlohmann::json json = {
      {"technique", one.technique},         {"parameters", one.parameters},
      {"similarity", one.similarity},       {"megabytes_per_s", one.bytes_per_s / 1e6},
      {"chunk_bytes_mean", one.chunk_mean}, {"chunk_bytes_min", one.chunk_min},
      {"chunk_bytes_max", one.chunk_max},   {"image_bytes", one.image_bytes}};
  if (one.window_bytes > 0) json["window_bytes"] = one.window_bytes;
  if (one.bits > 0) json["bits"] = one.bits;
  return json;
}

void print_lines(const std::vector<Similarity>& measured, std::uint64_t sample_bytes) {
  std::vector<std::vector<std::string>> rows = {
      {"technique", "parameters", "similar", "MB/s", "mean", "minimum", "maximum"}};
  const auto kib = [](double bytes) { return fmt::format("{:.1f} KiB", bytes / 1024); };
  for (const Similarity& one : measured) {
    rows.push_back({one.technique, one.parameters, fmt::format("{:.1f} %", 100 * one.similarity),
                    fmt::format("{:.1f}", one.bytes_per_s / 1e6), kib(one.chunk_mean),
                    kib(static_cast<double>(one.chunk_min)),
                    kib(static_cast<double>(one.chunk_max))});
  }
  print_table(rows, {2, 3, 4, 5, 6});
  if (sample_bytes > 0) {
    fmt::print(
        "CbCH with SHA-1 or with overlap examined the first {} of each image; --sample 0 examines "
        "all of it.\n",
        format_bytes(sample_bytes));
  }
}

/// Ends the program with a message when an image shrinks or becomes unreadable meanwhile. Images
/// are mapped, so an access then raises a signal.
void end_on_lost_bytes() {
  struct sigaction action {};
  action.sa_handler = [](int) {
    constexpr char kText[] =
        "\nstdchk: an image has become shorter, or cannot be read, during the measurement\n";
    (void)!::write(STDERR_FILENO, kText, sizeof(kText) - 1);
    ::_exit(kExitError);
  };
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace

int run_similarity(const SimilarityCommand& command) {
  if (command.files.size() < 2) {
    return complain(
        "similarity compares images of one series: name at least two files, in the order of their "
        "timesteps");
  }
  SimilarityOptions options;
  options.files = command.files;
  options.sample_bytes = command.sample_bytes;
  options.windows = {20, 32, 64, 128, 256};
  options.bits = {8, 10, 12, 14, 16};
  end_on_lost_bytes();
  ProgressBar bar;
  auto measured = measure_similarity(options, [&](double share) { bar.show(share); });
  bar.show(1);
  if (!measured) return complain(measured.error().text);
  const Advice advice = advise_chunking(*measured);
  if (command.json) {
    nlohmann::json lines = nlohmann::json::array();
    for (const Similarity& one : *measured) lines.push_back(to_json(one));
    print({{"files", command.files},
           {"sample_bytes", command.sample_bytes},
           {"techniques", lines},
           {"recommended", {{"chunking", advice.chunking}, {"why", advice.why}}}});
    return kExitGood;
  }
  print_lines(*measured, command.sample_bytes);
  fmt::print("\n{} Set --chunking {} for the pool (stdchk up) or the mount.\n", advice.why,
             advice.chunking);
  return kExitGood;
}

}  // namespace stdchk::tools
