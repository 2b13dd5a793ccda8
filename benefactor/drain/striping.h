#pragma once

#include <string>

namespace stdchk::benefactor {

/// Spreads new files in a folder of a Lustre file system over more object storage targets the
/// larger they grow: lfs-setstripe(1), progressive file layouts. Does nothing without `lfs` in
/// PATH, or for a folder on another file system.
///
/// Threads: any that may block.
void stripe_by_size(const std::string& folder);

}  // namespace stdchk::benefactor
