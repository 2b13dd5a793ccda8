#include "container/job/box_records.h"

#include <algorithm>

namespace stdchk::container {

void BoxRecords::begin() {
  *this = {};
  commands_[0] = 1;  // the program itself
}

void BoxRecords::begin_from(const SetDescription& set) {
  commands_ = set.commands;
  asks_ = set.asks;
  ended_asks_.clear();
  requests_.clear();
  answered_.clear();
  restarted_.clear();
  for (const auto& [box, description] : set.boxes) restarted_.insert(box);
}

void BoxRecords::save_in(SetDescription& set) const {
  set.asks = asks_;
  set.commands = commands_;
  set.output_bytes = output_bytes_;
  set.error_bytes = error_bytes_;
}

void BoxRecords::add_ask(const std::string& name, BoxId box, std::uint64_t number) {
  asks_[name] = {box, number};
}

std::vector<std::string> BoxRecords::end_command(BoxId box, std::uint64_t number) {
  std::vector<std::string> names;
  for (const auto& [name, ask] : asks_) {
    if (ask != std::pair(box, number)) continue;
    if (ended_asks_.insert(name).second) names.push_back(name);
  }
  return names;
}

bool BoxRecords::takes_restart(BoxId box, std::uint64_t request) {
  if (restarted_.erase(box) == 0 || request <= answered_[box]) return false;
  answered_[box] = request;
  return true;
}

bool BoxRecords::add_request(BoxId box, std::uint64_t request, SetId first) {
  if (request <= std::max(answered_[box], requests_.contains(box) ? requests_[box].number : 0)) {
    return false;
  }
  requests_[box] = {request, first};
  return true;
}

std::vector<std::pair<BoxId, std::uint64_t>> BoxRecords::answer_requests(SetId set) {
  std::vector<std::pair<BoxId, std::uint64_t>> answered;
  std::erase_if(requests_, [&](const auto& each) {
    const auto& [box, request] = each;
    if (request.first > set) return false;
    answered.emplace_back(box, request.number);
    answered_[box] = request.number;
    return true;
  });
  return answered;
}

void BoxRecords::set_shown(std::uint64_t output, std::uint64_t errors) {
  output_bytes_ = output;
  error_bytes_ = errors;
}

}  // namespace stdchk::container
