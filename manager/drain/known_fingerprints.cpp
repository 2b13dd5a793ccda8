#include "manager/drain/known_fingerprints.h"

namespace stdchk::manager {

FileFingerprint KnownFingerprints::of(const File& file) const {
  const auto found = known_.find(file.id);
  const bool is_known = found != known_.end() && found->second.version == file.newest.version;
  return is_known ? found->second.fingerprint : FileFingerprint{};
}

void KnownFingerprints::add(const State& state, FileId file, Version version,
                            const FileFingerprint& fingerprint) {
  if (!fingerprint.is_known()) return;
  known_[file] = {version, fingerprint};
  if (known_.size() <= 2 * state.files().size()) return;
  std::erase_if(known_, [&](const auto& each) { return state.file(each.first) == nullptr; });
}

}  // namespace stdchk::manager
