#pragma once

namespace stdchk::fork {

/// Merges private anonymous memory of this process into huge pages of 2 MiB (madvise(2),
/// MADV_COLLAPSE). Skips mappings below 4 MiB, and memory that the kernel does not merge, such as
/// sparse ranges. Returns 0; EINVAL: the kernel does not know the advice.
int merge_into_huge_pages();

}  // namespace stdchk::fork
