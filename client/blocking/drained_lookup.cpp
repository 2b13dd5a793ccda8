#include "client/blocking/drained_lookup.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "core/base/limits.h"

namespace stdchk::client {

Status DrainedLookup::add(std::string path, FileId file) {
  ++files_;
  batch_.push_back({std::move(path), file});
  return batch_.size() < limits::kDrainChecksMax ? Status{} : finish();
}

Status DrainedLookup::finish() {
  if (batch_.empty()) return {};
  std::vector<UnsafeFile> batch = std::exchange(batch_, {});
  msg::ConfirmDrained request;
  for (const UnsafeFile& each : batch) request.files.push_back(each.file);
  request.compares_evicted = evicted_ == Evicted::kIsCompared;
  STDCHK_ASSIGN(const auto answer, filesystem_.ask(request));
  const auto& reply = std::get<msg::ConfirmDrained::Reply>(answer);
  for (std::uint32_t i = 0; i < batch.size(); ++i) {
    const auto has = [i](const auto& indexes) { return std::ranges::count(indexes, i) > 0; };
    batch[i].missing = has(reply.missing);
    if (batch[i].missing || has(reply.undrained)) on_unsafe_(std::move(batch[i]));
  }
  return {};
}

}  // namespace stdchk::client
