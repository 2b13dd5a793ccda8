#include "core/files/drain_manifest.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "core/base/descriptor.h"
#include "core/base/limits.h"
#include "core/chunk/crc_joined.h"

namespace stdchk {

Outcome<OpenedFile> open_manifest(const DrainFolder& folder, Access access) {
  const auto above = folder.own_status();
  if (!above) return tl::unexpected(above.error());
  return folder.open(kManifestName, access, {{}, {}, {above->st_uid, 0, ::geteuid()}, false});
}

namespace {

tl::unexpected<Problem> unreadable_policy(int number) {
  return problem(Code::kSystem, "drain_manifest", number,
                 fmt::format("reading .stdchk-policy failed: {}", std::strerror(number)));
}

}  // namespace

Outcome<std::string> read_policy_text(const DrainFolder& folder) {
  const auto above = folder.own_status();
  if (!above) return tl::unexpected(above.error());
  // The owner and the text are of one link, although others may exchange the link meanwhile.
  const Descriptor link(::openat(folder.get(), kPolicyLinkName, O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat there {};
  if (!link || ::fstat(link.get(), &there) != 0) return unreadable_policy(errno);
  if (there.st_uid != above->st_uid && there.st_uid != 0 && there.st_uid != ::geteuid()) {
    return problem(Code::kSystem, "drain_manifest", EPERM,
                   "the link .stdchk-policy belongs to another user");
  }
  std::array<char, limits::kPathBytesMax + 1> text{};
  const ssize_t length = ::readlinkat(link.get(), "", text.data(), text.size());
  if (length < 0) return unreadable_policy(errno);
  if (static_cast<std::size_t>(length) == text.size()) return unreadable_policy(ENAMETOOLONG);
  return std::string(text.data(), static_cast<std::size_t>(length));
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
