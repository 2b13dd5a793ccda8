#pragma once

#include "client/api/filesystem.h"

namespace stdchk::client {

/// Has the Filesystem hold directories that it uses alone, and send changes of their names in
/// batches (docs/decisions/0075). Call it before the first call about names. Other kinds of
/// Filesystem, such as fakes in tests, hold nothing.
void lease_names(Filesystem& filesystem);

/// Waits until all changes of names are durable that the Filesystem has answered. Fails once when
/// changes of `about` are lost: of a file, or of names in a directory. An fsync needs this call
/// behind File::sync(): for a file without bytes, File::sync() only adds the name to a batch.
Status sync_names(Filesystem& filesystem, FileId about);

}  // namespace stdchk::client
