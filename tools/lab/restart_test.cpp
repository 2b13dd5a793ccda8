#include "tools/data/restart.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/units.h"
#include "tools/base/connection.h"
#include "tools/base/exit_status.h"
#include "tools/base/process.h"
#include "tools/base/share_out.h"
#include "tools/base/show.h"
#include "tools/data/set_images.h"
#include "tools/lab/commands.h"

namespace stdchk::tools {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

constexpr std::size_t kReadBytes = limits::kMiB;

/// The loading of one image.
struct Load {
  SetImage image;
  double seconds = 0;  ///< seconds from the common beginning to the image's last byte
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

/// Loads all images at once, as a job's ranks would. A restart ends with its slowest rank.
void load_all(client::Filesystem& filesystem, Clock::time_point began, std::uint32_t readers,
              std::vector<Load>& loads) {
  share_out(loads, readers, [&] {
    return [&](Load& one) {
      one.done = load(filesystem, one.image.attributes);
      one.seconds = seconds_since(began);
    };
  });
}

std::string image_text(const SetImage& image) {
  return image.rank ? fmt::format("the image of rank {}", *image.rank) : image.name;
}

constexpr const char* kNoSet =
    "no set in that folder is complete; see stdchk set list, or name a set with --set";

/// Each node loads the images of its ranks.
int test_on_nodes(const RestartTestOptions& options, const std::string& invoked_as) {
  RestartOptions restart;
  restart.pool = options.pool;
  restart.path = options.path;
  restart.set = options.set;
  restart.job = options.job;
  restart.hosts = options.hosts;
  restart.remote_shell = options.remote_shell;
  const auto loaded = load_on_nodes(restart, invoked_as);
  if (!loaded) return complain(loaded.error().text);
  if (!*loaded) return complain(kNoSet);
  const Loaded& all = **loaded;
  const double rate = static_cast<double>(all.bytes) / 1e6 / all.seconds;
  if (options.json) {
    print(Json{{"set", all.set},
               {"images", all.images},
               {"bytes", all.bytes},
               {"ranks", all.ranks},
               {"nodes", all.nodes},
               {"seconds", all.seconds},
               {"slowest_node", all.last},
               {"mb_per_s", rate}});
  } else {
    fmt::print(
        "{}: {} {}, {} for {} ranks on {} nodes in {:.3f} s ({:.0f} MB/s); the last was {}\n",
        shown(all.set), all.images, all.word, format_bytes(all.bytes), all.ranks, all.nodes,
        all.seconds, rate, all.last);
  }
  return kExitGood;
}

}  // namespace

int run_restart_test(const RestartTestOptions& options, const std::string& invoked_as) {
  if (options.job || !options.hosts.empty()) return test_on_nodes(options, invoked_as);
  const auto began = Clock::now();
  auto located = locate(options.pool, options.path, limits::kWindowBytesDefault);
  if (!located) return complain(located.error().text);
  auto set = choose_set(*located, options.set);
  if (!set) return complain(set.error().text);
  if (!*set) return complain(kNoSet);
  std::vector<Load> loads;
  for (SetImage& image : (*set)->images) loads.push_back({std::move(image), 0, {}});
  load_all(*located->filesystem, began, options.readers, loads);
  const Load* slowest = nullptr;
  std::uint64_t bytes = 0;
  for (const Load& one : loads) {
    if (!one.done) {
      return complain(
          fmt::format("{} cannot be read: {}", image_text(one.image), describe(one.done.error())));
    }
    bytes += one.image.attributes.size_bytes;
    if (slowest == nullptr || one.seconds > slowest->seconds) slowest = &one;
  }
  if (slowest == nullptr) return complain("the images of that set were removed");
  const double rate = static_cast<double>(bytes) / 1e6 / slowest->seconds;
  if (options.json) {
    print(Json{{"set", (*set)->name},
               {"images", loads.size()},
               {"bytes", bytes},
               {"seconds", slowest->seconds},
               {"slowest_rank", slowest->image.rank ? Json(*slowest->image.rank) : Json()},
               {"slowest_file", slowest->image.name},
               {"mb_per_s", rate}});
  } else {
    fmt::print("{}: {} {}, {} in {:.3f} s ({:.0f} MB/s); the last was {}\n", shown((*set)->name),
               loads.size(), (*set)->word(), format_bytes(bytes), slowest->seconds, rate,
               slowest->image.rank ? fmt::format("that of rank {}", *slowest->image.rank)
                                   : shown(slowest->image.name));
  }
  return kExitGood;
}

}  // namespace stdchk::tools
