#include "fork/pager/image_record.h"

#include <cstring>

#include "core/base/assert.h"
#include "fork/pager/file_source.h"

namespace stdchk::pager {
namespace {

struct Fixed {
  std::uint64_t kind = 0;
  PoolSource::Identity identity;
  std::uint64_t image_bytes = 0;
};

}  // namespace

std::string SourceRecord::encode() const {
  const Fixed fixed{static_cast<std::uint64_t>(kind), identity, image_bytes};
  std::string text(sizeof(fixed), '\0');
  std::memcpy(text.data(), &fixed, sizeof(fixed));
  return text + name;
}

Result<SourceRecord> SourceRecord::decode(const std::string& text) {
  Fixed fixed;
  if (text.size() < sizeof(fixed)) return fail(Code::kMalformed, "pager.record");
  std::memcpy(&fixed, text.data(), sizeof(fixed));
  if (fixed.kind > static_cast<std::uint64_t>(SourceKind::kCast)) {
    return fail(Code::kMalformed, "pager.record");
  }
  return SourceRecord{static_cast<SourceKind>(fixed.kind), fixed.identity,
                      text.substr(sizeof(fixed)), fixed.image_bytes};
}

SourceRecord record_of(const Source& source) {
  if (const auto* pooled = dynamic_cast<const PoolSource*>(&source)) {
    return {SourceKind::kPool, pooled->identity(), pooled->name(), 0};
  }
  if (dynamic_cast<const CastSource*>(&source) != nullptr) {
    return {SourceKind::kCast, {}, source.name(), source.size_bytes()};
  }
  return {SourceKind::kFile, {}, source.name(), 0};
}

std::string key_of(const Source& source) {
  if (const auto* pooled = dynamic_cast<const PoolSource*>(&source)) return pooled->key();
  // The name has the root of all bytes.
  if (dynamic_cast<const CastSource*>(&source) != nullptr) return source.name();
  const auto* file = dynamic_cast<const FileSource*>(&source);
  STDCHK_ASSERT(file != nullptr);
  return file->key();
}

Result<std::shared_ptr<Source>> source_of(const SourceRecord& record, Descriptor file,
                                          PoolConnection& pool, const CastPlace& cast) {
  if (record.kind == SourceKind::kPool) {
    return std::shared_ptr<Source>(PoolSource::reopen(pool, record.name, record.identity));
  }
  if (record.kind == SourceKind::kCast) {
    STDCHK_ASSIGN(std::shared_ptr<Source> source,
                  CastSource::reopen(cast, record.name, record.image_bytes));
    return source;
  }
  STDCHK_ASSIGN(std::shared_ptr<Source> source, FileSource::create(std::move(file), record.name));
  return source;
}

}  // namespace stdchk::pager
