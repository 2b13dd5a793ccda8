#pragma once

#include "manager/state/file.h"

namespace stdchk::manager {

/// Calls `visit(folder)` for the folders that have a name of the file. Visits a folder once for all
/// names that follow each other in `links`: a file may have 32,000 names in one folder.
template <class Visit>
void for_each_folder(const File& file, Visit visit) {
  FileId last = file.parent;
  if (last) visit(last);
  for (const Link& link : file.links) {
    if (link.parent == last) continue;
    last = link.parent;
    visit(last);
  }
}

}  // namespace stdchk::manager
