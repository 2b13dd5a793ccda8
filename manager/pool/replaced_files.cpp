#include "manager/pool/replaced_files.h"

#include "core/base/limits.h"

namespace stdchk::manager {

static_assert(ReplacedFiles::kKept > limits::kCacheLease);

void ReplacedFiles::keep_file_at(FileId parent, const std::string& name, Time now) {
  const auto directory = state_.directory(parent);
  if (!directory) return;
  const auto child = (*directory)->children.find(name);
  if (child == (*directory)->children.end()) return;
  if (state_.file(child->second)->type == FileType::kDirectory) return;
  if (files_.size() >= kFilesMax) release_oldest();
  state_.keep(child->second);
  files_.emplace_back(now + kKept, child->second);
}

bool ReplacedFiles::expire(Time now) {
  bool any = false;
  for (; !files_.empty() && files_.front().first <= now; any = true) release_oldest();
  return any;
}

bool ReplacedFiles::give_up() {
  const bool any = !files_.empty();
  while (!files_.empty()) release_oldest();
  return any;
}

void ReplacedFiles::release_oldest() {
  state_.unkeep(files_.front().second);
  files_.pop_front();
}

}  // namespace stdchk::manager
