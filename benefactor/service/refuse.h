#pragma once

#include <string>
#include <utility>

#include "transport/rpc.h"

namespace stdchk::benefactor {

/// Makes the negative answer to a request. `detail` is a sentence for people.
inline tl::unexpected<rpc::Failure> refuse(Code code, const char* where, std::string detail,
                                           Duration retry_after = {}) {
  return tl::unexpected<rpc::Failure>(
      rpc::Failure{Error{code, 0, where}, std::move(detail), retry_after});
}

}  // namespace stdchk::benefactor
