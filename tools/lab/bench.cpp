// Measures how fast file systems write and read checkpoint images, in turns.
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tools/base/exit_status.h"
#include "tools/base/pool_record.h"
#include "tools/base/problem.h"
#include "tools/base/process.h"
#include "tools/base/show.h"
#include "tools/lab/commands.h"
#include "tools/lab/image_bench.h"

namespace stdchk::tools {
namespace {

using Json = nlohmann::json;

struct Place {
  std::string directory;
  std::unique_ptr<Scratch> scratch;
  std::map<std::string, std::vector<double>> rates;  ///< GB/s of each round
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

Outcome<void> measure(ImageBench& bench, std::uint32_t round, Place& place) {
  const auto written = bench.write(place.scratch->path(), round);
  if (!written) return problem(written.error());
  const auto read = bench.read();
  if (!read) return problem(read.error());
  bench.remove();
  place.rates["OT"].push_back(written->closed / 1e9);
  place.rates["AT"].push_back(written->stored / 1e9);
  place.rates["read"].push_back(*read / 1e9);
  return {};
}

Outcome<std::vector<Place>> measure(const BenchOptions& options) {
  std::vector<Place> places;
  for (const std::string& directory : options.directories) {
    if (auto room =
            check_room(directory, options.size * options.ranks, "use less with --size or --ranks");
        !room) {
      return problem(room.error());
    }
    auto scratch = Scratch::make_in(directory);
    if (!scratch) return problem(scratch.error());
    places.push_back({directory, std::move(*scratch), {}});
  }
  ImageBench bench({options.size, options.block_bytes, options.ranks});
  for (std::uint32_t round = 1; round <= options.rounds; ++round) {
    for (Place& place : places) {
      if (auto done = measure(bench, round, place); !done) return problem(done.error());
    }
  }
  return places;
}

void show(const std::vector<Place>& places) {
  constexpr std::array kWhat = {"OT", "AT", "read"};
  std::vector<std::vector<std::string>> rows{{"", "OT", "AT", "read"}};
  for (const Place& place : places) {
    auto& row = rows.emplace_back(std::vector{place.directory});
    for (const char* what : kWhat)
      row.push_back(fmt::format("{:.3f} GB/s", median(place.rates.at(what))));
  }
  for (std::size_t i = 1; i < places.size(); ++i) {
    auto& row = rows.emplace_back(std::vector{"times " + places[i].directory});
    for (const char* what : kWhat) {
      row.push_back(fmt::format(
          "{:.2f}", median(places[0].rates.at(what)) / median(places[i].rates.at(what))));
    }
  }
  print_table(rows, {1, 2, 3});
}

}  // namespace

int run_bench(BenchOptions& options) {
  if (options.directories.empty()) {
    auto pool = find_pool(options.pool, "");
    if (!pool) return complain(pool.error().text);
    options.directories.push_back(pool->mount);
  }
  notice_end_signals();
  auto places = measure(options);
  if (!places) return complain(places.error().text);
  if (!options.json) {
    show(*places);
    return kExitGood;
  }
  Json list = Json::array();
  for (const Place& place : *places) {
    list.push_back({{"directory", place.directory}, {"gb_per_s", place.rates}});
  }
  print({{"size", options.size},
         {"block", options.block_bytes},
         {"ranks", options.ranks},
         {"measured", list}});
  return kExitGood;
}

}  // namespace stdchk::tools
