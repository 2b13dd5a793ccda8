#include "manager/sessions/file_attributes.h"

namespace stdchk::manager {

Attributes FileAttributes::of(const File& file, const VersionData& version) const {
  Attributes out = pool_.state().files().attributes(file, version);
  if (out.drain == DrainState::kPending) {
    out.drain = pool_.has_drain() ? drain_.state_of(file.id) : DrainState::kNone;
  }
  return out;
}

}  // namespace stdchk::manager
