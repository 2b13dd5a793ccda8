#include "manager/clients/request_counts.h"

#include <array>
#include <variant>

namespace stdchk::manager {
namespace {

template <class Variant>
struct NamesOf;
template <class... M>
struct NamesOf<std::variant<M...>> {
  static constexpr std::array<std::string_view, sizeof...(M)> kNames{M::kName...};
};
constexpr auto& kNames = NamesOf<msg::AnyRequest>::kNames;

}  // namespace

std::string_view request_name(std::size_t kind) { return kNames[kind]; }

RequestCounts::RequestCounts() {
  for (std::size_t i = 0; i < kNames.size(); ++i) times_.emplace_back(metrics::kTimeBounds);
}

void RequestCounts::count(std::size_t kind, Duration took) {
  times_[kind].count(took > Duration::zero() ? static_cast<std::uint64_t>(took.count()) : 0);
}

}  // namespace stdchk::manager
