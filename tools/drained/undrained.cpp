#include "tools/drained/undrained.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <tuple>

#include "core/policy/image_name.h"
#include "core/runtime/confinement.h"
#include "tools/base/connection.h"
#include "tools/base/exit_status.h"
#include "tools/drained/drained_since.h"
#include "tools/drained/file_groups.h"
#include "tools/drained/manifest_writer.h"
#include "tools/drained/safe_file.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto kCheckInterval = 1s;
constexpr int kShareOfTime = 20;  ///< a walk takes at most one part in this number of the time
constexpr std::size_t kShownMax = 20;

/// Folder, application and timestep of a set; folder and name of another file.
using Key = std::tuple<std::string, std::string, std::uint64_t>;

/// Replaces line breaks, because an entry is one line of the file.
std::string one_line(std::string path) {
  std::ranges::replace(path, '\n', '?');
  return path;
}

std::string parent_of(const std::string& path) { return fs::path(path).parent_path(); }
std::string name_of(const std::string& path) { return fs::path(path).filename(); }

/// Returns figures that change when a file was written, drained or removed.
auto state_of(const msg::StatPool::Reply& pool) {
  return std::tuple(pool.epoch.value, pool.file_count, pool.totals.images,
                    pool.totals.written_bytes, pool.totals.drained_images,
                    pool.drain_pending_files);
}

/// Walks all names once, and saves the list of undrained images and the manifests.
Outcome<void> look(client::Filesystem& filesystem, const std::string& path,
                   ManifestWriter& manifests) {
  const auto undrained = find_undrained(filesystem);
  if (!undrained) return problem(undrained.error());
  if (auto saved = save_undrained(*undrained, path); !saved) return saved;
  if (filesystem.config().drain_directory.empty()) return {};
  const auto root = filesystem.attributes(kRootFile);
  if (!root) return failed("/", root.error());
  return manifests.write(filesystem, "", *root);
}

/// Writes the newest safe set. When the pool has none any more, the file stays: the drain directory
/// has the set that the file names.
Outcome<void> look_for_safe_set(client::Filesystem& filesystem, const std::string& path,
                                std::int64_t& written_ns) {
  const auto root = filesystem.attributes(kRootFile);
  if (!root) return failed("/", root.error());
  const auto groups = find_groups(filesystem, "", *root);
  if (!groups) return problem(groups.error());
  const FileGroup* safe = newest_safe_set(*groups);
  if (safe == nullptr || safe->newest_ns <= written_ns) return {};
  written_ns = safe->newest_ns;
  return save_safe_set(*safe, path);
}

}  // namespace

Outcome<Undrained> find_undrained(client::Filesystem& filesystem) {
  Undrained undrained;
  undrained.when = text_of_now();  // files that drain during the walk may be listed as missing
  auto root = filesystem.attributes(kRootFile);
  if (!root) return failed("/", root.error());
  std::map<Key, Undrained::Entry, std::greater<>> found;
  auto walked = walk(filesystem, "", *root, [&](const std::string& path, const Attributes& file) {
    if (file.type != FileType::kRegular || file.version == 0) return true;
    const std::string folder = parent_of(path);
    const auto image = parse_image_name(name_of(path));
    Key key{folder, path, 0};
    std::string name = path;
    if (image) {
      key = {folder, image->application, image->timestep};
      name = (folder.empty() ? "" : folder + "/") + set_name(image->application, image->timestep);
    }
    Undrained::Entry& entry = found[key];
    entry.path = one_line(name);
    ++entry.files;
    if (file.drain != DrainState::kDrained) ++entry.missing;
    return true;
  });
  if (!walked) return problem(walked.error());
  for (auto& [key, entry] : found) {
    if (entry.missing > 0) undrained.entries.push_back(std::move(entry));
  }
  return undrained;
}

std::vector<std::string> undrained_lines(const Undrained& undrained) {
  std::vector<std::string> lines;
  for (const auto& entry : undrained.entries) {
    if (lines.size() == kShownMax) {
      lines.push_back(fmt::format("and {} more", undrained.entries.size() - kShownMax));
      break;
    }
    lines.push_back(parse_set_name(name_of(entry.path))
                        ? fmt::format("{}: {} of {} images", entry.path, entry.missing, entry.files)
                        : entry.path);
  }
  return lines;
}

void leave_out_drained(Undrained& undrained, const std::string& drain) {
  std::erase_if(undrained.entries, [&](const Undrained::Entry& entry) {
    const auto set = parse_set_name(name_of(entry.path));
    return set &&
           drained_since(drain, parent_of(entry.path), *set, undrained.when) >= entry.missing;
  });
}

std::string losses(const std::string& path, const std::string& drain) {
  Undrained lost = load_undrained(path);
  if (!drain.empty()) leave_out_drained(lost, drain);
  if (lost.entries.empty()) return {};
  std::string text =
      fmt::format("These files were not drained at {}, so they are lost:\n", lost.when);
  for (const std::string& line : undrained_lines(lost)) text += "  lost        " + line + "\n";
  return text;
}

std::string take_losses(const std::string& path, const std::string& drain) {
  std::string text = losses(path, drain);
  std::error_code code;
  fs::remove(path, code);
  return text;
}

void report_losses(const std::string& path, const std::string& drain, const std::string& report) {
  std::string text = take_losses(path, drain);
  if (text.empty()) return;
  text = "The pool of an earlier run of this job was lost. " + text;
  fmt::print(stderr, "{}", text);
  (void)append_to_own_file(report, text);
}

int keep_files(const PoolRecord& pool, const KeptFiles& paths) {
  notice_end_signals();
  // The recorder runs as long as the pool, often as root, and reads texts of members and users.
  if (const Status confined = paths.confined ? confine({}) : Status(); !confined) {
    return complain(describe(confined.error()));
  }
  auto filesystem = connect(pool);
  if (!filesystem) return complain(filesystem.error().text);
  ManifestWriter manifests((*filesystem)->config().drain_directory);
  decltype(state_of({})) seen{};
  std::int64_t safe_ns = 0;
  auto check_at = std::chrono::steady_clock::now();
  for (; !asked_to_end() && fs::exists(pool.path()); sleep_for(100ms)) {
    const auto now = std::chrono::steady_clock::now();
    if (now < check_at) continue;
    check_at = now + kCheckInterval;
    const auto figures = (*filesystem)->stat_pool();
    if (!figures || state_of(*figures) == seen) continue;
    Outcome<void> done;
    if (!paths.undrained.empty()) done = look(**filesystem, paths.undrained, manifests);
    if (done && !paths.safe.empty()) done = look_for_safe_set(**filesystem, paths.safe, safe_ns);
    if (!done) {
      (void)complain(done.error().text);  // and tries again later
      continue;
    }
    seen = state_of(*figures);
    check_at = now + std::max<Duration>(kCheckInterval,
                                        (std::chrono::steady_clock::now() - now) * kShareOfTime);
  }
  return kExitGood;
}

}  // namespace stdchk::tools
