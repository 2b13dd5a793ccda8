// Feeds any bytes to those who read JSON: as the manifest of a folder of the drain directory, and
// as the record of a pool. What they let in they can write and read again.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/assert.h"
#include "core/drain_directory.h"
#include "core/limits.h"
#include "manager/manifest_reader.h"
#include "tests/fuzz/choices.h"
#include "tests/fuzz/temporary_folder.h"
#include "tools/manifest.h"
#include "tools/manifest_change.h"
#include "tools/pool_record.h"

using namespace stdchk;
using namespace stdchk::tools;

namespace {

using Clock = std::chrono::steady_clock;

DrainFolder open(const fuzz::TemporaryFolder& folder) {
  auto opened = DrainDirectory(folder.path()).open();
  STDCHK_ASSERT(opened.has_value());
  return std::move(*opened);
}

void check_manifest(const fuzz::TemporaryFolder& folder, const std::string& text) {
  folder.write(kManifestName, text);
  const auto files = read_manifests(folder.path());
  if (!files) return;
  for (const ManifestFile& file : *files) {
    STDCHK_ASSERT(file.damaged || file.path.starts_with(folder.path() + "/"));
    std::uint64_t from = 0;
    for (const ManifestPiece& piece : file.pieces) {
      STDCHK_ASSERT(piece.length <= limits::kChunkBytesMax && piece.offset >= from);
      STDCHK_ASSERT(piece.offset + piece.length <= file.size_bytes);
      from = piece.offset;
    }
  }
  const nlohmann::json entries = manifest_entries(open(folder));
  const auto listed = std::ranges::count(*files, false, &ManifestFile::unlisted);
  STDCHK_ASSERT(entries.size() == static_cast<std::size_t>(listed));
  const auto add = [](nlohmann::json& to) { to["added"] = 1; };
  STDCHK_ASSERT(change_manifest(open(folder), folder.path(), add, Clock::now()).has_value());
  nlohmann::json more = entries;
  add(more);
  STDCHK_ASSERT(manifest_entries(open(folder)) == more);
  while (!manifest_entries(open(folder)).empty()) {
    const nlohmann::json before = manifest_entries(open(folder));
    const std::string name = before.begin().key();
    STDCHK_ASSERT(forget_in_manifest(open(folder), folder.path(), {name}).has_value());
    STDCHK_ASSERT(manifest_entries(open(folder)).size() + 1 == before.size());
    if (before.size() > 4) break;
  }
}

/// A new pool knows of drained files what those who verify them know, or nothing.
void check_import(const fuzz::TemporaryFolder& folder, const std::string& text) {
  folder.write(kManifestName, text);
  manager::ManifestReader reader(manager::ManifestReader::Clock::time_point::max());
  const nlohmann::json entries = manifest_entries(open(folder));
  for (const auto& [name, known] : reader.read(open(folder), folder.path())) {
    std::uint64_t end = 0;
    for (const DrainedRange& range : known.ranges) {
      STDCHK_ASSERT(range.length > 0 && range.length <= limits::kChunkBytesMax);
      STDCHK_ASSERT(range.offset >= end);
      end = range.offset + range.length;
    }
    STDCHK_ASSERT(end <= known.size_bytes);
    const auto entry = entries.find(name);
    const ManifestFile file = entry == entries.end() ? ManifestFile{} : parse_entry(name, *entry);
    if (entry == entries.end() || file.damaged) continue;
    std::vector<DrainedRange> ranges;
    for (const ManifestPiece& piece : file.pieces) {
      ranges.push_back({piece.offset, static_cast<std::uint32_t>(piece.length), piece.crc});
    }
    STDCHK_ASSERT(file.size_bytes == known.size_bytes && joined(ranges) == known.ranges);
  }
}

void check_record(const fuzz::TemporaryFolder& folder, const std::string& text) {
  folder.write("pool.json", text);
  const auto record = load(folder.path());
  if (!record) return;
  STDCHK_ASSERT(save(*record).has_value());
  const std::string first = folder.read("pool.json");
  const auto again = load(folder.path());
  STDCHK_ASSERT(again.has_value() && save(*again).has_value());
  STDCHK_ASSERT(folder.read("pool.json") == first);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::TemporaryFolder folder;
  fuzz::Choices choices({reinterpret_cast<const std::byte*>(data), size});
  const bool is_manifest = choices.flag();
  const std::string text = fuzz::text_of(choices.rest());
  if (is_manifest) check_import(folder, text);
  is_manifest ? check_manifest(folder, text) : check_record(folder, text);
  return 0;
}
