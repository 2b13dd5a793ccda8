#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/problem.h"
#include "core/messages/messages.h"
#include "core/objects/object_store.h"
#include "core/values/types.h"

/// A staged object holds pieces of a file on their way to the file's object. It consists of the
/// concatenated pieces, a list of ranges, the list's length, and a magic number. Numbers have 8 bytes,
/// little-endian.
namespace stdchk::benefactor {

/// A StagedPiece is a range of a file, with the place of its bytes.
struct StagedPiece {
  std::uint64_t offset = 0;  ///< in the file
  std::uint32_t length = 0;
  std::uint32_t crc = 0;     ///< crc32c()
  std::uint32_t source = 0;  ///< number of the object
  std::uint64_t at = 0;      ///< in the object
};

/// Adds a piece to the list. A piece that crosses a multiple of ObjectAttributes::kRangeBytesMin
/// becomes two, so that the CRCs of a file's ranges follow from those of its pieces.
void add_staged(std::vector<StagedPiece>& pieces, std::uint64_t offset, ByteSpan bytes);

/// Returns the list of pieces whose bytes have `bytes` in all, with the mark.
std::vector<std::byte> staged_list(const std::vector<StagedPiece>& pieces);

/// Reads the list of pieces of a staged object.
/// Errors: of the store; kMalformed when the object is no staged object.
Outcome<std::vector<StagedPiece>> read_staged_list(ObjectStore& store,
                                                   const ObjectStore::Listed& object,
                                                   std::uint32_t source, Time deadline);

/// Returns the name of a staged object with these pieces. A repeated request has the same name.
std::string staged_name(const msg::DrainPieces& request);

}  // namespace stdchk::benefactor
