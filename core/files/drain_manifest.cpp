#include "core/files/drain_manifest.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "core/base/limits.h"
#include "core/base/utf8.h"
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

std::string manifest_key(std::string_view file_name) {
  std::string key;
  while (!file_name.empty()) {
    const std::size_t length = utf8_length(file_name);
    if (length == 0) {
      key += '\0';
      key += fmt::format("{:02x}", static_cast<unsigned char>(file_name[0]));
    }
    key += file_name.substr(0, length);
    file_name.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return key;
}

std::optional<std::string> name_of_key(std::string_view key) {
  std::string name;
  for (std::size_t at = 0; at < key.size(); ++at) {
    if (key[at] != '\0') {
      name += key[at];
      continue;
    }
    unsigned byte = 0;
    const std::string_view digits = key.substr(at + 1, 2);
    const auto [end, code] =
        std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
    if (code != std::errc() || digits.size() != 2 || end != digits.data() + 2) return std::nullopt;
    name += static_cast<char>(byte);
    at += 2;
  }
  if (manifest_key(name) != key) return std::nullopt;
  return name;
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
