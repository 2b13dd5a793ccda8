#pragma once

#include <map>
#include <utility>
#include <vector>

#include "core/values/types.h"
#include "manager/pool/pool.h"

namespace stdchk::manager {

/// A CopyOrder lists, for each benefactor, the others in the order in which they take copies of its
/// chunks (core/policy/copy_scatter.h).
///
/// Striped images: the first few of scattered() share the copies. Images placed by node: the first
/// of whole() with room takes all. A benefactor that has taken whole copies stays ahead of those
/// that join later, so that images which share chunks keep the same holders. After three failures
/// in a row it goes to the end, until a copy succeeds or benefactors change.
///
/// Threads: the reactor's.
class CopyOrder {
 public:
  explicit CopyOrder(const Pool& pool) : pool_(pool) {}
  /// Valid until the next benefactors_changed().
  const std::vector<BenefactorId>& scattered(BenefactorId primary);
  std::vector<BenefactorId> whole(BenefactorId primary);
  /// Notes that `holder` has whole copies of images whose first copy is on `primary`.
  void note_whole(BenefactorId primary, BenefactorId holder);
  /// Notes whether `target` could read from `source`.
  void note_copied(BenefactorId source, BenefactorId target, bool good);
  void benefactors_changed();

 private:
  using Lists = std::map<BenefactorId, std::vector<BenefactorId>>;

  const Pool& pool_;
  Lists scattered_;
  Lists whole_;  ///< holders of whole copies, in the order of their first copies
  std::map<std::pair<BenefactorId, BenefactorId>, unsigned> failures_;  ///< in a row
};

}  // namespace stdchk::manager
