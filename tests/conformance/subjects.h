#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/transport.h"

namespace stdchk::conformance {

/// A Subject is a transport that the suite examines.
struct Subject {
  std::string name;
  /// Makes an endpoint. Called in the thread, or process, that will poll it.
  std::function<Result<std::unique_ptr<transport::Endpoint>>(Clock&)> open;
  /// Makes an endpoint of the same transport without membership. Set only where the subject
  /// protects endpoints' memory from strangers.
  std::function<Result<std::unique_ptr<transport::Endpoint>>(Clock&)> open_stranger;
  bool in_parts = false;  ///< each party registers its memory in parts
  /// Parties may be in different processes; otherwise they are two threads of one process.
  bool processes = false;
  /// The subject needs a device, which hosts may lack. Its absence is reported, and is no success.
  bool needs_device = false;
  /// Parties may be two threads of one process.
  bool threads = true;
  /// Not empty: the subject makes false claims. Only the cases about claims run, and the cases
  /// named here must fail.
  std::vector<std::string> must_fail;
};

/// Every subject of this build.
const std::vector<Subject>& subjects();

}  // namespace stdchk::conformance
