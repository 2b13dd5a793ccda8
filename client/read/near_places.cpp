#include "client/read/near_places.h"

#include <utility>

namespace stdchk::client {

void NearPlaces::find(const VersionMap& map, std::uint64_t offset, Done done) {
  const std::uint64_t number = ++numbers_made_;
  waiting_.emplace(number, std::move(done));
  host_.call(msg::FindNear{host_.client(), map.file, map.version, offset},
             [this, number, file = map.file](const rpc::Answer& answer) {
               answered(number, file, answer);
             });
}

void NearPlaces::answered(std::uint64_t number, FileId file, const rpc::Answer& answer) {
  const auto* const reply = answer ? std::get_if<msg::FindNear::Reply>(&*answer) : nullptr;
  const Lock lock(host_.shared.mutex);
  if (reply != nullptr && reply->alone) host_.maps.set_shared(file, false);
  auto waiting = waiting_.extract(number);
  if (waiting.empty()) return;
  std::optional<Extent> place;
  if (reply != nullptr && reply->benefactor) place = Extent{reply->benefactor, reply->offset};
  waiting.mapped()(place);
}

void NearPlaces::set_manager_answers(bool answers) {
  manager_answers_ = answers;
  if (answers) return;
  const auto waiting = std::exchange(waiting_, {});
  for (const auto& [number, done] : waiting) done(std::nullopt);
}

}  // namespace stdchk::client
