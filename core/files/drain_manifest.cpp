#include "core/files/drain_manifest.h"

#include <unistd.h>

#include <cerrno>

#include "core/base/limits.h"
#include "core/chunk/crc_joined.h"

namespace stdchk {

Outcome<OpenedFile> open_manifest(const DrainFolder& folder, Access access) {
  const auto above = folder.own_status();
  if (!above) return tl::unexpected(above.error());
  return folder.open(kManifestName, access, {{}, {}, {above->st_uid, 0, ::geteuid()}, false});
}

Outcome<std::string> read_policy_text(const DrainFolder& folder) {
  const auto above = folder.own_status();
  if (!above) return tl::unexpected(above.error());
  auto link = folder.link(kPolicyLinkName);
  if (!link) return tl::unexpected(link.error());
  const std::uint32_t owner = link->status.st_uid;
  if (owner != above->st_uid && owner != 0 && owner != ::geteuid()) {
    return problem(Code::kSystem, "drain_manifest", EPERM,
                   "the link .stdchk-policy belongs to another user");
  }
  return std::move(link->target);
}

std::vector<DrainedRange> joined(const std::vector<DrainedRange>& ranges) {
  std::vector<DrainedRange> out;
  for (const DrainedRange& range : ranges) {
    DrainedRange* const last = out.empty() ? nullptr : &out.back();
    if (last == nullptr || last->offset + last->length != range.offset ||
        last->length > limits::kChunkBytesMax - range.length) {
      out.push_back(range);
      continue;
    }
    last->crc = crc32c_joined(last->crc, range.crc, range.length);
    last->length += range.length;
  }
  return out;
}

}  // namespace stdchk
