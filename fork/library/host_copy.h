#pragma once

#include "fork/library/frozen_copy.h"

namespace stdchk::fork {

/// In the frozen copy: makes a copy of it for other hosts, which stdchk-forkd dumps by CRIU. Large
/// memory of that copy is empty (MADV_WIPEONFORK), so that the dump is small. The copy tells the
/// daemon which ranges are empty, closes all files, and stops.
///
/// On another host the copy continues in this function. It registers these ranges with a
/// userfaultfd, and passes the userfaultfd to the daemon of that host. Then it makes clones there
/// as the frozen copy does here.
void make_host_copy(FrozenCopy* frozen, int daemon);

}  // namespace stdchk::fork
