#include "manager/drain/known_prints.h"

namespace stdchk::manager {

FilePrint KnownPrints::of(const File& file) const {
  const auto found = known_.find(file.id);
  const bool is_known = found != known_.end() && found->second.version == file.newest.version;
  return is_known ? found->second.print : FilePrint{};
}

void KnownPrints::add(const State& state, FileId file, Version version, const FilePrint& print) {
  if (!print.is_known()) return;
  known_[file] = {version, print};
  if (known_.size() <= 2 * state.files().size()) return;
  std::erase_if(known_, [&](const auto& each) { return state.file(each.first) == nullptr; });
}

}  // namespace stdchk::manager
