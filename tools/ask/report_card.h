#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/messages/messages.h"

namespace stdchk::tools {

/// The figures of a report card.
struct ReportFigures {
  std::string mount;
  std::string since;  ///< time, for people
  msg::PoolConfig config;
  msg::StatPool::Reply pool;
  bool ends = false;              ///< the pool is about to end
  std::vector<std::string> lost;  ///< at the end: sets and files that are lost with it
};

/// Bytes a second over all open-to-close times (OT), and over all times until the commit (AT). 0:
/// nothing was closed, or committed.
double observed_throughput(const msg::WriterTotals& writers);
double achieved_throughput(const msg::WriterTotals& writers);
/// Written bytes that needed no storage.
std::uint64_t saved_bytes(const msg::PoolTotals& totals);

/// Advice in the order of its weight: at most kAdviceMax sentences that follow from the figures.
/// Empty: no change needed.
inline constexpr std::size_t kAdviceMax = 3;
std::vector<std::string> recommendations(const ReportFigures& figures);

/// A line for each figure, then the advice.
std::string card_text(const ReportFigures& figures);
nlohmann::json card_json(const ReportFigures& figures);

}  // namespace stdchk::tools
