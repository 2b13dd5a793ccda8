#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "core/base/limits.h"
#include "core/chunk/naming.h"
#include "tools/base/exit_status.h"
#include "tools/base/share_out.h"
#include "tools/data/check_report.h"
#include "tools/data/commands.h"
#include "tools/drained/drained_objects.h"

namespace stdchk::tools {
namespace {

constexpr std::size_t kReaders = 8;
constexpr std::uint64_t kReadBytes = 8 * limits::kMiB;

/// An object with the result of its check.
struct CheckedObject {
  DrainedObjects::File file;
  std::string fault;      ///< empty: its bytes have the checksums of its metadata
  bool unlisted = false;  ///< no pool has written it
  bool is_special = false;
  std::uint64_t checked_bytes = 0;
};

/// Reads the object's ranges, and compares each with its checksum.
void check_ranges(const DrainedObjects& objects, CheckedObject& object,
                  const ObjectAttributes& attributes, const std::string& etag) {
  std::vector<std::byte> bytes;
  const std::uint64_t size = object.file.size_bytes;
  for (std::size_t i = 0; i < attributes.crcs.size(); ++i) {
    const std::uint64_t begin = i * attributes.range_bytes;
    const std::uint64_t end = std::min(begin + attributes.range_bytes, size);
    std::uint32_t crc = 0;
    for (std::uint64_t at = begin; at < end; at += bytes.size()) {
      bytes.resize(std::min(kReadBytes, end - at));
      const auto got = objects.store().get(object.file.key, {at, bytes, etag}, objects.deadline());
      if (!got) {
        object.fault = "cannot be read: " + got.error().text;
        return;
      }
      crc = crc32c(crc, bytes);
    }
    if (crc != attributes.crcs[i]) {
      object.fault = fmt::format("is damaged in the {} bytes from {} on", end - begin, begin);
      return;
    }
    object.checked_bytes += end - begin;
  }
}

void check_object(const DrainedObjects& objects, CheckedObject& object) {
  const auto found = objects.store().find(object.file.key, objects.deadline());
  if (!found) {
    object.fault = "cannot be looked at: " + found.error().text;
    return;
  }
  object.file.size_bytes = found->size_bytes;
  const auto attributes = ObjectAttributes::parse(found->metadata);
  object.unlisted = !attributes;
  object.is_special = attributes && attributes->kind != ObjectKind::kFile;
  if (!attributes || object.is_special) return;
  const std::uint64_t range = attributes->range_bytes;
  const bool is_right = attributes->crcs.empty() ||
                        attributes->crcs.size() == (found->size_bytes + range - 1) / range;
  if (!is_right) {
    object.fault =
        fmt::format("has {} bytes, which is not the size that was drained", found->size_bytes);
    return;
  }
  check_ranges(objects, object, *attributes, found->etag);
}

/// Folders, links and other objects without content are left out.
int report(const std::vector<CheckedObject>& all, bool as_json) {
  std::vector<FileCheck> checks;
  for (const CheckedObject& object : all) {
    if (object.is_special && object.fault.empty()) continue;
    const std::uint64_t size = object.file.size_bytes;
    checks.push_back({object.file.path, object.fault, object.unlisted, object.checked_bytes,
                      size - std::min(size, object.checked_bytes)});
  }
  return report_checks(checks, {"was drained by no pool", "without", "of no pool"}, as_json);
}

}  // namespace

int run_verify_objects(const VerifyOptions& options) {
  const auto objects = DrainedObjects::open(options.path, options.endpoint);
  if (!objects) return complain(objects.error().text);
  auto files = objects->files();
  if (!files) return complain(files.error().text);
  if (files->empty()) {
    return complain(fmt::format("no drained file is in {}", objects->place().name()));
  }
  std::vector<CheckedObject> all(files->size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i].file = std::move((*files)[i]);
  share_out(all, kReaders,
            [&] { return [&](CheckedObject& object) { check_object(*objects, object); }; });
  return report(all, options.json);
}

}  // namespace stdchk::tools
