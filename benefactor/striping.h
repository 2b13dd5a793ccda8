#pragma once

#include <string>

namespace stdchk::benefactor {

/// Has the files that will be made in a folder of a Lustre file system spread over more object
/// storage targets the larger they grow: lfs-setstripe(1), progressive file layouts. Where there is
/// no `lfs` in PATH nothing is done, and a folder that is not Lustre's stays as it is.
///
/// Threads: any that may block.
void stripe_by_size(const std::string& folder);

}  // namespace stdchk::benefactor
