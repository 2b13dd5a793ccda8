#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace stdchk::tools {

/// Processes all items with up to `threads` threads, and returns when all are done. Each thread
/// calls make_worker() once, then calls its worker for item after item.
template <class Item, class MakeWorker>
void share_out(std::vector<Item>& items, std::size_t threads, MakeWorker make_worker) {
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> running;
  for (std::size_t i = 0; i < std::min(threads, items.size()); ++i) {
    running.emplace_back([&] {
      auto worker = make_worker();
      for (std::size_t at = next++; at < items.size(); at = next++) worker(items[at]);
    });
  }
  for (auto& thread : running) thread.join();
}

}  // namespace stdchk::tools
