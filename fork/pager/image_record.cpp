#include "fork/pager/image_record.h"

#include <cstring>

#include "core/base/assert.h"
#include "fork/pager/file_source.h"

namespace stdchk::pager {
namespace {

struct Fixed {
  std::uint64_t is_file = 0;
  PoolSource::Identity identity;
};

}  // namespace

std::string SourceRecord::encode() const {
  const Fixed fixed{is_file ? 1U : 0U, identity};
  std::string text(sizeof(fixed), '\0');
  std::memcpy(text.data(), &fixed, sizeof(fixed));
  return text + name;
}

Result<SourceRecord> SourceRecord::decode(const std::string& text) {
  Fixed fixed;
  if (text.size() < sizeof(fixed)) return fail(Code::kMalformed, "pager.record");
  std::memcpy(&fixed, text.data(), sizeof(fixed));
  return SourceRecord{fixed.is_file != 0, fixed.identity, text.substr(sizeof(fixed))};
}

SourceRecord record_of(const Source& source) {
  if (const auto* pooled = dynamic_cast<const PoolSource*>(&source)) {
    return {false, pooled->identity(), pooled->name()};
  }
  return {true, {}, source.name()};
}

std::string key_of(const Source& source) {
  if (const auto* pooled = dynamic_cast<const PoolSource*>(&source)) return pooled->key();
  const auto* file = dynamic_cast<const FileSource*>(&source);
  STDCHK_ASSERT(file != nullptr);
  return file->key();
}

Result<std::shared_ptr<Source>> source_of(const SourceRecord& record, Descriptor file,
                                          PoolConnection& pool) {
  if (!record.is_file) {
    return std::shared_ptr<Source>(PoolSource::reopen(pool, record.name, record.identity));
  }
  STDCHK_ASSIGN(std::shared_ptr<Source> source, FileSource::create(std::move(file), record.name));
  return source;
}

}  // namespace stdchk::pager
