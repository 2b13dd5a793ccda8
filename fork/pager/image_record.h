#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/descriptor.h"
#include "fork/pager/pool_source.h"
#include "fork/pager/source.h"

namespace stdchk::pager {

/// A SourceRecord says what an image's source is, for a server that is started again. A source that
/// is a file comes with its descriptor.
struct SourceRecord {
  bool is_file = false;
  PoolSource::Identity identity;  ///< of a source in the pool
  std::string name;

  std::string encode() const;
  static Result<SourceRecord> decode(const std::string& text);
};

/// Makes the record of a FileSource or a PoolSource.
SourceRecord record_of(const Source& source);
/// Equal for two sources of one image.
std::string key_of(const Source& source);
/// Makes the source again. A FileSource gets the descriptor `file`.
Result<std::shared_ptr<Source>> source_of(const SourceRecord& record, Descriptor file,
                                          PoolConnection& pool);

}  // namespace stdchk::pager
