#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/transport.h"

namespace stdchk::conformance {

/// A Subject is one transport that the suite examines.
struct Subject {
  std::string name;
  /// Makes an endpoint. Called in the thread, or process, that will poll it.
  std::function<Result<std::unique_ptr<transport::Endpoint>>(Clock&)> open;
  /// Of a subject that keeps the memory of its endpoints from who is no member: an endpoint of the
  /// same transport that is none.
  std::function<Result<std::unique_ptr<transport::Endpoint>>(Clock&)> open_stranger;
  bool in_parts = false;  ///< a party's memory is registered in parts
  /// Parties may be in different processes. Otherwise they are two threads of one.
  bool processes = false;
  /// Hosts without a certain device have no such transport. Said, and not taken for a success.
  bool needs_device = false;
  /// Parties may be two threads of one process.
  bool threads = true;
  /// Not empty: the subject claims what it does not do. Only the cases about claims are run, and
  /// those named here must fail, or the suite fails.
  std::vector<std::string> must_fail;
};

/// Every subject of this build.
const std::vector<Subject>& subjects();

}  // namespace stdchk::conformance
