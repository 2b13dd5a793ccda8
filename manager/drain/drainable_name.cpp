#include "manager/drain/drainable_name.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/limits.h"
#include "core/base/utf8.h"
#include "core/objects/object_place.h"
#include "core/policy/reserved_names.h"

namespace stdchk::manager {
namespace {

constexpr std::string_view kOfCommands[] = {kCastPrefix, kRestartPrefix, kDoctorPrefix};

bool is_reserved(FileId parent, std::string_view name) {
  if (!name.starts_with(kReservedPrefix)) return false;
  const bool is_of_command = std::ranges::any_of(
      kOfCommands, [&](std::string_view beginning) { return name.starts_with(beginning); });
  return parent != kRootFile || !is_of_command;
}

/// S3's keys are texts. Some stores refuse other bytes, and some change them.
bool is_utf8(std::string_view name) {
  while (!name.empty()) {
    const std::size_t length = utf8_length(name);
    if (length == 0) return false;
    name.remove_prefix(length);
  }
  return true;
}

/// Returns how many bytes a path from the pool's root may have.
std::size_t drainable_path_bytes(const Pool& pool) {
  const std::string& place = pool.config().pool.drain_directory;
  // A key has the prefix before the path, and a slash behind that of a folder.
  const std::size_t drain = drain_name(place).size() + 1;
  const std::size_t longest = is_object_store(place) ? kKeyBytesMax - 1 : limits::kPathBytesMax;
  return drain < longest ? longest - drain : 0;
}

/// Returns the bytes of the longest path below the directory, with the slash before it.
std::size_t longest_path_below(const State& state, const File& directory) {
  std::size_t longest = 0;
  std::vector<std::pair<const File*, std::size_t>> todo{{&directory, 0}};
  while (!todo.empty()) {
    const auto [at, above] = todo.back();
    todo.pop_back();
    for (const auto* names : {&at->as_directory.children, &at->as_directory.pending_children}) {
      for (const auto& [name, id] : *names) {
        const std::size_t bytes = above + 1 + name.size();
        longest = std::max(longest, bytes);
        const File* const file = state.file(id);
        if (file->type == FileType::kDirectory) todo.emplace_back(file, bytes);
      }
    }
  }
  return longest;
}

}  // namespace

Status check_drainable(const Pool& pool, FileId parent, std::string_view name) {
  if (is_reserved(parent, name)) return fail(Code::kInvalidArgument, "name of the pool's own");
  const bool needs_text = pool.has_drain() && is_object_store(pool.config().pool.drain_directory);
  if (needs_text && !is_utf8(name)) {
    return fail(Code::kInvalidArgument, "name is not UTF-8, as object stores want");
  }
  if (name.size() <= drainable_name_bytes(pool, parent)) return {};
  if (name.size() > limits::kNameBytesMax) return {};  // the change itself says so
  return fail(Code::kNameTooLong, "path in the drain directory");
}

std::size_t drainable_name_bytes(const Pool& pool, FileId parent) {
  const File* const folder = pool.state().file(parent);
  if (!pool.has_drain() || folder == nullptr) return limits::kNameBytesMax;
  const std::size_t above = parent == kRootFile ? 0 : pool.state().path(*folder).size() + 1;
  const std::size_t most = drainable_path_bytes(pool);
  return most > above ? std::min(most - above, limits::kNameBytesMax) : 0;
}

Status check_drainable_below(const Pool& pool, const File& moved, FileId parent,
                             std::string_view name) {
  const State& state = pool.state();
  const File* const folder = state.file(parent);
  if (!pool.has_drain() || folder == nullptr || moved.type != FileType::kDirectory) return {};
  const std::size_t above = parent == kRootFile ? 0 : state.path(*folder).size() + 1;
  const std::size_t bytes = above + name.size();
  if (bytes <= state.path(moved).size()) return {};
  if (bytes + longest_path_below(state, moved) <= drainable_path_bytes(pool)) return {};
  return fail(Code::kNameTooLong, "path below the directory, in the drain directory");
}

}  // namespace stdchk::manager
