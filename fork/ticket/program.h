#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

#include "core/base/problem.h"
#include "fork/ticket/allocator.h"

namespace stdchk::fork {

/// Starts a program with `in` and `out` as its standard input and output; -1 means the standard
/// input or output of this process. Returns the process id, or -1 with errno.
pid_t spawn(const std::vector<std::string>& words, int in, int out);

/// Runs a program and returns its standard output. Ends the program after 10 s. Errors: a sentence
/// with the program's own message.
Outcome<std::string> output_of(const std::vector<std::string>& words);

/// A ProgramAllocator asks a site's own program, which is run for each of three calls:
///
///     PROGRAM request TICKET COUNT BYTES PLACE   prints a line "HOST COUNT" for each host; HOST is
///                                                "." for this one; PLACE is "anywhere" or "here"
///     PROGRAM release TICKET
///     PROGRAM describe                           prints a text for people
///
/// Threads: one; calls wait for the program, at most 10 s. Errors: a sentence.
class ProgramAllocator final : public Allocator {
 public:
  explicit ProgramAllocator(std::string program) : program_(std::move(program)) {}
  Outcome<std::vector<Placement>> request(std::uint64_t ticket, const Demand& demand) override;
  void release(std::uint64_t ticket) override;
  std::string describe() const override;

 private:
  const std::string program_;
  std::set<std::uint64_t> held_;
};

/// Parses the program's answer to a request. Accepts at most `most` clones in all.
Outcome<std::vector<Placement>> parse_placements(std::string_view text, std::uint32_t most);

}  // namespace stdchk::fork
