#include "manager/clients/rewriters.h"

#include <algorithm>

namespace stdchk::manager {

void Rewriters::remove(const Image& image) {
  const auto set = sets_.find(image.set);
  if (set == sets_.end()) return;
  const auto [first, last] = set->second.equal_range(image.written);
  const auto found =
      std::find_if(first, last, [&](const auto& each) { return each.second == image.opened; });
  if (found != last) set->second.erase(found);
  if (set->second.empty()) sets_.erase(set);
}

std::uint64_t Rewriters::opened(const Set& set, std::uint64_t begun) const {
  const auto found = sets_.find(set);
  if (found == sets_.end()) return 0;
  const auto image = found->second.upper_bound(begun);
  return image == found->second.end() ? 0 : image->second;
}

}  // namespace stdchk::manager
