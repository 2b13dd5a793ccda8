#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/problem.h"
#include "fork/ticket/allocator.h"

namespace stdchk::fork {

/// A Host lends processor slots and memory to clones.
struct Host {
  std::string name;  ///< "": this host
  std::uint32_t slots = 0;
  std::uint64_t memory_bytes = 0;
  bool operator==(const Host&) const = default;
};

/// A HostTable is the internal Allocator: it counts the processor slots and the memory of each
/// host, and gives no more than there is. Clones go to the host with most free slots, so that a
/// small ticket is spread.
///
/// Threads: one.
class HostTable final : public Allocator {
 public:
  explicit HostTable(std::vector<Host> hosts);
  Outcome<std::vector<Placement>> request(std::uint64_t ticket, const Demand& demand) override;
  void release(std::uint64_t ticket) override;
  std::string describe() const override;

 private:
  struct Row {
    Host host;
    std::uint32_t used_slots = 0;
    std::uint64_t used_bytes = 0;
  };
  struct Held {
    std::vector<std::uint32_t> counts;  ///< by row
    std::uint64_t clone_bytes = 0;
  };
  std::vector<Row> rows_;
  std::map<std::uint64_t, Held> tickets_;
};

/// Reads a host list: lines "NAME [slots=N] [memory=SIZE]", "#" begins a comment. The defaults are
/// those of `like`. Errors: a sentence with the line's number.
Outcome<std::vector<Host>> parse_hosts(std::string_view text, const Host& like);

/// Reads Slurm's environment: the names of an allocation's nodes, as `scontrol show hostnames`
/// prints them, and SLURM_JOB_CPUS_PER_NODE, such as "16(x2),8". Errors: a sentence.
Outcome<std::vector<Host>> hosts_of_slurm(std::string_view names, std::string_view cpus_per_node,
                                          const Host& like);

}  // namespace stdchk::fork
