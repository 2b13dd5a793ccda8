#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench/ceilings.h"
#include "core/runtime/options.h"

/// Prints the machine's ceilings as JSON.
int main(int argc, char** argv) {
  stdchk::bench::CeilingOptions ceilings;
  auto repetitions = static_cast<std::uint32_t>(ceilings.repetitions);
  stdchk::Options options("stdchk-ceilings", "Measures what this machine's memory can do.");
  options.size("--bytes", ceilings.bytes, 2u << 20, std::uint64_t{1} << 40, "of each repetition");
  options.count("--repetitions", repetitions, 1, 1000, "that count; one more goes before them");
  options.text("--tmpfs", ceilings.tmpfs, "DIR", "a folder on a tmpfs");
  if (const auto status = options.parse_or_exit(argc, argv)) return *status;
  ceilings.repetitions = static_cast<int>(repetitions);
  const auto measured = stdchk::bench::measure_ceilings(ceilings);
  if (!measured) {
    std::fprintf(stderr, "%s\n", stdchk::describe(measured.error()).c_str());
    return 1;
  }
  std::printf("%s\n", stdchk::bench::to_json(*measured).dump(2).c_str());
  return 0;
}
