// Feeds arbitrary bytes to the readers of JSON: manifests, pool records, and the record's copy that
// the pool's processes keep. Accepted input must be writable and readable again. Feeds the bytes
// also to a job's nodes, as a file of their exchange folder.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/assert.h"
#include "core/base/limits.h"
#include "core/files/drain_directory.h"
#include "manager/drain/manifest_reader.h"
#include "tests/fuzz/choices.h"
#include "tests/fuzz/temporary_folder.h"
#include "tools/base/pool_record.h"
#include "tools/base/running.h"
#include "tools/drained/manifest.h"
#include "tools/drained/manifest_change.h"
#include "tools/pool/meeting.h"

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

/// A new pool imports from a manifest the same facts as its verifier reads, or none.
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
  STDCHK_ASSERT(record->mount.starts_with('/') && !record->remote_shell.empty());
  for (const Member& member : record->members) {
    STDCHK_ASSERT(member.process.pid > 1 && member.directory.starts_with('/'));
    // The host becomes a word of a remote shell's command line.
    STDCHK_ASSERT(!member.host.starts_with('-') && member.host.find(' ') == std::string::npos);
  }
  STDCHK_ASSERT(save(*record).has_value());
  const std::string first = folder.read("pool.json");
  const auto again = load(folder.path());
  STDCHK_ASSERT(again.has_value() && save(*again).has_value());
  STDCHK_ASSERT(folder.read("pool.json") == first);
}

void check_spare(const std::string& text) {
  const auto content = parse_spare(text);
  if (!content) return;
  STDCHK_ASSERT(!content->record.empty());
  const auto again = parse_spare(spare_text(*content));
  STDCHK_ASSERT(again && again->record == content->record && again->secret == content->secret &&
                again->key == content->key);
}

void check_exchange(const fuzz::TemporaryFolder& folder, const std::string& text) {
  const Meeting meeting(folder.path());
  for (const char* name : {"address", "failed.n1", "ready.n2", "secret"}) folder.write(name, text);
  const auto is_shown = [](const std::string& word) {
    return std::ranges::none_of(word, [](unsigned char c) { return c < ' ' || c == 0x7f; });
  };
  const auto manager = meeting.manager();
  STDCHK_ASSERT(!manager || (!manager->empty() && is_shown(*manager)));
  const Answers answers = meeting.answers();
  STDCHK_ASSERT(answers.ready == 1 && answers.failures.starts_with("n1: "));
  STDCHK_ASSERT(is_shown(answers.failures));
  const auto secret = meeting.take("secret");
  STDCHK_ASSERT(secret ? *secret == text : text.size() > Meeting::kWordBytesMax);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::TemporaryFolder folder;
  fuzz::Choices choices({reinterpret_cast<const std::byte*>(data), size});
  const std::uint8_t kind = choices.byte();
  const bool is_manifest = (kind & 1) != 0;
  const std::string text = fuzz::text_of(choices.rest());
  constexpr std::uint8_t kSpare = 0xf0;
  constexpr std::uint8_t kExchange = 0xf2;
  if (kind == kSpare) check_spare(text);
  if (kind == kExchange) {
    static const fuzz::TemporaryFolder exchange;
    check_exchange(exchange, text);
  }
  if (is_manifest) check_import(folder, text);
  is_manifest ? check_manifest(folder, text) : check_record(folder, text);
  return 0;
}
