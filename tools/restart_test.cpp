#include <algorithm>
#include <atomic>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/image_name.h"
#include "core/units.h"
#include "tools/commands.h"
#include "tools/connection.h"
#include "tools/show.h"

namespace stdchk::tools {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

constexpr std::size_t kReadBytes = limits::kMiB;

double seconds_since(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

/// One rank's image.
struct Load {
  std::uint64_t rank = 0;
  Attributes attributes;
  double seconds = 0;  ///< from the beginning of all until its last byte was there
  Status done;
};

Status load(client::Filesystem& filesystem, const Attributes& attributes) {
  client::OpenFlags flags;
  flags.read = true;
  STDCHK_ASSIGN(const auto file, filesystem.open(attributes.id, flags));
  std::vector<std::byte> buffer(kReadBytes);
  for (std::uint64_t at = 0; at < attributes.size_bytes;) {
    STDCHK_ASSIGN(const std::size_t count, file->read(at, buffer));
    if (count == 0) return fail(Code::kStale, "restart.read");
    at += count;
  }
  return file->close();
}

/// The set that was asked for, otherwise the newest complete one.
Outcome<msg::ListSets::Entry> choose_set(client::Filesystem& filesystem, FileId folder,
                                         const std::string& wanted) {
  auto sets = filesystem.sets(folder);
  if (!sets) return failed("the sets", sets.error());
  for (const auto& set : sets->sets) {
    const std::string name = set_name(set.application, set.timestep);
    if (wanted.empty() ? set.latest : name == wanted) return set;
  }
  if (!wanted.empty()) return problem("there is no set {} in that folder", wanted);
  return problem("no set in that folder is complete; see stdchk set list, or name one with --set");
}

Outcome<std::vector<Load>> images_of(client::Filesystem& filesystem, FileId folder,
                                     const msg::ListSets::Entry& set) {
  auto entries = filesystem.read_directory(folder);
  if (!entries) return failed("the folder", entries.error());
  std::vector<Load> loads;
  for (const auto& entry : *entries) {
    const auto image = parse_image_name(entry.name);
    if (!image || image->application != set.application || image->timestep != set.timestep)
      continue;
    loads.push_back({image->node, entry.attributes, 0, {}});
  }
  return loads;
}

/// All at once, as the ranks of a job would; no rank goes on before the slowest has its image.
void load_all(client::Filesystem& filesystem, Clock::time_point began, std::uint32_t readers,
              std::vector<Load>& loads) {
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < std::min<std::size_t>(readers, loads.size()); ++i) {
    threads.emplace_back([&] {
      for (std::size_t at = next++; at < loads.size(); at = next++) {
        loads[at].done = load(filesystem, loads[at].attributes);
        loads[at].seconds = seconds_since(began);
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace

int run_restart_test(const RestartTestOptions& options) {
  const auto began = Clock::now();
  auto located = locate(options.pool, options.path, limits::kWindowBytesDefault);
  if (!located) return complain(located.error().text);
  client::Filesystem& filesystem = *located->filesystem;
  const FileId folder = located->attributes.id;
  auto set = choose_set(filesystem, folder, options.set);
  if (!set) return complain(set.error().text);
  auto loads = images_of(filesystem, folder, *set);
  if (!loads) return complain(loads.error().text);
  load_all(filesystem, began, options.readers, *loads);
  const Load* slowest = nullptr;
  std::uint64_t bytes = 0;
  for (const Load& one : *loads) {
    if (!one.done) {
      return complain(fmt::format("the image of rank {} cannot be read: {}", one.rank,
                                  describe(one.done.error())));
    }
    bytes += one.attributes.size_bytes;
    if (slowest == nullptr || one.seconds > slowest->seconds) slowest = &one;
  }
  if (slowest == nullptr) return complain("that set has no images any more");
  const double rate = static_cast<double>(bytes) / 1e6 / slowest->seconds;
  const std::string name = set_name(set->application, set->timestep);
  if (options.json) {
    print(Json{{"set", name},
               {"images", loads->size()},
               {"bytes", bytes},
               {"seconds", slowest->seconds},
               {"slowest_rank", slowest->rank},
               {"mb_per_s", rate}});
  } else {
    fmt::print("{}: {} images, {} in {:.3f} s ({:.0f} MB/s); the last was that of rank {}\n", name,
               loads->size(), format_bytes(bytes), slowest->seconds, rate, slowest->rank);
  }
  return kExitGood;
}

}  // namespace stdchk::tools
