#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/descriptor.h"
#include "fork/pager/cast_source.h"
#include "fork/pager/pool_source.h"
#include "fork/pager/source.h"

namespace stdchk::pager {

/// The values are in records of earlier servers.
enum class SourceKind : std::uint64_t { kPool = 0, kFile = 1, kCast = 2 };

/// A SourceRecord says what an image's source is, for a server that is started again. A source that
/// is a file comes with its descriptor.
struct SourceRecord {
  SourceKind kind = SourceKind::kPool;
  PoolSource::Identity identity;  ///< of a source in the pool
  std::string name;
  std::uint64_t image_bytes = 0;  ///< of a sender's image: no sender is asked for it

  std::string encode() const;
  static Result<SourceRecord> decode(const std::string& text);
};

/// Makes the record of a source of any kind.
SourceRecord record_of(const Source& source);
/// Equal for two sources of one image.
std::string key_of(const Source& source);
/// Makes the source again. A FileSource gets the descriptor `file`.
Result<std::shared_ptr<Source>> source_of(const SourceRecord& record, Descriptor file,
                                          PoolConnection& pool, const CastPlace& cast);

}  // namespace stdchk::pager
