#include "manager/pool/replaced_files.h"

#include "core/base/limits.h"

namespace stdchk::manager {

static_assert(ReplacedFiles::kKept > limits::kCacheLease);

void ReplacedFiles::keep_file_at(FileId parent, const std::string& name) {
  const auto directory = pool_.state().directory(parent);
  if (!directory) return;
  const auto child = (*directory)->as_directory.children.find(name);
  if (child == (*directory)->as_directory.children.end()) return;
  if (pool_.state().file(child->second)->type == FileType::kDirectory) return;
  if (files_.size() >= kFilesMax) release_oldest();
  pool_.soft_state().keep(child->second);
  files_.emplace_back(pool_.now() + kKept, child->second);
}

void ReplacedFiles::expire() {
  while (!files_.empty() && files_.front().first <= pool_.now()) release_oldest();
}

bool ReplacedFiles::give_up() {
  const bool any = !files_.empty();
  while (!files_.empty()) release_oldest();
  return any;
}

void ReplacedFiles::release_oldest() {
  pool_.unkeep(files_.front().second);
  files_.pop_front();
}

}  // namespace stdchk::manager
